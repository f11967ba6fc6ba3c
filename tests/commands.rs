//! The commands that show and steer a rollout, used on the real control plane as somebody on call would. What they print is a golden:
//! after a change of a text run with `UPDATE_GOLDENS=1`, and read the difference. kstatus, the library of kubectl, Flux and Argo CD,
//! says how the objects stand meanwhile.

mod preview;

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::cluster::{Cluster, wait};
use crate::operator::{self, root};
use crate::tenants::{Fleet, SOON, condition};

const FORM: (&str, &str) = ("LynqForm", "web");
const HUB: (&str, &str) = ("LynqHub", "tenants");
const ROWS: usize = 4;

/// What was typed, and what was read.
struct Terminal<'a> {
    fleet: &'a Fleet,
    kubeconfig: PathBuf,
    /// Where the commands run, and find the files that they name.
    directory: tempfile::TempDir,
    transcript: String,
}

impl<'a> Terminal<'a> {
    async fn open(cluster: &Cluster, fleet: &'a Fleet) -> Result<Self> {
        Ok(Terminal {
            fleet,
            kubeconfig: cluster.kubeconfig_for(&operator::identity()).await?,
            directory: tempfile::tempdir()?,
            transcript: String::new(),
        })
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.directory.path().join(file), text)?)
    }

    /// Runs `lynqgate LINE`; returns its exit status and what it printed.
    async fn run(&self, line: &str) -> Result<(i32, String)> {
        let mut command = Command::new(operator::program("lynqgate")?);
        command.args(line.split(' '));
        // A test is of files, and of a cluster's schemas: of no namespace.
        if !line.starts_with("test ") {
            command.args(["--namespace", &self.fleet.namespace]);
        }
        let output = command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let said = String::from_utf8([output.stdout, output.stderr].concat())?;
        // The operator of the tests has no lease.
        let lines = said
            .lines()
            .filter(|line| !line.starts_with("cannot tell whether an operator"));
        let said = lines.map(|line| format!("{line}\n")).collect();
        let code = output.status.code().context("it was not killed")?;
        Ok((code, said))
    }

    /// The same, in the transcript; `code` is the exit status that it must have.
    async fn types(&mut self, code: i32, line: &str) -> Result<()> {
        let (exited, said) = self.run(line).await?;
        ensure!(
            exited == code,
            "{line}: exit status {exited}, not {code}: {said}"
        );
        self.shows(line, &said, code);
        Ok(())
    }

    /// The same once it reads as it should: the operator reports on what happens a moment later.
    async fn sees(&mut self, code: i32, line: &str, part: &str) -> Result<()> {
        let said = wait::until(line, SOON, async || {
            let (exited, said) = self.run(line).await?;
            let is_it = exited == code && said.contains(part);
            ensure!(
                is_it,
                "exit status {exited}, and {part:?} is wanted in {said}"
            );
            Ok(said)
        });
        let said = said.await?;
        self.shows(line, &said, code);
        Ok(())
    }

    fn shows(&mut self, line: &str, said: &str, code: i32) {
        let said = said.replace(&self.fleet.namespace, "NAMESPACE");
        let lines: Vec<String> = said.lines().map(timeless).collect();
        let lines = lines.join("\n");
        self.transcript += &format!("$ lynqgate {line}\n{lines}\n[exit status {code}]\n\n");
    }

    fn close(self, golden: &str) -> Result<()> {
        let path = root().join("tests/cases/commands").join(golden);
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            return Ok(std::fs::write(path, self.transcript)?);
        }
        let golden = std::fs::read_to_string(&path)?;
        let read = self.transcript;
        ensure!(read == golden, "this is read:\n{read}\nand not\n{golden}");
        Ok(())
    }

    async fn kstatus(&self, (kind, name): (&str, &str)) -> Result<String> {
        kstatus(&self.fleet.get(kind, name).await?).await
    }

    async fn until_kstatus(&self, of: (&str, &str), wanted: &str) -> Result<()> {
        let what = format!("kstatus calls {of:?} {wanted}");
        wait::until(&what, 3 * SOON, async || {
            let found = self.kstatus(of).await?;
            ensure!(found.starts_with(&format!("{wanted}: ")), "{found}");
            Ok(())
        })
        .await
    }
}

/// Without times, and the names that pods are given.
fn timeless(line: &str) -> String {
    if line.starts_with("  time ") {
        return "  time       TIME".to_owned();
    }
    let line = match line.split_once("; pod ") {
        Some((before, after)) => {
            let after = after.split_once(':').map_or("", |(_, after)| after);
            format!("{before}; pod POD:{after}")
        }
        None => line.to_owned(),
    };
    let words = line.split(' ').map(|word| match revision(word) {
        Some(hash) => word.replace(hash, "HASH"),
        None => {
            let time = word.trim_end_matches([')', ',']);
            let end = &word[time.len()..];
            let time = if is_time(time) { "TIME" } else { time };
            format!("{time}{end}")
        }
    });
    let words: Vec<String> = words.collect();
    let mut line = words.join(" ");
    for since in ["held for ", "has failed for "] {
        if let Some((before, after)) = line.split_once(since) {
            let after = after.split_once(';').map_or("", |(_, after)| after);
            line = format!("{before}{since}DURATION;{after}");
        }
    }
    line
}

/// A time of day, with its date or without.
fn is_time(word: &str) -> bool {
    let digits = |word: &str, length: usize, between: u8| {
        let is = |b: u8| b.is_ascii_digit() || b == between;
        word.len() == length && word.bytes().all(is)
    };
    digits(word, 8, b':') || digits(word, 10, b'-') || word.parse::<jiff::Timestamp>().is_ok()
}

/// The hash in the name of a revision, which is also of the form's uid.
fn revision(word: &str) -> Option<&str> {
    let hash = word.trim_start_matches('(').strip_prefix("web-")?;
    let hash = hash.trim_end_matches([',', '.']);
    (hash.len() == 10 && hash.bytes().all(|b| b.is_ascii_hexdigit())).then_some(hash)
}

/// What the Go library makes of an object.
async fn kstatus(object: &Value) -> Result<String> {
    static PROGRAM: tokio::sync::OnceCell<PathBuf> = tokio::sync::OnceCell::const_new();
    let program = PROGRAM.get_or_try_init(async || {
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kstatus");
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(root().join("tests/kstatus"))
            .status()
            .await?;
        ensure!(built.success(), "go build: {built}");
        Ok(program)
    });
    let mut running = Command::new(program.await?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = running.stdin.take().context("it is piped")?;
    stdin.write_all(object.to_string().as_bytes()).await?;
    drop(stdin);
    let output = running.wait_with_output().await?;
    ensure!(output.status.success(), "kstatus: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

async fn image(fleet: &Fleet, deployment: &str) -> Result<Value> {
    let deployment = fleet.get("Deployment", deployment).await?;
    Ok(deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_is_seen_and_steered_with_the_commands() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "commands", ROWS).await?;
    let form_of = |image: &str, max_skew: u32| fleet.form(image, json!(max_skew), 0);
    let form = |image: &str| form_of(image, 1);
    let mut terminal = Terminal::open(cluster, &fleet).await?;

    fleet.apply(&form("web:1")).await?;
    fleet.complete(ROWS, SOON).await?;
    terminal
        .sees(0, "status", "4 nodes wanted, 4 ready")
        .await?;
    terminal.types(0, "status node t0-web").await?;
    for of in [FORM, HUB, ("LynqNode", "t0-web")] {
        terminal.until_kstatus(of, "Current").await?;
    }

    terminal.types(1, "pause web").await?;
    terminal.types(0, "pause web --dry-run").await?;
    terminal.types(0, "pause web --yes").await?;
    terminal.types(1, "pause web --yes").await?;
    let mut paused = form("web:2");
    paused["spec"]["rollout"]["paused"] = json!(true);
    fleet.apply(&paused).await?;
    terminal
        .sees(
            3,
            "status form web",
            "Paused (4: t0-web, t1-web, t2-web, ...)",
        )
        .await?;
    terminal.types(3, "status node t0-web").await?;
    terminal.until_kstatus(FORM, "InProgress").await?;
    terminal
        .until_kstatus(("LynqNode", "t3-web"), "InProgress")
        .await?;
    terminal.types(0, "diff node t0-web").await?;
    terminal.types(0, "diff form web").await?;
    terminal.types(1, "retry web --yes").await?;
    terminal.types(0, "release t3-web --yes").await?;
    terminal.types(1, "release t3-web --yes").await?;
    let node = fleet.get("LynqNode", "t3-web").await?;
    let forced = &node["metadata"]["annotations"]["lynq.sh/force-rollout"];
    ensure!(
        forced.is_null(),
        "t3-web is forced after its release: {forced}"
    );
    terminal
        .sees(3, "status form web", "1 of 4 updated and ready")
        .await?;
    ensure!(image(&fleet, "t3-app").await? == "web:2" && image(&fleet, "t0-app").await? == "web:1");
    terminal.types(0, "resume web --yes -o json").await?;
    let (code, _) = terminal.run("status form web --watch --timeout 2m").await?;
    ensure!(code == 0, "the watch of a good change ended with {code}");
    terminal.types(1, "resume web --yes").await?;

    fleet.apply(&form("web:3-broken")).await?;
    let (code, watched) = terminal.run("status form web --watch --timeout 5m").await?;
    ensure!(
        code == 3,
        "the watch of a bad change ended with {code}: {watched}"
    );
    let goes = "form web progressing: 0 of 4 updated and ready, 1 updating, 3 held, 0 failed; 3 of 4 ready in all\n";
    ensure!(watched.contains(goes), "{watched}");
    terminal
        .sees(3, "status form web", "RolloutFailed (3:")
        .await?;
    terminal.types(3, "status node t1-web").await?;
    terminal.until_kstatus(FORM, "Failed").await?;
    terminal.types(1, "resume web --yes").await?;
    terminal.types(1, "retry web --yes").await?;
    fleet.apply(&form_of("web:3-broken", 2)).await?;
    terminal
        .sees(3, "status form web", "1 of 2 slots in use")
        .await?;
    terminal.types(0, "retry web --yes").await?;
    terminal.until_kstatus(FORM, "InProgress").await?;

    terminal.types(0, "force form web --yes").await?;
    terminal.types(1, "force form web --yes").await?;
    terminal
        .sees(1, "status form web", "4 updating, 0 held")
        .await?;
    terminal.types(0, "force form web --off --yes").await?;
    fleet.apply(&form("web:4")).await?;
    let (code, _) = terminal.run("status form web --watch --timeout 2m").await?;
    ensure!(code == 0, "the watch of a correction ended with {code}");

    let mut hub = fleet.hub();
    hub["spec"]["guard"] = json!({"maxDeletions": 1});
    fleet.apply(&hub).await?;
    let gone = "DELETE FROM tenants WHERE id IN ('t2', 't3')";
    fleet.database.execute(gone).await?;
    terminal
        .sees(3, "status hub tenants", "2 nodes wanted, 4 ready")
        .await?;
    terminal.types(0, "explain hub tenants").await?;
    terminal.until_kstatus(HUB, "Failed").await?;
    terminal.types(1, "confirm tenants").await?;
    terminal.types(0, "confirm tenants --yes").await?;
    wait::until("the nodes are deleted", SOON, async || {
        let left = fleet.list("LynqNode").await?.len();
        ensure!(left == 2, "{left} nodes are left");
        Ok(())
    })
    .await?;
    fleet.complete(2, SOON).await?;
    terminal
        .sees(0, "status hub tenants", "2 nodes wanted, 2 ready")
        .await?;
    terminal.types(1, "confirm tenants --yes").await?;
    terminal.types(4, "status form nothing").await?;
    terminal.close("rollout.txt")?;
    fleet.retire().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_has_a_history_and_is_set_back() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "history", ROWS).await?;
    let form = |image: &str, policy: Value| {
        let mut form = fleet.form(image, json!(1), 0);
        for (field, value) in policy.as_object().into_iter().flatten() {
            form["spec"]["rollout"][field] = value.clone();
        }
        form
    };
    let mut terminal = Terminal::open(cluster, &fleet).await?;

    fleet.apply(&form("web:1", json!({}))).await?;
    fleet.complete(ROWS, SOON).await?;
    terminal.types(0, "history web").await?;
    terminal.types(1, "undo web --yes").await?;

    fleet.apply(&form("web:2-broken", json!({}))).await?;
    terminal
        .sees(1, "status form web", "cannot be pulled")
        .await?;
    terminal.types(0, "history web").await?;
    terminal.types(1, "undo web").await?;
    terminal.types(0, "undo web --dry-run").await?;
    terminal.types(0, "undo web --yes").await?;
    let complete = async |wanted: &str| -> Result<()> {
        fleet.complete(ROWS, SOON).await?;
        let deployed = image(&fleet, "t0-app").await?;
        ensure!(deployed == *wanted, "{deployed}, not {wanted}");
        Ok(())
    };
    complete("web:1").await?;
    terminal.types(0, "history web").await?;
    terminal.types(1, "undo web --to 3 --yes").await?;

    let order = json!([{"name": "canary", "when": "{{ eq .uid \"t0\" }}", "pause": true}]);
    fleet.apply(&form("web:4", json!({"order": order}))).await?;
    terminal
        .sees(3, "status form web", "AwaitingPromotion (3:")
        .await?;
    let rollout = fleet.get("LynqForm", "web").await?["status"]["rollout"].clone();
    ensure!(rollout["phase"] == "Paused", "{rollout}");
    ensure!(image(&fleet, "t0-app").await? == "web:4" && image(&fleet, "t1-app").await? == "web:1");
    terminal.types(0, "explain node t1-web").await?;
    terminal.types(0, "promote web --yes").await?;
    fleet.complete(ROWS, SOON).await?;
    terminal.types(1, "promote web --yes").await?;

    // What fails is taken back by lynqgate itself.
    let reverts = form("web:5-broken", json!({"onFailure": "Revert"}));
    fleet.apply(&reverts).await?;
    wait::until("the form is set back", 3 * SOON, async || {
        let events = fleet.events("web").await?;
        ensure!(
            events.iter().any(|(reason, _)| reason == "RolloutReverted"),
            "{events:?}"
        );
        Ok(())
    })
    .await?;
    complete("web:4").await?;
    terminal
        .sees(2, "status form web", "every node runs revision")
        .await?;
    terminal.until_kstatus(FORM, "Failed").await?;
    terminal.types(0, "history web").await?;
    terminal.close("history.txt")?;
    fleet.retire().await
}

/// Except a `why`, which lists names and the words of others.
#[test]
fn no_line_of_a_golden_has_more_than_300_characters() {
    for golden in [
        include_str!("cases/commands/diff.txt"),
        include_str!("cases/commands/history.txt"),
        include_str!("cases/commands/rollout.txt"),
    ] {
        let lines = golden.lines().filter(|line| !line.starts_with("  why "));
        let long: Vec<&str> = lines.filter(|line| line.chars().count() > 300).collect();
        assert!(long.is_empty(), "{long:#?}");
    }
}

/// kubectl waits for the condition of the newest generation, and a form that no operator has seen is not ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_waits_for_a_form() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "kubectl", 2).await?;
    let unseen = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqHub", "metadata": {"name": "x", "generation": 1},
        "status": {"observedGeneration": -1},
    });
    let told = kstatus(&unseen).await?;
    ensure!(told.starts_with("InProgress"), "{told}");
    for image in ["web:1", "web:2"] {
        fleet.apply(&fleet.form(image, json!(1), 1)).await?;
        let namespace = format!("--namespace={}", fleet.namespace);
        let ready = [
            "wait",
            "--for=condition=Ready",
            "--timeout=60s",
            &namespace,
            "lynqform/web",
        ];
        cluster.kubectl(&ready, None).await?.expect_success()?;
        let form = fleet.get("LynqForm", "web").await?;
        let complete = condition(&form, "RolloutComplete").context("it is told")?;
        ensure!(complete["status"] == "True", "{form}");
        ensure!(
            image_of_all(&fleet).await? == [image, image],
            "{image}: {form}"
        );
    }
    fleet.retire().await
}

async fn image_of_all(fleet: &Fleet) -> Result<Vec<String>> {
    let mut images = vec![];
    for deployment in ["t0-app", "t1-app"] {
        let image = image(fleet, deployment).await?;
        images.push(image.as_str().unwrap_or_default().to_owned());
    }
    Ok(images)
}

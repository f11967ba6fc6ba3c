//! The auditor, a program of its own, on the real etcd of a real rollout: it finds nothing in what lynqgate does, and it
//! finds what is planted.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::cluster::{Cluster, Options, Record, etcd, wait};
use crate::operator::Operator;
use crate::tenants::{Fleet, SOON};

const NODES: usize = 12;
const WINDOW: usize = 3;

/// A rollout, a bad image, and its fix: seen live in etcd, live through the API server, and afterwards in etcd's history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_auditor_finds_nothing_but_what_is_planted() -> Result<()> {
    let options = Options {
        record: Record::Bodies,
        ..Options::default()
    };
    let cluster = Cluster::start(options).await?;
    let _operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = Fleet::new(&cluster, "audited", NODES).await?;
    fleet
        .apply(&fleet.form("registry.example.com/web:1", json!(0), 1))
        .await?;
    fleet.complete(NODES, SOON).await?;

    let etcd = cluster.etcd_url();
    let etcd = ["etcd", "--endpoint", &etcd];
    let kubeconfig = cluster.admin_kubeconfig().display().to_string();
    let live = Auditor::start(&[&etcd[..], &["--require-converged"]].concat()).await?;
    let watch =
        Auditor::start(&["watch", "--kubeconfig", &kubeconfig, "--require-converged"]).await?;
    bad_image_and_its_fix(&fleet).await?;
    for (name, report) in [("etcd", live.end().await?), ("watch", watch.end().await?)] {
        judged_well(name, &report)?;
    }
    let history = ["--from-revision=1", "--until-idle=1", "--require-converged"];
    let expected = format!("--expect-nodes={NODES}");
    let history = [&etcd[..], &history, &[&expected]].concat();
    judged_well("history", &Auditor::start(&history).await?.ended().await?)?;
    judged_well("log", &by_the_log(&cluster).await?)?;

    let planted = Auditor::start(&etcd).await?;
    plant_a_write_in_the_operators_name(&fleet).await?;
    plant_a_live_hash(&cluster, &fleet).await?;
    let report = planted.end().await?;
    ensure!(report.status == 1, "status {}", report.status);
    let found: Vec<(&str, &str)> = report.json["violations"]
        .as_array()
        .context("violations")?
        .iter()
        .map(|found| (text(&found["rule"]), text(&found["object"])))
        .collect();
    let namespace = &fleet.namespace;
    assert_eq!(
        found,
        [
            ("premature", &*format!("Deployment {namespace}/t0-app")),
            ("exact", &*format!("LynqNode {namespace}/t1-web")),
        ],
        "{:#}",
        report.json["violations"]
    );
    Ok(())
}

/// The log is written late, but in order: it is whole when it has the fleet converge.
async fn by_the_log(cluster: &Cluster) -> Result<Report> {
    let log = cluster.audit_log().display().to_string();
    wait::until("the audit log has all", SOON, async || {
        let report = Auditor::run(&["log", &log]).await?;
        ensure!(report.json["converged"] == true, "{:#}", report.json);
        Ok(report)
    })
    .await
}

async fn bad_image_and_its_fix(fleet: &Fleet) -> Result<()> {
    let image = |tag: &str| fleet.form(&format!("registry.example.com/{tag}"), json!(WINDOW), 1);
    fleet.apply(&image("web:2")).await?;
    fleet.complete(NODES, SOON).await?;
    fleet.apply(&image("broken:3")).await?;
    fleet
        .rollout("the window is full of broken nodes", SOON, |r| {
            r["updatingNodes"].as_u64() >= Some(WINDOW as u64) && r["heldNodes"] != 0
        })
        .await?;
    fleet.apply(&image("web:4")).await?;
    fleet.complete(NODES, SOON).await?;
    wait::until("the ledger is empty", SOON, async || {
        let hub = fleet.get("LynqHub", "tenants").await?;
        ensure!(
            hub["status"]["rollout"]["slots"] == json!([]),
            "{}",
            hub["status"]
        );
        Ok(())
    })
    .await
}

/// All promises held, the window was used to the full, and never more.
fn judged_well(name: &str, report: &Report) -> Result<()> {
    let json = &report.json;
    ensure!(
        report.status == 0,
        "{name}: status {}: {:#}",
        report.status,
        json
    );
    let windows = json["windows"].as_array().context("windows")?;
    let form = windows
        .iter()
        .find(|window| text(&window["object"]).starts_with("LynqForm"));
    let form = form.with_context(|| format!("{name}: no form in {windows:?}"))?;
    println!("{name}: {} writes, {form}", json["writes"]);
    assert_eq!(json["violations"], json!([]), "{name}");
    assert_eq!(form["peak"], WINDOW, "{name}");
    let through_slots =
        form["released"].as_u64().unwrap_or(0) + form["repaired"].as_u64().unwrap_or(0);
    assert_eq!(through_slots as usize, 2 * NODES + WINDOW, "{name}");
    Ok(())
}

/// Another image in one Deployment, by the operator's field manager.
async fn plant_a_write_in_the_operators_name(fleet: &Fleet) -> Result<()> {
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.example.com/web:9"}]);
    let patch: Patch<Value> = Patch::Json(serde_json::from_value(patch)?);
    let manager = PatchParams {
        field_manager: Some("lynq-operator".to_owned()),
        ..Default::default()
    };
    fleet
        .api("Deployment")
        .patch("t0-app", &manager, &patch)
        .await?;
    Ok(())
}

/// A live hash that no release made, past the API server and its webhooks.
async fn plant_a_live_hash(cluster: &Cluster, fleet: &Fleet) -> Result<()> {
    let key = format!(
        "/registry/operator.lynq.sh/lynqnodes/{}/t1-web",
        fleet.namespace
    );
    let mut node = etcd::read(cluster, &key).await?.context("no such node")?;
    node["metadata"]["annotations"]["lynq.sh/live-hash"] = format!("1:{}", "5".repeat(32)).into();
    etcd::write(cluster, &key, &node.to_string()).await
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub struct Auditor {
    child: Child,
}

pub struct Report {
    pub status: i32,
    pub json: Value,
}

/// What it takes to read a history, or to catch up.
const END: Duration = Duration::from_secs(60);

impl Auditor {
    /// Starts it and waits until it follows: what is written from then on, it sees.
    pub async fn start(arguments: &[&str]) -> Result<Auditor> {
        let mut child = Auditor::spawn(arguments)?;
        let mut said = BufReader::new(child.stderr.take().context("its standard error")?).lines();
        let line = tokio::time::timeout(SOON, said.next_line()).await??;
        let line = line.context("the auditor ended at once")?;
        ensure!(
            line.contains("following from revision"),
            "the auditor says: {line}"
        );
        Ok(Auditor { child })
    }

    /// Runs it until it ends by itself.
    async fn run(arguments: &[&str]) -> Result<Report> {
        let child = Auditor::spawn(arguments)?;
        Auditor { child }.ended().await
    }

    fn spawn(arguments: &[&str]) -> Result<Child> {
        Command::new(program()?)
            .args(arguments)
            .arg("--output=json")
            .env_remove("HTTP_PROXY")
            .env_remove("HTTPS_PROXY")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting the auditor")
    }

    /// Ends it as Ctrl-C does. It first judges what was written until now.
    pub async fn end(self) -> Result<Report> {
        let id = self.child.id().context("the auditor has ended")?;
        let id = Pid::from_raw(i32::try_from(id)?).context("no process id")?;
        kill_process(id, Signal::INT)?;
        self.ended().await
    }

    async fn ended(self) -> Result<Report> {
        let output = tokio::time::timeout(END, self.child.wait_with_output()).await??;
        Ok(Report {
            status: output.status.code().context("the auditor was killed")?,
            json: serde_json::from_slice(&output.stdout).context("its report")?,
        })
    }
}

/// Beside the test's own program, in the same build directory.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let mut beside = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|dir| dir.join("lynqgate-audit"));
    let found = beside.find(|path| path.is_file());
    found.context("the program lynqgate-audit is not beside this one; build it first: cargo build --workspace --bins")
}

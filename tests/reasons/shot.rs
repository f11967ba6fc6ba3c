//! What a user reads of a held node, in one text that is the same in every run. Brings nothing about.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::golden;
use crate::cluster::{Cluster, wait};
use crate::operator;
use crate::tenants::{Fleet, SOON, condition};

/// What is looked at.
pub struct View<'a> {
    /// The word in the form's condition; None where the form has nothing to say.
    pub form: Option<&'a str>,
    /// The held node, and the word in its condition.
    pub node: (&'a str, &'a str),
}

/// kubectl and `explain` are processes: not all scenes at once.
static CAMERA: Semaphore = Semaphore::const_new(1);

/// Until what a user reads is the golden of this reason.
pub async fn shows(cluster: &Cluster, fleet: &Fleet, code: &str, view: View<'_>) -> Result<()> {
    let (node, node_code) = view.node;
    if let Some(form_code) = view.form {
        until_held(fleet, "LynqForm", "web", form_code).await?;
    }
    until_held(fleet, "LynqNode", node, node_code).await?;
    let _turn = CAMERA.acquire().await?;
    let kubeconfig = cluster.kubeconfig_for(&operator::identity()).await?;
    let kubeconfig = kubeconfig.to_str().context("a path is text")?;
    let read = async || read(cluster, fleet, kubeconfig, &view).await;
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        let mut last = String::new();
        let text = wait::until(&format!("{code} stays the same"), SOON, async || {
            let before = std::mem::replace(&mut last, read().await?);
            ensure!(last.contains(&format!("{code}: ")), "{last}");
            ensure!(before == last, "{before} has become {last}");
            Ok(last.clone())
        })
        .await?;
        let directory: PathBuf = operator::root().join("tests/cases/reasons");
        std::fs::write(directory.join(format!("{code}.txt")), text)?;
        return Ok(());
    }
    let golden = golden(code)?.text;
    wait::until(&format!("the golden {code}"), SOON, async || {
        let text = read().await?;
        ensure!(text == golden, "this is read:\n{text}\nand not\n{golden}");
        Ok(())
    })
    .await
}

async fn until_held(fleet: &Fleet, kind: &str, name: &str, code: &str) -> Result<()> {
    let what = format!("{kind} {name} is held: {code}");
    wait::until(&what, 3 * SOON, async || {
        let object = fleet.get(kind, name).await?;
        let held = condition(&object, "Held").context("no condition Held")?;
        ensure!(held["status"] == "True" && held["reason"] == code, "{held}");
        Ok(())
    })
    .await
}

async fn read(
    cluster: &Cluster,
    fleet: &Fleet,
    kubeconfig: &str,
    view: &View<'_>,
) -> Result<String> {
    let mut text = String::new();
    if view.form.is_some() {
        let form = fleet.get("LynqForm", "web").await?;
        text += &format!("LynqForm web, condition Held:\n{}\n\n", held(&form)?);
    }
    let (node, _) = view.node;
    let arguments = ["get", "lynqnode", node, "-n", &fleet.namespace];
    let table = cluster.kubectl(&arguments, None).await?.expect_success()?;
    let object = fleet.get("LynqNode", node).await?;
    text += &format!("$ kubectl get lynqnode {node}\n{}\n", columns(&table)?);
    text += &format!("LynqNode {node}, condition Held:\n{}\n\n", held(&object)?);
    let output = tokio::process::Command::new(operator::program("lynqgate")?)
        .args(["explain", "node", node, "--namespace", &fleet.namespace])
        .args(["--kubeconfig", kubeconfig])
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8(output.stdout)?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "explain: {error}");
    text += &format!("$ lynqgate explain node {node}\n{said}");
    let lines: Vec<String> = text
        .replace(&fleet.namespace, "NAMESPACE")
        .lines()
        .map(timeless)
        .collect();
    Ok(lines.join("\n") + "\n")
}

fn held(object: &Value) -> Result<String> {
    let held = condition(object, "Held").context("no condition Held")?;
    let text = |field: &str| held[field].as_str().unwrap_or_default();
    Ok(format!(
        "{} {}: {}",
        text("status"),
        text("reason"),
        text("message")
    ))
}

/// The table, without times, and with columns that are as wide as what is in them.
fn columns(table: &str) -> Result<String> {
    let mut rows: Vec<Vec<&str>> = table
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    let [header, row] = rows.as_mut_slice() else {
        anyhow::bail!("one node has one line:\n{table}");
    };
    // What got past the gate has no time of its hold.
    let since = header.iter().position(|name| *name == "SINCE");
    if let Some(since) = since.filter(|since| row.len() + 1 == header.len() && *since < row.len()) {
        row.insert(since, "");
    }
    ensure!(header.len() == row.len(), "an empty column:\n{table}");
    let mut lines = [String::new(), String::new()];
    for (name, cell) in header.iter().zip(row) {
        let cell = match *name {
            "SINCE" | "AGE" if !cell.is_empty() => "TIME",
            _ => cell,
        };
        let width = name.len().max(cell.len()) + 3;
        lines[0] += &format!("{name:<width$}");
        lines[1] += &format!("{cell:<width$}");
    }
    Ok(lines.map(|line| line.trim_end().to_owned() + "\n").concat())
}

/// A line without its times and durations, and without the names that pods are given.
fn timeless(line: &str) -> String {
    let is_time = |word: &str| {
        let clock = word.len() == 8 && word.bytes().filter(|b| *b == b':').count() == 2;
        let stamp = word.ends_with('Z') && word.contains('T') && word.starts_with("20");
        clock || stamp
    };
    let before = std::iter::once("").chain(line.split(' '));
    let words = before.zip(line.split(' ')).map(|(before, word)| {
        if before == "pod" && word.ends_with(':') {
            return "POD:".to_owned();
        }
        let bare = word.trim_matches(|c: char| "(),;".contains(c));
        match is_time(bare) {
            true => word.replace(bare, "TIME"),
            false => word.to_owned(),
        }
    });
    let line = words.collect::<Vec<_>>().join(" ");
    if let Some((beginning, (_, rest))) = line
        .strip_prefix("  state ")
        .and(line.split_once("held for "))
        .and_then(|(beginning, rest)| Some((beginning, rest.split_once(';')?)))
    {
        return format!("{beginning}held for DURATION;{rest}");
    }
    let Some(expected) = line.strip_prefix("  expected   ") else {
        return line;
    };
    // Some time ahead, or just over.
    let parts = expected.split("; ").map(|part| {
        let at = ["in ", "any moment "]
            .iter()
            .find_map(|when| part.find(when));
        let Some((at, (_, rest))) = at.zip(part.split_once(')')) else {
            return part.to_owned();
        };
        format!("{}in DURATION (at TIME UTC){rest}", &part[..at])
    });
    format!("  expected   {}", parts.collect::<Vec<_>>().join("; "))
}

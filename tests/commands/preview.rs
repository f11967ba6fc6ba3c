//! `lynqgate diff -f`: what it says of an apply on the real control plane, and that it writes nothing. And what `lynqgate test` says of
//! a form by the schemas that the control plane publishes.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::commands::Terminal;
use crate::operator;
use crate::tenants::{Fleet, SOON};

const ROWS: usize = 6;

/// Of the six tenants that run: three alike, one with an image of its own, one whose plan is no label, and `t5` no more. And a new
/// one.
const CSV: &str = "id,active,url,plan,image
t0,1,https://t0.example.com/,pro,
t1,1,https://t1.example.com/,pro,
t2,1,https://t2.example.com/,pro,
t3,1,https://t3.example.com/,pro,web:special
t4,1,https://t4.example.com/,gold!,
t6,1,https://t6.example.com/,pro,
";

fn form(fleet: &Fleet, image: &str, password: &str) -> Value {
    let mut form = fleet.form(image, json!(ROWS), 0);
    let map = |id: &str, policy: &str| {
        json!({
            "id": id, "nameTemplate": format!("{{{{ .uid }}}}-{id}"), "deletionPolicy": policy,
            "spec": {"apiVersion": "v1", "kind": "ConfigMap"},
        })
    };
    form["spec"]["configMaps"] = json!([map("cache", "Delete"), map("notes", "Retain")]);
    form["spec"]["secrets"] = json!([{
        "id": "login", "nameTemplate": "{{ .uid }}-login",
        "spec": {"apiVersion": "v1", "kind": "Secret", "stringData": {"password": password}},
    }]);
    form
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_is_compared_with_what_runs_before_it_is_applied() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let fleet = Fleet::new(cluster, "preview", ROWS).await?;
    let stored = form(&fleet, "web:1", "hunter1");
    fleet.apply(&stored).await?;
    fleet.complete(ROWS, SOON).await?;
    let kinds = ["LynqHub", "LynqForm", "LynqNode", "Deployment", "Secret"];
    let before = fleet.versions(&kinds).await?;
    let mut terminal = Terminal::open(cluster, &fleet).await?;
    terminal.write("form.yaml", &stored.to_string())?;
    terminal.types(0, "diff -f form.yaml").await?;

    let mut changed = form(&fleet, "{{ .image | default \"web:2\" }}", "hunter2");
    changed["spec"]["deployments"][0]["labelsTemplate"] = json!({"plan": "{{ .plan }}"});
    terminal.write("form.yaml", &changed.to_string())?;
    terminal.write("rows.csv", CSV)?;
    terminal.types(1, "diff -f form.yaml").await?;
    terminal
        .types(1, "diff -f form.yaml --rows rows.csv")
        .await?;
    let (code, said) = terminal.run("diff -f form.yaml -o json").await?;
    let all: Value = serde_json::from_str(&said)?;
    let nodes = all[0]["changed"][0]["nodes"].as_array().map(Vec::len);
    ensure!(code == 1 && nodes == Some(ROWS), "{code}: {said}");
    ensure!(!said.contains("hunter"), "a Secret is shown: {said}");

    let mut misspelled = form(&fleet, "web:1", "hunter1");
    let container = misspelled
        .pointer_mut("/spec/deployments/0/spec/spec/template/spec/containers/0")
        .and_then(Value::as_object_mut);
    let container = container.context("a container")?;
    let probe = container.remove("readinessProbe").context("a probe")?;
    container.insert("readynessProbe".to_owned(), probe);
    misspelled["spec"]["manifests"] = json!([{
        "id": "bucket", "nameTemplate": "{{ .uid }}-bucket", "spec": {"apiVersion": "example.com/v1", "kind": "Bucket"},
    }]);
    for (file, object) in [
        ("misspelled.yaml", &misspelled),
        ("good.yaml", &stored),
        ("hub.yaml", &fleet.hub()),
    ] {
        terminal.write(file, &object.to_string())?;
    }
    let rest = "--hub hub.yaml --rows rows.csv --schemas cluster";
    terminal
        .types(1, &format!("test misspelled.yaml {rest}"))
        .await?;
    terminal.types(0, &format!("test good.yaml {rest}")).await?;
    // What becomes of an object that the form no longer has.
    let mut without = stored.clone();
    without["spec"]["configMaps"] = json!([]);
    terminal.write("form.yaml", &without.to_string())?;
    terminal.types(1, "diff -f form.yaml").await?;

    // Two forms, one of which the cluster does not have.
    let mut other = stored.clone();
    other["metadata"]["name"] = json!("other");
    terminal.write("form.yaml", &format!("{stored}\n---\n{other}\n"))?;
    terminal.types(1, "diff -f form.yaml").await?;
    let after = fleet.versions(&kinds).await?;
    let written: Vec<_> = before.symmetric_difference(&after).collect();
    ensure!(written.is_empty(), "a preview wrote: {written:?}");

    // What cannot be told is an error, as it is for kubectl diff.
    let mut away = fleet.hub();
    away["metadata"]["name"] = json!("away");
    away["spec"]["source"][fleet.database.product.source()]["port"] = json!(1);
    fleet.apply(&away).await?;
    let mut moved = stored.clone();
    moved["spec"]["hubId"] = json!("away");
    terminal.write("form.yaml", &moved.to_string())?;
    terminal.types(2, "diff -f form.yaml").await?;
    moved["metadata"]["name"] = json!("other");
    terminal.write("form.yaml", &moved.to_string())?;
    terminal.types(2, "diff -f form.yaml").await?;
    moved["spec"]["hubId"] = json!("nothing");
    terminal.write("form.yaml", &moved.to_string())?;
    terminal.types(2, "diff -f form.yaml").await?;
    moved["metadata"]["namespace"] = json!("elsewhere");
    terminal.write("form.yaml", &moved.to_string())?;
    terminal.types(2, "diff -f form.yaml").await?;
    terminal.types(2, "diff -f rows.csv").await?;
    for line in [
        "diff -f missing.yaml",
        "diff -f - --rows -",
        "diff form web -f form.yaml",
    ] {
        let (code, said) = terminal.run(line).await?;
        ensure!(code == 2, "{line}: exit status {code}: {said}");
    }
    terminal.close("diff.txt")?;
    fleet.retire().await
}

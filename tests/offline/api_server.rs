//! `lynqgate render` beside a real API server with the definitions and the webhooks: what one takes the other takes, and what
//! they refuse they refuse for the same field.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::offline::{config_map, lynqgate};
use crate::operator;
use crate::words::all;

fn form(namespace: &str) -> Value {
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"hubId": "tenants", "rollout": {}, "configMaps": [config_map("{{ .uid }}-map", "x")]},
    })
}

fn hub(namespace: &str) -> Value {
    json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqHub",
        "metadata": {"name": "tenants", "namespace": namespace},
        "spec": {
            "source": {"type": "configMap", "configMap": {"name": "rows", "key": "rows.csv"}},
            "valueMappings": {"uid": "uid", "activate": "activate"}, "rollout": {}, "guard": {},
        },
    })
}

/// A field, what is written there in YAML, and what both name if they refuse it.
const CASES: [(&str, &str, &str); 44] = [
    ("/spec/templateEngine", "", ""),
    ("/spec/allowedNamespaces", "", ""),
    ("/spec/services", "", ""),
    ("/spec/configMaps", "", ""),
    ("/spec/hubId", "", "hubId"),
    ("/spec/rollout", "", ""),
    ("/spec/rollout/maxSkew", "", ""),
    ("/spec/rollout/maxFailures", "", ""),
    ("/spec/rollout/progressDeadlineSeconds", "", ""),
    ("/spec/rollout/minReadySeconds", "", ""),
    ("/spec/rollout/minDelay", "", ""),
    ("/spec/rollout/paused", "", ""),
    ("/spec/rollout/creation", "", ""),
    ("/spec/rollout/order", "", ""),
    (
        "/spec/rollout/order",
        "[{name: a, when: null, matchLabels: {a: b}}]",
        "",
    ),
    (
        "/spec/rollout/order",
        "[{name: a, when: x, matchLabels: null}]",
        "",
    ),
    (
        "/spec/rollout/order",
        "[{name: a, when: null}]",
        "spec.rollout.order[0]",
    ),
    ("/spec/rollout/order", "[null]", "spec.rollout.order[0]"),
    ("/spec/configMaps/0/id", "", "spec.configMaps[0].id"),
    ("/spec/configMaps/0/spec", "", "spec.configMaps[0].spec"),
    ("/spec/configMaps/0/dependIds", "", ""),
    (
        "/spec/configMaps/0/dependIds",
        "[null]",
        "spec.configMaps[0].dependIds[0]",
    ),
    ("/spec/configMaps/0/labelsTemplate", "", ""),
    ("/spec/configMaps/0/labelsTemplate", "{a: null}", ""),
    ("/spec/configMaps/0/waitForReady", "", ""),
    ("/spec/configMaps/0/timeoutSeconds", "", ""),
    ("/spec/configMaps/0/readyProbe", "", ""),
    ("/spec/configMaps/0/minDelay", "", ""),
    ("/spec/configMaps/0/timeoutSeconds", "60.0", ""),
    ("/spec/configMaps/0/timeoutSeconds", "1e3", ""),
    (
        "/spec/configMaps/0/timeoutSeconds",
        "60.5",
        "spec.configMaps[0].timeoutSeconds",
    ),
    ("/spec/rollout/maxSkew", "3.0", ""),
    ("/spec/rollout/maxSkew", "3.5", "spec.rollout.maxSkew"),
    ("/spec/rollout/maxSkew", "101%", "spec.rollout.maxSkew"),
    ("/spec/rollout/maxSkew", "0%", "spec.rollout.maxSkew"),
    (
        "/spec/rollout/maxFailures",
        "0%",
        "spec.rollout.maxFailures",
    ),
    ("/spec/rollout/maxFailures", "0", "spec.rollout.maxFailures"),
    ("/metadata/name", "Web_1", "metadata.name"),
    (
        "hub/spec/guard/maxDeletions",
        "0%",
        "spec.guard.maxDeletions",
    ),
    ("hub/spec/guard/maxDeletions", "", ""),
    ("hub/spec/rollout/maxSkew", "101%", "spec.rollout.maxSkew"),
    ("hub/spec/rollout/maxSkew", "", ""),
    ("hub/spec/source/syncInterval", "", ""),
    ("hub/spec/extraValueMappings", "", ""),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn render_takes_what_the_api_server_takes() -> Result<()> {
    let (cluster, _) = operator::shared().await?;
    let namespace = &cluster.namespace("offline").await?;
    let cases = CASES
        .iter()
        .map(|case| (case.0, agree(cluster, namespace, case)));
    all(cases.collect()).await
}

async fn agree(
    cluster: &Cluster,
    namespace: &str,
    (field, written, named): &(&str, &str, &str),
) -> Result<()> {
    const MARK: &str = "WRITTEN";
    let (mut form, mut hub) = (form(namespace), hub(namespace));
    let (changed, pointer) = match field.strip_prefix("hub") {
        Some(pointer) => (&mut hub, pointer),
        None => (&mut form, *field),
    };
    let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
    if let Some(parent) = changed.pointer_mut(parent) {
        parent[name] = json!(MARK);
    }
    let with = |object: &Value| object.to_string().replace("\"WRITTEN\"", written);
    let asked = with(if field.starts_with("hub") {
        &hub
    } else {
        &form
    });
    let arguments = ["apply", "-f", "-", "--dry-run=server"];
    let server = cluster.kubectl(&arguments, Some(&asked)).await?;

    let directory = tempfile::tempdir()?;
    let write = |name: &str, text: &str| -> Result<String> {
        let path = directory.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let row = write("row.json", r#"{"uid": "acme", "activate": "1"}"#)?;
    let hub = write("hub.yaml", &with(&hub))?;
    let output = lynqgate(
        &["render", "-f", "-", "--row", &row, "--hub", &hub],
        &with(&form),
    )?;
    let said = String::from_utf8_lossy(&output.stderr);
    let context = format!(
        "{field}: {written:?}: the API server: {}{}\nrender: {said}",
        server.stdout, server.stderr
    );
    ensure!(server.success == output.status.success(), "{context}");
    ensure!(server.success == named.is_empty(), "{context}");
    if !named.is_empty() {
        ensure!(
            server.stderr.contains(named) && said.contains(named),
            "{context}"
        );
    }
    Ok(())
}

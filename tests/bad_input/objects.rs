//! Resources that render, and that the API server does not take: the node says which and why, and the others go on.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bad_input::{config_map, fleet, form};
use crate::cluster::Cluster;
use crate::operator::{self, Operator};
use crate::tenants::SOON;
use crate::words::{all, keeps_secrets};

/// A resource `bad` of row `t0`, and what is said of it.
fn refused() -> Vec<(&'static str, Value, &'static str)> {
    let resource = |name: &str, spec: Value| json!({"id": "bad", "nameTemplate": name, "spec": spec});
    let deployment = |replicas: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "x"}},
                "template": {
                    "metadata": {"labels": {"app": "x"}},
                    "spec": {"containers": [{"name": "app", "image": "x"}]},
                },
            },
        })
    };
    let mut elsewhere = config_map("bad", "{{ .uid }}-bad", "x");
    elsewhere["targetNamespace"] = json!("no-such-namespace");
    vec![
        ("text for a number", resource("{{ .uid }}-bad", deployment("{{ .plan }}")), "?"),
        (
            "a name that is none",
            config_map("bad", "{{ .uid }}_BAD", "x"),
            "?",
        ),
        (
            "an invalid value",
            resource(
                "{{ .uid }}-bad",
                json!({
                    "apiVersion": "v1", "kind": "Service",
                    "spec": {"type": "{{ .plan }}", "ports": [{"port": 80}]},
                }),
            ),
            "?",
        ),
        (
            "an invalid label",
            {
                let mut map = config_map("bad", "{{ .uid }}-bad", "x");
                map["labelsTemplate"] = json!({"plan": "{{ .plan }} !"});
                map
            },
            "?",
        ),
        (
            "data that is no base64",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "v1", "kind": "Secret", "data": {"plan": "{{ .plan }}"}}),
            ),
            "?",
        ),
        (
            "a field that the kind does not have",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "dota": {"plan": "{{ .plan }}"}}),
            ),
            "?",
        ),
        ("a namespace that does not exist", elsewhere, "?"),
        (
            "a kind that is not installed",
            resource("{{ .uid }}-bad", json!({"apiVersion": "example.com/v1", "kind": "Bucket"})),
            "?",
        ),
        (
            "a kind of a group that is there",
            resource("{{ .uid }}-bad", json!({"apiVersion": "apps/v1", "kind": "Deploiment"})),
            "?",
        ),
        (
            "a kind that the operator has no right to",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []}),
            ),
            "?",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_resource_fails_alone() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let refused = refused();
    let cases = refused
        .iter()
        .map(|(name, resource, said)| (*name, refuse(cluster, operator, resource, said)));
    all(cases.collect()).await
}

async fn refuse(
    cluster: &Cluster,
    operator: &Operator,
    resource: &Value,
    said: &str,
) -> Result<()> {
    let fleet = fleet(cluster, 1).await?;
    let spec = json!({
        "configMaps": [config_map("good", "{{ .uid }}-good", "x")],
        "manifests": [resource],
    });
    fleet.apply(&form(&fleet, "mixed", &spec)).await?;
    let node = ("LynqNode", "t0-mixed");
    fleet.says(node, ("Degraded", "True", "ResourceFailures"), said).await?;
    let (_, why) = said.split_once(": ").unwrap_or(("", said));
    let event = format!("Resource \"bad\": {why}");
    fleet.event("t0-mixed", "ApplyFailed", &event).await?;
    fleet
        .until_names("ConfigMap", &["kube-root-ca.crt", "t0-app", "t0-good"])
        .await?;
    fleet.complete(1, SOON).await?;
    let status = fleet.get("LynqNode", "t0-mixed").await?["status"].clone();
    ensure!(
        status["readyResources"] == 1 && status["failedResources"] == 1,
        "{status}"
    );

    let good = json!({"configMaps": [config_map("good", "{{ .uid }}-good", "x")]});
    fleet.apply(&form(&fleet, "mixed", &good)).await?;
    fleet.says(node, ("Degraded", "False", "Healthy"), "").await?;
    keeps_secrets(&[&fleet], operator).await?;
    fleet.retire().await
}

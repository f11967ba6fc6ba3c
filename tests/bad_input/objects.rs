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
    let resource =
        |name: &str, spec: Value| json!({"id": "bad", "nameTemplate": name, "spec": spec});
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
        (
            "text for a number",
            resource("{{ .uid }}-bad", deployment("{{ .plan }}")),
            "Deployment t0-bad: the manifest does not fit its kind: .spec.replicas: expected numeric (int or float), got string; correct the template",
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
            "Service t0-bad: Service \"t0-bad\" is invalid: spec.type: Unsupported value: (value): supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
        ),
        (
            "an invalid label in a selector",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "v1", "kind": "Service", "spec": {
                    "ports": [{"port": 80}], "selector": {"plan": "{{ .plan }} !"},
                }}),
            ),
            "Service t0-bad: Service \"t0-bad\" is invalid: spec.selector: Invalid value: (value): a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            "data that is no base64",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "v1", "kind": "Secret", "data": {"plan": "{{ .plan }}"}}),
            ),
            "Secret t0-bad: the manifest does not fit its kind: illegal base64 data at input byte 6; correct the template",
        ),
        (
            "a field that the kind does not have",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "dota": {"plan": "{{ .plan }}"}}),
            ),
            "ConfigMap t0-bad: the manifest does not fit its kind: .dota: field not declared in schema; correct the template",
        ),
        (
            "a namespace that does not exist",
            elsewhere,
            "ConfigMap t0-bad: there is no namespace \"no-such-namespace\"; create it, for example as a resource that this one depends on, or correct targetNamespace",
        ),
        (
            "a kind that is not installed",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "example.com/v1", "kind": "Bucket"}),
            ),
            "Bucket t0-bad: the cluster has no kind Bucket in example.com/v1; install its CustomResourceDefinition, or correct apiVersion and kind",
        ),
        (
            "an apiVersion that ends in a blank",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "apps/v1 ", "kind": "Deployment"}),
            ),
            "Deployment t0-bad: its apiVersion or kind cannot be one (it must be like apps/v1 and Deployment); correct its template, or the row's value",
        ),
        (
            "a path for an apiVersion",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "apps/v1/namespaces/{{ .plan }}/deployments", "kind": "Deployment"}),
            ),
            "Deployment t0-bad: its apiVersion or kind cannot be one (it must be like apps/v1 and Deployment); correct its template, or the row's value",
        ),
        (
            "a kind of a group that is there",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "apps/v1", "kind": "Deploiment"}),
            ),
            "Deploiment t0-bad: the cluster has no kind Deploiment in apps/v1; install its CustomResourceDefinition, or correct apiVersion and kind",
        ),
        (
            "a kind that the operator has no right to",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []}),
            ),
            "Role t0-bad: the operator cannot watch objects of kind Role: roles.rbac.authorization.k8s.io is forbidden: User \"system:serviceaccount:lynq-system:lynq-controller-manager\" cannot list resource \"roles\" in API group \"rbac.authorization.k8s.io\" at the cluster scope; grant it get, list, watch, create, patch, update and delete on them",
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
    fleet
        .says(node, ("Degraded", "True", "ResourceFailures"), said)
        .await?;
    let event = format!("Resource \"bad\", {said}");
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
    fleet
        .says(node, ("Degraded", "False", "Healthy"), "")
        .await?;
    keeps_secrets(&[&fleet], operator).await?;
    fleet.retire().await
}

//! Resources that render, and that the API server does not take, where the form is stored all the same: the node says which and
//! why, and the others go on.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::bad_input::{config_map, fleet, form};
use crate::cluster::Cluster;
use crate::operator::{self, Operator};
use crate::tenants::SOON;
use crate::words::{CANARY, all, keeps_secrets};

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
    let mut twice = deployment("");
    twice["spec"]["replicas"] = json!(1);
    let env = json!({"name": "{{ .plan }}", "value": "x"});
    twice["spec"]["template"]["spec"]["containers"][0]["env"] = json!([env, env]);
    let cron_job = |schedule: &str, zone: &str| {
        let containers = json!([{"name": "app", "image": "x"}]);
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob",
            "spec": {
                "schedule": schedule, "timeZone": zone,
                "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": containers}}}},
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
            "text in a key of a list",
            resource(
                "{{ .uid }}-bad",
                json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": "{{ .plan }}"}]}}),
            ),
            "Service t0-bad: the manifest does not fit its kind: .spec.ports[port=\"…\",protocol=\"TCP\"].port: expected numeric (int or float), got string; correct the template",
        ),
        (
            "two of one key",
            resource("{{ .uid }}-bad", twice),
            "Deployment t0-bad: the manifest does not fit its kind: .spec.template.spec.containers[name=\"app\"].env: duplicate entries for key [name=\"…\"]; correct the template",
        ),
        (
            "a value that its explanation repeats",
            resource("{{ .uid }}-bad", cron_job("{{ .plan }}", "Etc/UTC")),
            "CronJob t0-bad: CronJob.batch \"t0-bad\" is invalid: spec.schedule: Invalid value: (value): expected exactly 5 fields, found 1: […]",
        ),
        (
            "a time zone that there is not",
            resource("{{ .uid }}-bad", cron_job("0 0 * * *", "{{ .plan }}")),
            "CronJob t0-bad: CronJob.batch \"t0-bad\" is invalid: spec.timeZone: Invalid value: (value): unknown time zone …",
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
                json!({"apiVersion": "v1", "kind": "PodTemplate"}),
            ),
            "PodTemplate t0-bad: the operator may not watch objects of kind PodTemplate; add get, list, watch, create, patch, update and delete on them to a ClusterRole with label rbac.lynq.sh/aggregate-to-tenants: \"true\" (lynqgate check shows the rule): podtemplates is forbidden: User \"system:serviceaccount:lynq-system:lynq-controller-manager\" cannot list resource \"podtemplates\" in API group \"\" at the cluster scope",
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

/// Where the row has named the container, its name is no more told than the value that somebody took.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_does_not_tell_what_a_row_has_named() -> Result<()> {
    let (cluster, operator) = operator::shared().await?;
    let fleet = fleet(cluster, 1).await?;
    let named = |name: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "x"}},
                "template": {
                    "metadata": {"labels": {"app": "x"}},
                    "spec": {"containers": [{
                        "name": name, "image": "x", "env": [{"name": name, "value": "ours"}, {"name": "MODE", "value": "ours"}],
                    }]},
                },
            },
        })
    };
    let resource =
        json!({"id": "app", "nameTemplate": "{{ .uid }}-named", "spec": named("{{ .plan }}")});
    fleet
        .apply(&form(&fleet, "named", &json!({"deployments": [resource]})))
        .await?;
    fleet.until_names("Deployment", &["t0-named"]).await?;
    let env = json!([{"name": CANARY, "value": "theirs"}, {"name": "MODE", "value": "theirs"}]);
    let containers = json!([{"name": CANARY, "env": env}]);
    let theirs = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "t0-named"},
        "spec": {"template": {"spec": {"containers": containers}}},
    });
    fleet.apply(&theirs).await?;
    let said = "Deployment t0-named: Apply failed with 2 conflicts: conflicts with \"user\":\n\
                - .spec.template.spec.containers[name=\"…\"].env[name=\"MODE\"].value\n\
                - .spec.template.spec.containers[name=\"…\"].env[name=\"…\"].value; conflictPolicy: Force takes the fields over, and \
                ignoreFields leaves them to others";
    let node = ("LynqNode", "t0-named");
    let conflict = ("Conflicted", "True", "ResourceConflict");
    fleet.says(node, conflict, said).await?;
    keeps_secrets(&[&fleet], operator).await?;
    fleet.retire().await
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
    let mut mixed = form(&fleet, "mixed", &spec);
    mixed["metadata"]["annotations"] = json!({"lynq.sh/allow-render-errors": "true"});
    fleet.apply(&mixed).await?;
    let node = ("LynqNode", "t0-mixed");
    let degraded = format!("LynqNode has 1 failed resources: {said}");
    fleet
        .says(node, ("Degraded", "True", "ResourceFailures"), &degraded)
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

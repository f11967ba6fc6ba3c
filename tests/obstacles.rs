//! What other people's policies and webhooks put into the operator's way, one at a time in a fleet's namespace.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait};
use crate::tenants::{Fleet, SOON};

const API: &str = "admissionregistration.k8s.io/v1";

/// Requests of this kind in the fleet's namespace.
pub fn matching(fleet: &Fleet, group: &str, resource: &str, operation: &str) -> Value {
    json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": fleet.namespace}},
        "rule": {"apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": [resource]},
    })
}

/// A policy that refuses what does not meet the condition, in these words.
pub async fn forbid(
    cluster: &Cluster,
    fleet: &Fleet,
    on: &Value,
    condition: &str,
    words: &str,
) -> Result<()> {
    let name = &fleet.namespace;
    let policy = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": API, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "matchConstraints": {"namespaceSelector": on["namespaceSelector"], "resourceRules": [on["rule"]]},
            "validations": [{"expression": condition, "message": words}],
        }},
        {"apiVersion": API, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": {
            "policyName": name, "validationActions": ["Deny"],
        }},
    ]});
    cluster.apply(&policy.to_string()).await
}

/// A webhook that nobody answers for what meets the condition: the API server has an internal error then.
pub async fn fail(cluster: &Cluster, fleet: &Fleet, on: &Value, condition: &str) -> Result<()> {
    let name = &fleet.namespace;
    let webhook = json!({
        "apiVersion": API, "kind": "ValidatingWebhookConfiguration", "metadata": {"name": name},
        "webhooks": [{
            "name": "nobody.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": on["namespaceSelector"], "rules": [on["rule"]],
            "matchConditions": [{"name": "some", "expression": condition}],
        }],
    });
    cluster.apply(&webhook.to_string()).await
}

/// Until such a request, tried without effect, is refused.
pub async fn until_refused(cluster: &Cluster, fleet: &Fleet, request: &[&str]) -> Result<()> {
    let trial = ["--dry-run=server", "-n", &fleet.namespace];
    let trial = [request, &trial].concat();
    wait::until("it is in force", SOON, async || {
        let answer = cluster.kubectl(&trial, None).await?;
        ensure!(!answer.success, "{}", answer.stdout);
        Ok(())
    })
    .await
}

/// The same for a status: of which kind and name, and what is written to it.
pub async fn until_status_refused(
    cluster: &Cluster,
    fleet: &Fleet,
    [kind, name]: [&str; 2],
    status: &str,
) -> Result<()> {
    let patch = [
        "patch",
        kind,
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ];
    until_refused(cluster, fleet, &patch).await
}

/// The hub's status, where the ledger of its releases is, cannot be written.
pub async fn forbid_ledger(cluster: &Cluster, fleet: &Fleet, words: &str) -> Result<()> {
    let statuses = matching(fleet, "operator.lynq.sh", "lynqhubs/status", "UPDATE");
    forbid(cluster, fleet, &statuses, "false", words).await?;
    let status = r#"{"status":{"desired":99}}"#;
    until_status_refused(cluster, fleet, ["lynqhub", "tenants"], status).await
}

/// Takes all of that away.
pub async fn lift(cluster: &Cluster, fleet: &Fleet) -> Result<()> {
    for kind in [
        "validatingwebhookconfiguration",
        "validatingadmissionpolicybinding",
        "validatingadmissionpolicy",
    ] {
        let delete = ["delete", "--ignore-not-found", kind, &fleet.namespace];
        cluster.kubectl(&delete, None).await?.expect_success()?;
    }
    Ok(())
}

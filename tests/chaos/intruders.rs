//! Others at work in the same cluster: a second writer, another webhook, a hand that deletes the webhook configurations,
//! and a second leader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::{Cluster, wait};
use crate::dice::Dice;
use crate::harness::admission::tls::OtherWebhook;
use crate::proxy::rules::{Action, Rule};
use crate::stage::{Stage, soon};
use crate::tenants::SOON;

/// Writes metadata of the objects that the operator writes, so that its own writes meet conflicts.
pub async fn write_too(stage: &Stage, dice: &mut Dice, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let row = dice.below(stage.nodes);
        let (kind, name) = match dice.below(5) {
            0 => ("LynqHub", "tenants".to_owned()),
            1 => ("LynqForm", "web".to_owned()),
            2 => ("Deployment", format!("t{row}-app")),
            _ => ("LynqNode", format!("t{row}-web")),
        };
        let patch =
            json!({"metadata": {"labels": {"example.com/seen": dice.below(1000).to_string()}}});
        let (api, patch) = (stage.fleet.api(kind), Patch::Merge(patch));
        let params = PatchParams::default();
        // A row may have gone.
        let write = async { Ok(api.patch(&name, &params, &patch).await.map(drop).ok()) };
        soon("write", write).await?;
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A webhook that sorts after the gate and changes every node's labels: the gate is asked again about its own answer.
pub async fn admit_too(stage: &Stage, time: Duration) -> Result<()> {
    let client = stage.cluster.admin().await?;
    let namespace = &stage.fleet.namespace;
    let _other = OtherWebhook::install(client, namespace, "IfNeeded", relabel).await?;
    sleep(time).await;
    let configuration = format!("mutatingwebhookconfiguration/zz-{namespace}");
    let delete = ["delete", "--ignore-not-found", &configuration];
    let remove = async || {
        let deleted = stage.cluster.kubectl(&delete, None).await?;
        deleted.expect_success()
    };
    wait::until("the other webhook is gone", SOON, remove).await?;
    Ok(())
}

fn relabel(object: &Value, call: usize) -> Value {
    match object["metadata"]["labels"].is_object() {
        true => {
            json!([{"op": "add", "path": "/metadata/labels/stamp", "value": (call % 7).to_string()}])
        }
        false => json!([{"op": "add", "path": "/metadata/labels", "value": {"stamp": "0"}}]),
    }
}

const CONFIGURATIONS: [&str; 2] = [
    "mutatingwebhookconfiguration/lynq-mutating-webhook-configuration",
    "validatingwebhookconfiguration/lynq-validating-webhook-configuration",
];

/// Takes a webhook configuration away, or both, and puts back what was there.
pub async fn without_webhooks(cluster: &Cluster, dice: &mut Dice, time: Duration) -> Result<()> {
    let taken = match dice.below(3) {
        0 => &CONFIGURATIONS[..1],
        1 => &CONFIGURATIONS[1..],
        _ => &CONFIGURATIONS[..],
    };
    let mut saved = Vec::new();
    for name in taken {
        let got = cluster
            .kubectl(&["get", name, "--output=json"], None)
            .await?;
        let mut object: Value = serde_json::from_str(&got.expect_success()?)?;
        let metadata = object["metadata"].as_object_mut().context("metadata")?;
        metadata.retain(|field, _| matches!(field.as_str(), "name" | "labels" | "annotations"));
        saved.push(object);
        cluster
            .kubectl(&["delete", name], None)
            .await?
            .expect_success()?;
    }
    sleep(time).await;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": saved}).to_string();
    let back = async || {
        // An operator that was started meanwhile has put back its own.
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--filename=-",
        ];
        cluster.kubectl(&apply, Some(&list)).await?.expect_success()
    };
    let what = "the webhook configurations are back";
    wait::until(what, SOON, back).await?;
    Ok(())
}

/// The second replica is shown another lease, which nobody else wants: both lead.
pub fn two_leaders() -> Vec<Rule> {
    let (lease, other) = ("f2130106.lynq.sh", "other.lynq.sh");
    let name = Action::Rewrite(Arc::new(move |_, body| {
        body["metadata"]["name"] = json!(other);
        true
    }));
    vec![
        Rule::new(Action::Rename(lease.to_owned(), other.to_owned()))
            .verbs(&["get", "patch"])
            .resources(&["leases"]),
        Rule::new(name).verbs(&["create"]).resources(&["leases"]),
    ]
}

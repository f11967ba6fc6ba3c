//! The second fence: what is refused while the webhooks are away, and what becomes of a write that got past both.

use anyhow::{Context, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::Operator;
use crate::tenants::{Fleet, SOON};

const NODE: &str = "t0-web";

async fn refused(fleet: &Fleet, name: &str, patch: &Value, said: &str) -> Result<()> {
    let error = fleet.merge("LynqNode", NODE, patch).await.err();
    let text = format!(
        "{:#}",
        error.with_context(|| format!("{name} is accepted"))?
    );
    ensure!(text.contains(said), "{name}: {text}");
    Ok(())
}

pub async fn delete(cluster: &Cluster, resource: &str, name: &str) -> Result<()> {
    cluster
        .kubectl(&["delete", resource, name], None)
        .await?
        .expect_success()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gets_past_the_webhooks_is_refused_and_what_gets_past_both_is_held() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    let fleet = Fleet::new(&cluster, "fence", 1).await?;
    let mut form = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
        "metadata": {"name": "web", "namespace": fleet.namespace},
        "spec": {"hubId": "tenants", "rollout": {"maxSkew": 1}, "configMaps": [{
            "id": "app", "nameTemplate": "{{ .uid }}-app",
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "{{ .plan }}"}},
        }]},
    });
    fleet.apply(&form).await?;
    fleet.complete(1, SOON).await?;
    form["spec"]["rollout"]["paused"] = json!(true);
    fleet.apply(&form).await?;

    operator.process.kill()?;
    let name = "lynq-mutating-webhook-configuration";
    delete(&cluster, "mutatingwebhookconfiguration", name).await?;
    let name = "lynq-validating-webhook-configuration";
    delete(&cluster, "validatingwebhookconfiguration", name).await?;
    let node = fleet.get("LynqNode", NODE).await?;
    let live = node["metadata"]["annotations"]["lynq.sh/live-hash"].clone();
    let content = |plan: &str| {
        let mut maps = node["spec"]["configMaps"].clone();
        maps[0]["spec"]["data"]["plan"] = json!(plan);
        json!({"spec": {"configMaps": maps}})
    };
    let annotate = |name: &str, value: &Value| json!({"metadata": {"annotations": {name: value}}});
    let other_hash = json!(format!("1:{}", "0".repeat(32)));
    for (name, patch, said) in [
        (
            "content",
            content("evil"),
            "mutating webhook did not see this write",
        ),
        (
            "the live hash",
            annotate("lynq.sh/live-hash", &other_hash),
            "only lynqgate itself lets content go live",
        ),
        (
            "the start time",
            annotate(
                "lynq.sh/rollout-update-start-time",
                &json!("2100-01-01T00:00:00.000Z"),
            ),
            "only lynqgate itself sets lynq.sh/rollout-update-start-time",
        ),
        (
            "a release",
            annotate("lynq.sh/release", &json!("x/1")),
            "only lynqgate itself sets lynq.sh/release",
        ),
        (
            "an ungated marker",
            annotate("lynq.sh/ungated", &live),
            "only lynqgate itself sets lynq.sh/release and lynq.sh/ungated",
        ),
    ] {
        refused(&fleet, name, &patch, said).await?;
    }
    // In two writes: the hash of what is to come first, and then that.
    let claimed = annotate("lynq.sh/desired-hash", &other_hash);
    fleet.merge("LynqNode", NODE, &claimed).await?;
    let mut then = content("evil");
    then["metadata"] = annotate("lynq.sh/desired-hash", &live)["metadata"].clone();
    let said = "changed content is held until its release";
    refused(&fleet, "content that claims to be live", &then, said).await?;
    let mut before = annotate("lynq.sh/desired-hash", &live);
    before["spec"] = node["spec"].clone();
    fleet.merge("LynqNode", NODE, &before).await?;
    fleet
        .merge("LynqNode", NODE, &annotate("note", &json!("harmless")))
        .await?;
    let made = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqNode",
        "metadata": {"name": "made", "namespace": fleet.namespace, "annotations": {"lynq.sh/live-hash": live}},
        "spec": {"uid": "made", "templateRef": "web", "configMaps": node["spec"]["configMaps"]},
    });
    let mut empty = made.clone();
    empty["spec"]["configMaps"] = json!([]);
    for made in [&made, &empty] {
        let error = fleet
            .apply(made)
            .await
            .err()
            .context("a live node is accepted")?;
        ensure!(
            format!("{error:#}").contains("a new LynqNode is held until its release"),
            "{error:#}"
        );
    }

    // Past the policy, too: found by the operator, and held.
    delete(
        &cluster,
        "validatingadmissionpolicybinding",
        "lynqgate-fence",
    )
    .await?;
    wait::until("the policy does not apply any more", SOON, async || {
        fleet.merge("LynqNode", NODE, &content("evil")).await
    })
    .await?;
    operator.process.start()?;
    operator.ready().await?;
    let text = "its content was written past lynqgate's admission webhook; nothing of that is applied, and it is held for a \
                release like any other change: to keep it from being released, set rollout.paused on its form, and change the \
                form to have the hub write the node anew. See that the webhook configurations and the \
                CustomResourceDefinitions are as installed";
    fleet.event(NODE, "PastTheGate", text).await?;
    let summary = "the rollout is paused; set paused: false on the form, or force this node";
    fleet
        .says(("LynqNode", NODE), ("Held", "True", "Paused"), summary)
        .await?;
    let map = fleet.get("ConfigMap", "t0-app").await?;
    ensure!(map["data"]["plan"] == "pro", "{map}");
    let metrics = operator.metrics().await?;
    ensure!(
        metrics.contains("lynqgate_gate_bypasses_total 1\n"),
        "{metrics}"
    );
    fleet
        .api("LynqHub")
        .delete("tenants", &DeleteParams::default())
        .await?;
    Ok(())
}

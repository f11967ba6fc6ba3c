//! The reasons of an operator that comes and goes, behind a proxy that makes its API server slow.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::shot::{View, shows};
use crate::cluster::{Cluster, Options, wait};
use crate::fence;
use crate::proxy::Proxy;
use crate::proxy::rules::{Action, Rule};
use crate::tenants::{Fleet, SOON, condition};

/// Returns the reasons that were shown.
pub async fn play() -> Result<Vec<&'static str>> {
    let cluster = Cluster::start(Options::default()).await?;
    let (proxy, operator) = Proxy::before_operator(&cluster, &["--leader-elect"]).await?;
    let fleet = Fleet::new(&cluster, "alone", 2).await?;
    let form = |image: &str| {
        let mut form = fleet.form(image, json!(1), 0);
        form["spec"]["rollout"]["progressDeadlineSeconds"] = json!(3600);
        form
    };
    fleet.apply(&form("web:1")).await?;
    fleet
        .apply(&json!({
            "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
            "metadata": {"name": "batch", "namespace": fleet.namespace},
            "spec": {"hubId": "tenants", "serviceAccounts": [{
                "id": "app", "nameTemplate": "{{ .uid }}-batch",
                "spec": {"apiVersion": "v1", "kind": "ServiceAccount"},
            }]},
        }))
        .await?;
    fleet.complete(2, SOON).await?;
    let waits = |code| View {
        form: Some(code),
        node: ("t1-web", code),
    };
    let nodes = ["t0-batch", "t0-web", "t1-batch", "t1-web"];
    fleet.until_names("LynqNode", &nodes).await?;
    fleet
        .until_names("Deployment", &["t0-app", "t1-app"])
        .await?;

    // Nothing stands in the way of a write, and what came past the gate cannot be brought back to it.
    for (resource, name) in [
        (
            "mutatingwebhookconfiguration",
            "lynq-mutating-webhook-configuration",
        ),
        (
            "validatingwebhookconfiguration",
            "lynq-validating-webhook-configuration",
        ),
        ("validatingadmissionpolicybinding", "lynqgate-fence"),
    ] {
        fence::delete(&cluster, resource, name).await?;
    }
    let mut past = fleet.get("LynqNode", "t1-web").await?["spec"]["deployments"].clone();
    past[0]["spec"]["spec"]["replicas"] = json!(2);
    wait::until("the policy does not apply any more", SOON, async || {
        let patch = json!({"spec": {"deployments": past}});
        fleet.merge("LynqNode", "t1-web", &patch).await
    })
    .await?;
    shows(
        &cluster,
        &fleet,
        "LiveContentUnknown",
        waits("LiveContentUnknown"),
    )
    .await?;
    operator.process.terminate(SOON).await?;
    operator.process.start()?;
    operator.ready().await?;
    fleet.complete(2, SOON).await?;

    // The second waits for the first, which is broken; then nobody is there who could let it go.
    fleet.apply(&form("web:2-broken")).await?;
    fleet
        .rollout("one is broken", SOON, |rollout| {
            rollout["updatingNodes"] == 1 && rollout["heldNodes"] == 1
        })
        .await?;
    let held = ("Held", "True", "WindowFull");
    let said = "waits for a slot: as many nodes of its form are non-ready as maxSkew allows; the form's condition Held has \
                their names";
    fleet.says(("LynqNode", "t1-web"), held, said).await?;
    wait::until("the form has the last word on t0-web", SOON, async || {
        let form = fleet.get("LynqForm", "web").await?;
        let held = condition(&form, "Held").context("Held")?;
        let message = held["message"].as_str().unwrap_or_default();
        ensure!(message.contains("cannot be pulled"), "{message}");
        Ok(())
    })
    .await?;
    operator.process.terminate(SOON).await?;
    shows(&cluster, &fleet, "NoLeader", waits("WindowFull")).await?;

    // The list of the ServiceAccounts does not end, so that the nodes that have some stay unchecked.
    proxy.set_rules(vec![Rule {
        verbs: &["list"],
        resources: &["serviceaccounts"],
        ..Rule::new(Action::Delay(Duration::from_secs(600)))
    }]);
    operator.process.start()?;
    operator.ready().await?;
    shows(&cluster, &fleet, "Starting", waits("Starting")).await?;
    proxy.set_rules(vec![]);
    operator.process.kill()?;
    operator.process.start()?;
    operator.ready().await?;
    fleet.says(("LynqNode", "t1-web"), held, said).await?;

    operator.process.kill()?;
    Ok(vec!["LiveContentUnknown", "NoLeader", "Starting"])
}

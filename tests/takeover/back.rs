//! From Lynq to lynqgate, back, and again, by the commands of docs/LYNQ.md. The operator of these tests is no Deployment; the page's
//! is there all the same.

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::cluster::{Cluster, wait};
use crate::operating::{commands_of, run};
use crate::operator::{self, Operator};
use crate::takeover::{
    ROWS, cluster_of_lynq, definitions, fleet_of_lynq, fleet_of_rows, fleet_with, form,
    form_with_once, leave, migrate, released, substance,
};
use crate::tenants::{Fleet, SOON, condition};

fn overlay() -> String {
    let overlay = operator::root().join("kustomize/overlays/default");
    format!("-k {}", overlay.display())
}

/// Without the webhooks that it brings: they lead to the Deployment.
async fn switch(cluster: &Cluster) -> Result<()> {
    let commands = commands_of("docs/LYNQ.md", "switch")?;
    run(cluster, &commands.replace("-k .", &overlay())).await?;
    let left = "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations -o yaml | grep cert-manager";
    ensure!(
        cluster.shell(left).await?.expect_success().is_err(),
        "{left}"
    );
    run(cluster, &commands_of("docs/OPERATING.md", "break glass")?).await
}

/// Lynq replaces its nodes whole, and knows of no hubId in them.
async fn put_as_lynq(fleet: &Fleet) -> Result<()> {
    let mut node = fleet.get("LynqNode", "t0-web").await?;
    let spec = node["spec"].as_object_mut().context("a spec")?;
    spec.remove("hubId");
    let node = serde_json::from_value(node)?;
    let nodes = fleet.api("LynqNode");
    nodes
        .replace("t0-web", &PostParams::default(), &node)
        .await?;
    Ok(())
}

/// Until a field of the nodes is there for readers, or is not.
async fn until_served(fleet: &Fleet, pointer: &str, is_served: bool) -> Result<()> {
    wait::until("the definitions are those", SOON, async || {
        for node in fleet.list("LynqNode").await? {
            let found = node.pointer(pointer).is_some();
            ensure!(found == is_served, "{node}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_back_and_forth_leaves_what_runs() -> Result<()> {
    let page = |name: &str| commands_of("docs/LYNQ.md", name);
    let cluster = cluster_of_lynq().await?;
    let fleet = fleet_of_rows(&cluster, "back").await?;
    let lynqs = form_with_once(&fleet, "web:1");
    let fleet = fleet_with(fleet, &lynqs, |_| "web:1").await?;
    definitions::install_webhooks(&cluster).await?;
    wait::until("Lynq's webhooks are called", SOON, async || {
        let told = fleet
            .apply(&lynqs)
            .await
            .err()
            .map(|error| format!("{error:#}"));
        let told = told.unwrap_or_default();
        ensure!(told.contains("mlynqform.kb.io"), "{told:?}");
        Ok(())
    })
    .await?;
    let before = substance(&fleet).await?;
    let told = migrate(&cluster, "").await?.expect_success()?;
    ensure!(told.contains("4 of 4 nodes are taken over"), "{told}");
    switch(&cluster).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    fleet.complete(ROWS, SOON).await?;
    released(&operator, &fleet, &[("taken_over", ROWS)]).await?;

    let mut held = form_with_once(&fleet, "web:2");
    held["spec"]["rollout"]["paused"] = json!(true);
    fleet.apply(&held).await?;
    let nothing_is_held = page("nothing is held")?;
    wait::until("what is held is told", SOON, async || {
        let told = cluster.shell(&nothing_is_held).await?;
        ensure!(told.expect_success().is_err(), "nothing is held");
        Ok(())
    })
    .await?;
    fleet.apply(&lynqs).await?;
    wait::until("nothing is held any more", SOON, async || {
        run(&cluster, &nothing_is_held).await
    })
    .await?;
    operator.process.kill()?;
    let after = substance(&fleet).await?;
    ensure!(after == before, "{before:?} became {after:?}");

    // What the page takes away is there.
    run(&cluster, &commands_of("docs/OPERATING.md", "break glass")?).await?;
    let overlay = overlay();
    run(
        &cluster,
        &format!("kubectl apply --server-side --force-conflicts {overlay}"),
    )
    .await?;
    run(&cluster, &page("back")?).await?;
    until_served(&fleet, "/status/observedHash", true).await?;
    let refused = put_as_lynq(&fleet).await.err().map(|e| format!("{e:#}"));
    let refused = refused.context("lynqgate's definitions are there")?;
    ensure!(refused.contains("hubId is immutable"), "{refused}");
    definitions::install_again(&cluster).await?;
    until_served(&fleet, "/status/observedHash", false).await?;
    wait::until("Lynq may write its nodes", SOON, async || {
        for i in 0..ROWS {
            leave(&fleet, &lynqs, i, "web:1").await?;
        }
        put_as_lynq(&fleet).await
    })
    .await?;
    let after = substance(&fleet).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    definitions::install_webhooks(&cluster).await?;
    let told = migrate(&cluster, "").await?.expect_success()?;
    ensure!(told.contains("4 of 4 nodes are taken over"), "{told}");

    switch(&cluster).await?;
    operator.process.start()?;
    operator.ready().await?;
    // The form's status is still that of the first time.
    wait::until("the nodes are taken over again", SOON, async || {
        released(&operator, &fleet, &[("taken_over", ROWS)]).await
    })
    .await?;
    fleet.complete(ROWS, SOON).await?;
    let after = substance(&fleet).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    Ok(())
}

/// Against the page's advice, while nodes are held: their live content is not in Lynq's definitions, and the next write of a node
/// loses it. What is held is not live for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lynqs_definitions_prune_makes_nothing_live() -> Result<()> {
    let cluster = cluster_of_lynq().await?;
    let fleet = fleet_of_lynq(&cluster, "pruned", |_| "web:1").await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;
    fleet.complete(ROWS, SOON).await?;
    let before = substance(&fleet).await?;
    let mut held = form(&fleet, "web:2");
    held["spec"]["rollout"]["paused"] = json!(true);
    fleet.apply(&held).await?;
    until_served(&fleet, "/spec/released", true).await?;
    operator.process.kill()?;

    run(&cluster, &commands_of("docs/LYNQ.md", "back")?).await?;
    definitions::install(&cluster).await?;
    until_served(&fleet, "/spec/released", false).await?;
    let written = Patch::Merge(json!({"metadata": {"annotations": {"written": "true"}}}));
    wait::until("nodes are written without lynqgate", SOON, async || {
        for i in 0..ROWS {
            let nodes = fleet.api("LynqNode");
            let params = PatchParams::default();
            nodes.patch(&format!("t{i}-web"), &params, &written).await?;
        }
        Ok(())
    })
    .await?;
    let after = substance(&fleet).await?;
    ensure!(after == before, "{before:?} became {after:?}");

    switch(&cluster).await?;
    operator.process.start()?;
    operator.ready().await?;
    wait::until(
        "every node waits, and what runs is unknown",
        SOON,
        async || {
            for node in fleet.list("LynqNode").await? {
                let live = &node["metadata"]["annotations"]["lynq.sh/live-hash"];
                let held = condition(&node, "Held").context("Held")?;
                ensure!(
                    *live == "unknown" && held["status"] == "True",
                    "{live} {held}"
                );
            }
            Ok(())
        },
    )
    .await?;
    let after = substance(&fleet).await?;
    ensure!(after == before, "{before:?} became {after:?}");

    fleet.apply(&form(&fleet, "web:1")).await?;
    fleet.complete(ROWS, SOON).await?;
    released(&operator, &fleet, &[("taken_over", ROWS)]).await?;
    let after = substance(&fleet).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    Ok(())
}

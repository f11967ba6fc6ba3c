//! The acts of the database: a StatefulSet without a form, on two Kubernetes nodes of its own.

use anyhow::{Result, ensure};

use crate::acts::SOON;
use crate::cluster::wait;
use crate::stage::Stage;

/// Replicas in tests/demo/db.yaml.
const PODS: usize = 3;
const IMAGES: &str = "kubectl get pods -l app=db --no-headers -o custom-columns=N:.metadata.name,I:.spec.containers[0].image,R:.status.containerStatuses[0].ready";
const PLACES: &str = "kubectl get pods -l app=db -o custom-columns=POD:.metadata.name,NODE:.spec.nodeName,READY:.status.containerStatuses[0].ready";

fn apply(version: &str) -> String {
    format!("sed 's/db:1.0/db:{version}/' tests/demo/db.yaml | kubectl apply -f -")
}

/// Until a command prints this of so many pods.
async fn until(stage: &Stage, line: &str, text: &str, pods: usize) -> Result<String> {
    wait::until(
        &format!("`{line}` shows {pods} pods with {text}"),
        SOON,
        async || {
            let shown = stage.run(line).await?;
            let found = shown.lines().filter(|line| line.contains(text)).count();
            ensure!(found == pods, "{shown}");
            Ok(shown)
        },
    )
    .await
}

/// `true` ends the line of a pod that is ready.
async fn all_ready(stage: &Stage, version: &str) -> Result<()> {
    let text = format!("db:{version}   true");
    until(stage, IMAGES, &text, PODS).await?;
    Ok(())
}

pub async fn stateful_set(stage: &mut Stage) -> Result<()> {
    stage
        .screen
        .headline("A StatefulSet without a form: db:1.1-broken, then db:1.1");
    stage.screen.say(
        "Its label lynq.sh/partition-gate asks lynqgate to update one pod after the other, and to\n\
         stop at the first one that does not become ready.",
    );
    stage.shell("kubectl apply -f tests/demo/db.yaml").await?;
    all_ready(stage, "1.0").await?;
    stage.shell(&apply("1.1-broken")).await?;
    until(stage, IMAGES, "db:1.1-broken   false", 1).await?;
    stage.shell("lynqgate explain statefulset db").await?;
    let images = until(stage, IMAGES, "db:1.0   ", PODS - 1).await?;
    ensure!(
        images
            .lines()
            .last()
            .is_some_and(|line| line.starts_with("db-2") && line.contains("broken")),
        "the first pod to be updated is db-2: {images}"
    );
    stage
        .screen
        .good("db-2 is broken; db-1 and db-0 still run db:1.0");
    stage.shell(&apply("1.1")).await?;
    all_ready(stage, "1.1").await?;
    stage
        .shell("kubectl get events --field-selector=reason=PartitionLowered -o custom-columns=MESSAGE:.message")
        .await?;
    stage.screen.good("the three pods run db:1.1");
    Ok(())
}

pub async fn maintenance(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("A Kubernetes node in maintenance");
    stage.screen.say(
        "lynqgate cordons rack-1 and evicts its pods as their PodDisruptionBudget allows. A Lease\n\
         keeps every other operator of Kubernetes nodes away from it.",
    );
    stage.shell(PLACES).await?;
    stage.shell("lynqgate drain rack-1 --for 10m").await?;
    until(stage, PLACES, "rack-2   true", PODS).await?;
    stage.shell(PLACES).await?;
    stage.screen.good("the three pods run on rack-2");
    stage.shell("lynqgate drain rack-1 --end").await?;
    let node = stage.run("kubectl get node rack-1").await?;
    ensure!(!node.contains("SchedulingDisabled"), "{node}");
    stage.screen.good("rack-1 takes pods again");
    Ok(())
}

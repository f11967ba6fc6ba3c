//! The acts of the demo: each does something, shows what comes of it, and fails with a sentence if it does not come.

pub mod database;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::cluster::audit::AuditLog;
use crate::stage::{Stage, TENANTS, WINDOW};
use crate::witness::Sight;

/// Enough for a machine that has other things to do.
const SOON: Duration = Duration::from_secs(60);
/// By when a bad change must have filled the window.
const WINDOW_FULL: Duration = Duration::from_secs(20);
/// `progressDeadlineSeconds` in tests/demo/form.yaml.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long after the deadline the halt may be seen at the latest.
const HALTED: Duration = Duration::from_secs(20);

fn image(version: &str) -> String {
    format!("registry.example.com/web:{version}")
}

/// The command that applies the form with this version of the image.
fn apply(version: &str) -> String {
    format!("sed 's/web:1.0/web:{version}/' tests/demo/form.yaml | kubectl apply -f -")
}

pub async fn first_sync(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("First sync");
    stage.screen.say(
        "The table `tenants` has 20 active rows. The form says what each of them gets, and\n\
         that at most 3 tenants may be not ready at a time; that goes for new ones, too.",
    );
    let port = stage.database.port();
    stage
        .shell(&format!(
            "sed 's/3306/{port}/' tests/demo/hub.yaml | kubectl apply -f -"
        ))
        .await?;
    stage.shell("kubectl apply -f tests/demo/form.yaml").await?;
    complete(stage, &image("1.0")).await?;
    stage
        .shell("kubectl get deployment/cedar-app service/cedar-svc configmap/cedar-settings")
        .await?;
    stage
        .screen
        .good("every active row has its Deployment, Service and ConfigMap");
    window_held(stage)
}

pub async fn change(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("A change: web:2.0");
    stage.screen.say(
        "What changes is held at admission, for every tenant. The next one goes when a slot is free.",
    );
    let new = image("2.0");
    stage.shell(&apply("2.0")).await?;
    stage
        .until("half of the tenants ran web:2.0", &new, SOON, |now| {
            now.tally.new >= TENANTS / 2
        })
        .await?;
    stage.shell("kubectl get lynqform").await?;
    stage.shell("kubectl get lynqnode").await?;
    complete(stage, &new).await?;
    stage.screen.good("every tenant runs web:2.0");
    window_held(stage)
}

/// `broken` in an image's name keeps its pods from ever becoming ready.
pub async fn bad_change(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("A bad change: web:2.1-broken");
    stage.screen.say("An image whose pods never become ready.");
    let (good, bad) = (image("2.0"), image("2.1-broken"));
    let mut log = stage.cluster.audit().await?;
    stage.shell(&apply("2.1-broken")).await?;
    let applied = Instant::now();
    stage
        .until(
            "the window was full of broken tenants",
            &bad,
            WINDOW_FULL,
            |now| now.tally.not_ready == WINDOW && now.tally.held == TENANTS - WINDOW,
        )
        .await?;
    let full_after = applied.elapsed().as_secs_f64();
    stage.screen.good(&format!(
        "the window was full after {full_after:.1} s, and lynqgate releases nothing more"
    ));
    stage.shell("kubectl get lynqnode | head -n 8").await?;
    stage
        .screen
        .say("Nobody steps in. The form's deadline is 60 s; then the rollout counts as failed:");
    let within = DEADLINE + HALTED;
    stage
        .until("the rollout's phase became Failed", &bad, within, |now| {
            now.phase == "Failed" && now.failed == WINDOW
        })
        .await?;
    let failed_after = applied.elapsed();
    ensure!(
        failed_after >= DEADLINE,
        "the rollout's phase was Failed after {:.1} s already; the deadline is 60 s",
        failed_after.as_secs_f64()
    );
    stage.shell("kubectl get lynqform").await?;
    stage
        .shell("kubectl get lynqform web -o jsonpath='{.status.rollout.message}{\"\\n\"}' | fold -s -w 90")
        .await?;
    let (broken, others): (BTreeMap<_, _>, BTreeMap<_, _>) = (stage.deployments().await?)
        .into_iter()
        .partition(|(_, one)| one.image == bad);
    ensure!(
        broken.len() == WINDOW && broken.values().all(|one| !one.rolled_out),
        "{} Deployments got the broken image; maxSkew is {WINDOW}",
        broken.len()
    );
    let untouched = |one: &Sight| one.image == good && one.rolled_out;
    ensure!(
        others.len() == TENANTS - WINDOW && others.values().all(untouched),
        "{} Deployments run web:2.0; it should be all but the {WINDOW} broken ones",
        others.values().filter(|one| untouched(one)).count()
    );
    written_only(stage, &mut log, broken.keys()).await?;
    stage.screen.good(
        "3 tenants are broken, 17 run web:2.0; the audit log has no write to any of those 17",
    );
    window_held(stage)
}

pub async fn fix(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("The fix: web:2.1");
    stage
        .screen
        .say("The corrected form is applied, and that is all. The broken tenants get it first.");
    let fixed = image("2.1");
    let broken: Vec<String> = (stage.deployments().await?.into_iter())
        .filter(|(_, one)| !one.rolled_out)
        .map(|(name, _)| name)
        .collect();
    stage.shell(&apply("2.1")).await?;
    complete(stage, &fixed).await?;
    let order = stage.witness.seen().order_of(&fixed);
    let (first, rest) = order.split_at(WINDOW);
    let mut first = first.to_vec();
    first.sort();
    ensure!(
        first == broken,
        "the fix reached {} first, not the broken {}",
        first.join(", "),
        broken.join(", ")
    );
    stage.screen.good(&format!(
        "repaired first: {}; then {}, {} and the rest",
        first.join(", "),
        rest[0],
        rest[1]
    ));
    window_held(stage)
}

pub async fn force(stage: &mut Stage) -> Result<()> {
    stage
        .screen
        .headline("One tenant by force, then back: web:2.2");
    stage
        .screen
        .say("While a form is paused, lynqgate releases nothing, except by force.");
    let (old, new) = (image("2.1"), image("2.2"));
    let mut log = stage.cluster.audit().await?;
    stage
        .shell("sed 's/web:1.0/web:2.2/; s/paused: false/paused: true/' tests/demo/form.yaml | kubectl apply -f -")
        .await?;
    stage
        .run("kubectl wait lynqnode --all --for=condition=Held --timeout=30s")
        .await?;
    stage
        .shell("kubectl annotate lynqnode maple-web lynq.sh/force-rollout=true")
        .await?;
    stage
        .until("the forced tenant ran web:2.2", &new, SOON, |now| {
            now.tally.new == 1 && now.tally.held == TENANTS - 1
        })
        .await?;
    let forced: Vec<String> = (stage.deployments().await?.into_iter())
        .filter(|(_, one)| one.image == new)
        .map(|(name, _)| name)
        .collect();
    ensure!(
        forced == ["maple-app"],
        "the force was for maple-app, but web:2.2 is on {}",
        forced.join(", ")
    );
    stage
        .shell("kubectl get lynqnode | sed -n '1p; /linden/p; /maple/p; /oak/p'")
        .await?;
    stage
        .screen
        .say("And back. lynqgate takes back what it has not released yet, without a trace:");
    stage.shell(&apply("2.1")).await?;
    complete(stage, &old).await?;
    stage
        .shell("kubectl annotate lynqnode maple-web lynq.sh/force-rollout-")
        .await?;
    written_only(stage, &mut log, ["maple-app"]).await?;
    stage
        .screen
        .good("only maple ran web:2.2; the audit log has no write to any other Deployment");
    window_held(stage)
}

pub async fn row_deleted(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("A tenant leaves");
    let mut log = stage.cluster.audit().await?;
    stage.sql("DELETE FROM tenants WHERE id = 'willow'").await?;
    let deleted = Instant::now();
    stage
        .shell("kubectl wait --for=delete --timeout=30s lynqnode/willow-web")
        .await?;
    stage
        .run("kubectl wait --for=delete --timeout=30s deployment/willow-app service/willow-svc configmap/willow-settings")
        .await?;
    let gone_after = deleted.elapsed().as_secs_f64();
    let left = stage.deployments().await?.len();
    ensure!(
        left == TENANTS - 1,
        "{left} Deployments are left, not {}",
        TENANTS - 1
    );
    written_only(stage, &mut log, ["willow-app"]).await?;
    stage.screen.good(&format!(
        "all that the row had was gone after {gone_after:.1} s; no other Deployment was written"
    ));
    window_held(stage)
}

async fn complete(stage: &mut Stage, image: &str) -> Result<()> {
    stage
        .until("every tenant ran the new image", image, SOON, |now| {
            now.tally.new == TENANTS && now.phase == "Complete"
        })
        .await
}

/// What the API server says that lynqgate wrote.
async fn written_only(
    stage: &Stage,
    log: &mut AuditLog,
    allowed: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<()> {
    let mut written = stage.written(log).await?;
    for name in allowed {
        written.remove(name.as_ref());
    }
    let names: Vec<String> = written.into_iter().collect();
    ensure!(
        names.is_empty(),
        "lynqgate should not have written these Deployments, and did: {}",
        names.join(", ")
    );
    Ok(())
}

/// The promise, as the demo's own watch saw it so far.
fn window_held(stage: &Stage) -> Result<()> {
    let seen = stage.witness.seen();
    ensure!(
        seen.peak <= WINDOW,
        "{} Deployments were not rolled out at the same moment; maxSkew is {WINDOW}",
        seen.peak
    );
    ensure!(
        !seen.has_gap(),
        "the demo's own watch was interrupted, so nobody can say that the window held; run it again"
    );
    Ok(())
}

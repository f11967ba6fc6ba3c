//! The acts of the demo: each does something, shows what comes of it, and fails with a sentence if it does not come.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::stage::{Stage, TENANTS, WINDOW};

/// Enough for a machine that has other things to do; each act says how long it took.
const SOON: Duration = Duration::from_secs(60);
/// In which a bad change must have filled the window.
const WINDOW_FULL: Duration = Duration::from_secs(20);
/// `progressDeadlineSeconds` in tests/demo/form.yaml.
const DEADLINE: Duration = Duration::from_secs(60);

fn image(version: &str) -> String {
    format!("registry.example.com/web:{version}")
}

/// The command that applies the form with this version of the image.
fn apply(version: &str) -> String {
    format!("sed 's/web:1.0/web:{version}/' tests/demo/form.yaml | kubectl apply -f -")
}

pub async fn first_sync(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("First sync");
    stage.screen.say("The table `tenants` has 20 active rows, and a form says what each of them gets: a ConfigMap, a Deployment,\na Service. New tenants wait for a slot like changes do: at most 3 are not ready at a time.");
    let hub = format!(
        "sed 's/3306/{}/' tests/demo/hub.yaml | kubectl apply -f -",
        stage.database.port()
    );
    stage.shell(&hub).await?;
    stage.shell("kubectl apply -f tests/demo/form.yaml").await?;
    complete(stage, &image("1.0")).await?;
    stage.shell("kubectl get lynqhub,lynqform").await?;
    stage
        .screen
        .good("each active row has its Deployment, and the row that is not active has none");
    window_held(stage)
}

pub async fn change(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("A change: web:2.0");
    stage
        .screen
        .say("Every tenant's new content is held at admission. The release loop lets go of the next one as soon as a\nslot is free.");
    let new = image("2.0");
    stage.shell(&apply("2.0")).await?;
    let half = |tenants: usize| tenants / 2;
    stage
        .until("half of the tenants run web:2.0", &new, SOON, |now| {
            now.tally.new >= half(TENANTS)
        })
        .await?;
    stage.shell("kubectl get lynqform,lynqnode").await?;
    complete(stage, &new).await?;
    window_held(stage)
}

/// `broken` in an image's name keeps its pods from ever becoming ready.
pub async fn bad_change(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("A bad change: web:2.1-broken");
    stage.screen.say("Its pods never become ready.");
    let (good, bad) = (image("2.0"), image("2.1-broken"));
    let before = stage.witness.seen().with_image(&good);
    stage.shell(&apply("2.1-broken")).await?;
    let applied = Instant::now();
    stage
        .until(
            "the window was full of broken tenants",
            &bad,
            WINDOW_FULL,
            |now| now.tally.not_ready == WINDOW && now.phase == "InProgress",
        )
        .await?;
    stage.screen.good(&format!(
        "the window was full after {:.1} s",
        applied.elapsed().as_secs_f64()
    ));
    stage.shell("kubectl get lynqform,lynqnode").await?;
    stage
        .screen
        .say("Nobody steps in. The rollout's deadline is 60 s:");
    stage
        .until(
            "the rollout was declared failed",
            &bad,
            DEADLINE + Duration::from_secs(20),
            |now| now.phase == "Failed",
        )
        .await?;
    let failed_after = applied.elapsed();
    ensure!(
        failed_after >= DEADLINE,
        "the phase was Failed after {:.1} s already, before the deadline of 60 s",
        failed_after.as_secs_f64()
    );
    {
        let seen = stage.witness.seen();
        let (broken, untouched) = (seen.with_image(&bad), seen.with_image(&good));
        ensure!(
            broken.len() == WINDOW && broken.values().all(|one| !one.rolled_out),
            "{} Deployments got the broken image, not {WINDOW}",
            broken.len()
        );
        ensure!(
            untouched.len() == TENANTS - WINDOW
                && untouched
                    .iter()
                    .all(|(name, now)| before.get(name) == Some(now)),
            "{} Deployments should not have been written at all, but some were",
            TENANTS - WINDOW
        );
    }
    stage
        .shell("kubectl get lynqform web -o jsonpath='{.status.rollout.phase}: {.status.rollout.message}'")
        .await?;
    stage.screen.good("3 tenants are broken, the other 17 still run web:2.0: not one of their Deployments was written");
    window_held(stage)
}

pub async fn fix(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("The fix: web:2.1");
    stage.screen.say("A `kubectl apply` of the corrected form is all it takes. It reaches the broken tenants first.");
    let fixed = image("2.1");
    stage.run("(kubectl get deploy -w -o json --show-managed-fields > /tmp/w.json 2>/dev/null </dev/null &) >/dev/null").await?;
    let broken = stage.witness.seen().with_image(&image("2.1-broken"));
    stage.shell(&apply("2.1")).await?;
    complete(stage, &fixed).await?;
    let order = stage.witness.seen().order_of(&fixed);
    let mut first: Vec<&str> = order.iter().take(WINDOW).map(String::as_str).collect();
    first.sort();
    ensure!(
        first.iter().eq(broken.keys()),
        "the fix went to {} first, not to the broken {:?}",
        first.join(", "),
        broken.keys()
    );
    let (first, rest) = order.split_at(WINDOW);
    stage.screen.good(&format!(
        "repaired first: {}; then {} and the rest",
        first.join(", "),
        rest[..2].join(", ")
    ));
    window_held(stage)
}

pub async fn force(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("One tenant by force: web:2.2");
    stage
        .screen
        .say("A paused form releases nothing; one tenant is to have the change all the same.");
    let (old, new) = (image("2.1"), image("2.2"));
    let before = stage.witness.seen().with_image(&old);
    stage
        .shell("sed 's/web:1.0/web:2.2/; s/paused: false/paused: true/' tests/demo/form.yaml | kubectl apply -f -")
        .await?;
    stage
        .shell("kubectl wait lynqnode --all --for=condition=Held --timeout=20s | tail -n 1")
        .await?;
    stage
        .shell("kubectl annotate lynqnode maple-web lynq.sh/force-rollout=true")
        .await?;
    stage
        .until("the forced tenant runs web:2.2", &new, SOON, |now| {
            now.tally.new == 1
        })
        .await?;
    {
        let seen = stage.witness.seen();
        let forced: Vec<String> = seen.with_image(&new).into_keys().collect();
        ensure!(
            forced == ["maple-app"],
            "the force was for maple-app, but web:2.2 is on {}",
            forced.join(", ")
        );
    }
    stage
        .screen
        .say("And back: what was not released yet is taken back without a trace.");
    stage.shell(&apply("2.1")).await?;
    complete(stage, &old).await?;
    let mut after = stage.witness.seen().with_image(&old);
    after.remove("maple-app");
    for (n, now) in &after {
        if before.get(n) != Some(now) {
            println!("DIFF {n} {:?} {now:?}", before.get(n));
        }
    }
    if std::fs::exists("/tmp/w.json")? {
        stage.run("cp /tmp/w.json /tmp/w-last.json").await?;
    }
    ensure!(
        after
            .iter()
            .all(|(name, now)| before.get(name) == Some(now))
            && after.len() == TENANTS - 1,
        "the Deployments of the tenants that were held and then not should not have been written at all, but some were"
    );
    stage.screen.good("only maple saw web:2.2; the Deployments of the other 19 were not written, neither then nor now");
    window_held(stage)
}

pub async fn row_deleted(stage: &mut Stage) -> Result<()> {
    stage.screen.headline("A tenant leaves");
    let before = stage.witness.seen().deployments.clone();
    stage.sql("DELETE FROM tenants WHERE id = 'willow'").await?;
    stage.tenants -= 1;
    let deleted = Instant::now();
    stage
        .shell("kubectl wait lynqnode/willow-web deployment/willow-app service/willow-svc configmap/willow-settings --for=delete --timeout=30s")
        .await?;
    let mut expected = before;
    expected.remove("willow-app");
    ensure!(
        stage.witness.seen().deployments == expected,
        "the Deployments of the other tenants should not have changed, but some did"
    );
    stage.screen.good(&format!(
        "the row's objects were gone after {:.1} s; the other 19 tenants did not notice",
        deleted.elapsed().as_secs_f64()
    ));
    Ok(())
}

async fn complete(stage: &mut Stage, image: &str) -> Result<()> {
    let tenants = stage.tenants;
    stage
        .until("every tenant runs the new image", image, SOON, |now| {
            now.tally.new == tenants && now.phase == "Complete"
        })
        .await
}

/// The promise, as the demo's own watch saw it so far.
pub fn window_held(stage: &Stage) -> Result<()> {
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

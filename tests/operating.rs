//! docs/OPERATING.md: its commands do what it says, on a cluster whose operator runs, or is gone.

mod recipes;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, wait};
use crate::operator::{Operator, root};
use crate::tenants::{Fleet, SOON};

/// The commands under this comment.
pub fn commands(name: &str) -> Result<String> {
    commands_of("docs/OPERATING.md", name)
}

pub fn commands_of(page: &str, name: &str) -> Result<String> {
    let page = std::fs::read_to_string(root().join(page))?;
    let (_, from) = page
        .split_once(&format!("```sh\n# {name}\n"))
        .with_context(|| format!("the page has no commands {name:?}"))?;
    let (lines, _) = from.split_once("```\n").context("they have an end")?;
    Ok(lines.to_owned())
}

pub async fn run(cluster: &Cluster, commands: &str) -> Result<()> {
    cluster.shell(commands).await?.expect_success()?;
    Ok(())
}

async fn fleet(cluster: &Cluster, prefix: &str) -> Result<Fleet> {
    fleet_of(cluster, prefix, 2).await
}

async fn fleet_of(cluster: &Cluster, prefix: &str, rows: usize) -> Result<Fleet> {
    let fleet = Fleet::new(cluster, prefix, rows).await?;
    fleet.apply(&fleet.form("web:1", json!(rows), 0)).await?;
    fleet.complete(rows, SOON).await?;
    Ok(fleet)
}

/// Uids and generations.
async fn deployments(fleet: &Fleet) -> Result<BTreeSet<(String, i64)>> {
    let all = fleet.list("Deployment").await?.into_iter().map(|object| {
        let metadata = &object["metadata"];
        let uid = metadata["uid"].as_str()?.to_owned();
        Some((uid, metadata["generation"].as_i64()?))
    });
    all.collect::<Option<_>>().context("a Deployment has both")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_do_what_it_says() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &[]).await?;

    // More than go unasked.
    let all = fleet_of(&cluster, "uninstalled", 6).await?;
    run(&cluster, &commands("uninstall with all tenants")?).await?;
    // A sync that was under way may have made a node again; the garbage collector finds that its hub is gone.
    wait::until("nothing is left", SOON, async || {
        for kind in ["LynqHub", "LynqForm", "LynqNode", "Deployment"] {
            let left = all.names(kind).await?;
            ensure!(left.is_empty(), "{kind}: {left:?}");
        }
        Ok(())
    })
    .await?;

    let stuck = fleet_of(&cluster, "stuck", 6).await?;
    operator.process.kill()?;
    let namespace = ["delete", "namespace", &stuck.namespace, "--wait=false"];
    cluster.kubectl(&namespace, None).await?.expect_success()?;
    wait::until("the nodes wait for the operator", SOON, async || {
        for node in stuck.list("LynqNode").await? {
            let deleted = &node["metadata"]["deletionTimestamp"];
            ensure!(deleted.is_string(), "{node}");
        }
        Ok(())
    })
    .await?;
    ensure!(stuck.names("LynqNode").await?.len() == 6);
    let of_page = commands("a namespace that does not go")?;
    let lines = of_page.replace(
        "NAMESPACE=tenants",
        &format!("NAMESPACE={}", stuck.namespace),
    );
    ensure!(lines != of_page, "{of_page}");
    run(&cluster, &lines).await?;
    let gone = format!("--for=delete namespace/{} --timeout=60s", stuck.namespace);
    run(&cluster, &format!("kubectl wait {gone}")).await?;

    operator.process.start()?;
    operator.ready().await?;
    let kept = fleet(&cluster, "kept").await?;
    let before = deployments(&kept).await?;
    operator.process.kill()?;
    let touch = json!({"metadata": {"labels": {"touched": "yes"}}});
    let refused = kept.merge("LynqNode", "t0-web", &touch).await;
    let refused = format!("{:#}", refused.err().context("nobody answers")?);
    ensure!(refused.contains("failed calling webhook"), "{refused}");
    run(&cluster, &commands("break glass")?).await?;
    wait::until("nobody is asked any more", SOON, async || {
        kept.merge("LynqNode", "t0-web", &touch).await
    })
    .await?;
    operator.process.start()?;
    operator.ready().await?;
    ensure!(deployments(&kept).await? == before, "nothing went live");

    operator.process.kill()?;
    uninstall_and_leave_the_tenants(&cluster).await?;
    for kind in ["LynqHub", "LynqForm", "LynqNode"] {
        let left = kept.names(kind).await?;
        ensure!(left.is_empty(), "{kind}: {left:?}");
    }
    for deployment in kept.list("Deployment").await? {
        let metadata = &deployment["metadata"];
        ensure!(metadata["deletionTimestamp"].is_null(), "{deployment}");
        ensure!(metadata["ownerReferences"].is_null(), "{deployment}");
    }
    let uids = |all: BTreeSet<(String, i64)>| -> BTreeSet<String> {
        all.into_iter().map(|(uid, _)| uid).collect()
    };
    let after = deployments(&kept).await?;
    ensure!(
        uids(after.clone()) == uids(before.clone()),
        "{after:?} {before:?}"
    );

    seeds_stay(&cluster, &[&all, &kept]).await?;

    // Installed again, it finds what it had itself made, and none of that is its own.
    run(&cluster, &commands("break glass")?).await?;
    operator.process.start()?;
    operator.ready().await?;
    kept.apply(&kept.hub()).await?;
    kept.apply(&kept.form("web:1", json!(2), 0)).await?;
    for row in ["t0", "t1"] {
        let said = format!(
            "Deployment {row}-app: it was there before and is nobody's; conflictPolicy: Force takes it over"
        );
        let conflict = ("Conflicted", "True", "ResourceConflict");
        let node = format!("{row}-web");
        kept.says(("LynqNode", &node), conflict, &said).await?;
    }
    ensure!(deployments(&kept).await? == after, "they are left alone");
    for deployment in kept.list("Deployment").await? {
        let metadata = &deployment["metadata"];
        ensure!(metadata["ownerReferences"].is_null(), "{deployment}");
    }
    seeds_stay(&cluster, &[&all]).await?;
    seeds_move_and_rotate(&cluster, &operator, (&all, &kept)).await
}

/// Of these fleets, whose hubs are gone, and of no others.
async fn seeds_stay(cluster: &Cluster, fleets: &[&Fleet]) -> Result<()> {
    let listed = cluster.shell(&commands("seeds without a hub")?).await?;
    let listed = listed.expect_success()?;
    let found: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let names = fleets.iter().map(|fleet| &fleet.namespace);
    let expected: BTreeSet<String> = names.map(|of| format!("{of} tenants-lynq-seed")).collect();
    ensure!(found == expected, "{listed}");
    Ok(())
}

async fn seeds_move_and_rotate(
    cluster: &Cluster,
    operator: &Operator,
    (from, to): (&Fleet, &Fleet),
) -> Result<()> {
    let before = "FROM=tenants HUB=tenants TO=tenants-2 NEW=tenants ";
    let after = format!(
        "FROM={} HUB=tenants TO={} NEW=moved ",
        from.namespace, to.namespace
    );
    let of_page = commands("move a seed")?;
    let lines = of_page.replace(before, &after);
    ensure!(lines != of_page, "{of_page}");
    run(cluster, &lines).await?;
    let data = async |fleet: &Fleet, name: &str| -> Result<Value> {
        Ok(fleet.get("Secret", name).await?["data"]["seed"].clone())
    };
    let (moved, source) = (
        data(to, "moved-lynq-seed").await?,
        data(from, "tenants-lynq-seed").await?,
    );
    ensure!(moved == source && moved.is_string(), "{moved} {source}");

    let old = data(to, "tenants-lynq-seed").await?;
    let of_page = commands("rotate a seed")?;
    let lines = of_page.replace("-n tenants ", &format!("-n {} ", to.namespace));
    ensure!(lines != of_page, "{of_page}");
    operator.process.kill()?;
    run(cluster, &lines).await?;
    operator.process.start()?;
    wait::until("there is another seed", SOON, async || {
        let new = data(to, "tenants-lynq-seed").await?;
        ensure!(new != old, "the same");
        Ok(())
    })
    .await
}

/// By the page's commands. The operator of these tests is no Deployment, and its webhooks have a URL; the page's have to be there
/// all the same.
pub async fn uninstall_and_leave_the_tenants(cluster: &Cluster) -> Result<()> {
    run(cluster, &commands("break glass")?).await?;
    let default = root().join("kustomize/overlays/default");
    let apply = format!(
        "kubectl apply --server-side --force-conflicts -k {}",
        default.display()
    );
    run(cluster, &apply).await?;
    run(cluster, &commands("uninstall and leave the tenants")?).await
}

//! The API server's storage is restored from a backup in the middle of a rollout: versions go back, and what processes
//! remember never was.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::programs::Component;
use crate::cluster::{Cluster, Options};
use crate::operator::Operator;
use crate::tenants::{Fleet, SOON};
use crate::witness::Witness;

/// The leader renews its lease every 2 s, and the others look at it as often.
const RENEWED: Duration = Duration::from_secs(6);
const NOTICED: Duration = Duration::from_secs(30);

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(copied.success(), "cp {}: {copied}", from.display());
    Ok(())
}

struct Storage {
    data: PathBuf,
    backup: PathBuf,
}

impl Storage {
    /// Taken while etcd stands still.
    async fn back_up(cluster: &Cluster) -> Result<Storage> {
        let directory = cluster.group().directory();
        let storage = Storage {
            data: directory.join("etcd"),
            backup: directory.join("etcd-backup"),
        };
        cluster.component(Component::Etcd).kill()?;
        copy(&storage.data, &storage.backup)?;
        cluster.restart(Component::Etcd).await?;
        cluster.ready(Component::Apiserver).await?;
        Ok(storage)
    }

    /// As the manuals have it: every part of the control plane stops first, so that none writes what it remembers into the
    /// restored storage, and starts anew. lynqgate is none of them.
    async fn restore(&self, cluster: &Cluster) -> Result<()> {
        for component in Component::ALL.into_iter().rev() {
            cluster.component(component).kill()?;
        }
        std::fs::remove_dir_all(&self.data)?;
        copy(&self.backup, &self.data)?;
        for component in Component::ALL {
            cluster.restart(component).await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_storage_is_noticed_and_held_stays_held() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let leader = Operator::start(&cluster, "leader", &["--leader-elect"]).await?;
    let operator = Operator::start(&cluster, "standby", &["--leader-elect"]).await?;
    let fleet = Fleet::new(&cluster, "restored", 6).await?;
    fleet.apply(&fleet.form("web:1", json!(0), 0)).await?;
    fleet.complete(6, SOON).await?;
    fleet
        .apply(&fleet.form("web:2-broken", json!(2), 0))
        .await?;
    let two_of_six = |rollout: &Value| {
        rollout["updatedNodes"] == 2 && rollout["heldNodes"] == 4 && rollout["slots"] == 2
    };
    fleet
        .rollout("the window is full", SOON, two_of_six)
        .await?;
    let storage = Storage::back_up(&cluster).await?;

    // All of this never was, soon: a whole rollout, and a new one that is half through.
    fleet.apply(&fleet.form("web:3", json!(2), 0)).await?;
    fleet.complete(6, 2 * SOON).await?;
    fleet
        .apply(&fleet.form("web:4-broken", json!(3), 0))
        .await?;
    let full = |rollout: &Value| rollout["heldNodes"] == 3 && rollout["slots"] == 3;
    fleet.rollout("the window is full", SOON, full).await?;

    // As after any real backup, the lease was renewed since.
    tokio::time::sleep(RENEWED).await;
    storage.restore(&cluster).await?;
    // It has lost its lease, or seen the same.
    leader.process.ended(NOTICED).await?;
    let status = operator.process.ended(NOTICED).await?;
    ensure!(status.code() == Some(70), "{status}");
    let said = "the API server's storage was restored from a backup";
    ensure!(operator.process.log_contains(said), "it does not say why");
    operator.process.start()?;
    operator.ready().await?;
    fleet.rollout("it is as it was", SOON, two_of_six).await?;
    let witness = Witness::start(cluster.admin().await?, &fleet.namespace).await?;
    fleet.apply(&fleet.form("web:5", json!(2), 0)).await?;
    let completed = fleet.complete(6, 2 * SOON).await;
    for component in Component::ALL {
        cluster.component(component).check()?;
    }
    completed?;
    let seen = witness.end();
    ensure!(seen.peak <= 2, "{} of 2", seen.peak);
    Ok(())
}

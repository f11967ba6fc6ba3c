//! What the operator asks of the API server, counted in its audit log: nothing while nothing happens, and a fixed number
//! of requests for a change of one resource of a node.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::cluster::audit::{AuditEvent, AuditLog};
use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON};

const NODES: usize = 12;
const WINDOW: usize = 3;

/// The operator's requests by what they were for, such as `patch lynqnodes/status`.
#[derive(Debug, Default)]
struct Requests(BTreeMap<String, usize>);

impl Requests {
    fn of(events: &[AuditEvent]) -> Requests {
        let mut counts = BTreeMap::new();
        for event in events
            .iter()
            .filter(|event| event.user == operator::identity().username())
        {
            let subresource = match event.subresource.as_str() {
                "" => String::new(),
                name => format!("/{name}"),
            };
            let what = format!("{} {}{subresource}", event.verb, event.resource);
            *counts.entry(what).or_default() += 1;
        }
        Requests(counts)
    }

    /// All but these.
    fn without(mut self, what: &[&str]) -> BTreeMap<String, usize> {
        self.0.retain(|name, _| !what.contains(&name.as_str()));
        self.0
    }
}

/// How often a sync has read the rows of a hub.
async fn syncs(operator: &Operator) -> Result<u64> {
    let metrics = operator.metrics().await?;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("lynqgate_hub_syncs_total{result=\"success\"} "));
    Ok(line.unwrap_or("0").parse()?)
}

/// Until the hub was synced this often from now on, so that whatever a sync may find has been found.
async fn until_synced(operator: &Operator, times: u64) -> Result<()> {
    let target = syncs(operator).await? + times;
    wait::until("the hub is synced", SOON, async || {
        anyhow::ensure!(syncs(operator).await? >= target, "not yet");
        Ok(())
    })
    .await
}

/// Until nothing is in flight any more: the ledger is empty and every status was written.
async fn until_settled(fleet: &Fleet, audit: &mut AuditLog) -> Result<()> {
    wait::until("the ledger is empty", SOON, async || {
        let hub = fleet.get("LynqHub", "tenants").await?;
        let slots = &hub["status"]["rollout"]["slots"];
        let ready = hub["status"]["ready"] == NODES;
        anyhow::ensure!(
            ready && (slots.is_null() || *slots == json!([])),
            "{}",
            hub["status"]
        );
        Ok(())
    })
    .await?;
    wait::until("two seconds without a write", SOON, async || {
        audit.read().await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let writes = Requests::of(&audit.read().await?).without(&QUIET);
        anyhow::ensure!(writes.is_empty(), "{writes:?}");
        Ok(())
    })
    .await
}

/// The requests of an operator that has nothing to do: it keeps its lease.
const QUIET: [&str; 2] = ["get leases", "patch leases"];

/// A settled fleet: no write, and no read but the lease's, whatever the hub reads from its database meanwhile. The same
/// form again and an edit of its metadata reach no node and no object. A change of one resource costs each node one
/// write, one release, one apply and one live read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_costs_nothing_and_a_change_costs_what_it_must() -> Result<()> {
    let cluster = Cluster::start(Options {
        keep_directory: true,
        ..Options::default()
    })
    .await?;
    let operator = Operator::start(&cluster, "operator", &["--leader-elect"]).await?;
    let fleet = Fleet::new(&cluster, "idle", NODES).await?;
    let form = |version: u32| {
        fleet.form(
            &format!("registry.example.com/web:{version}"),
            json!(WINDOW),
            0,
        )
    };
    let mut audit = cluster.audit().await?;
    fleet.apply(&form(1)).await?;
    fleet.complete(NODES, SOON).await?;
    println!("first: {:#?}", Requests::of(&audit.read().await?));
    until_settled(&fleet, &mut audit).await?;

    until_synced(&operator, 2).await?;
    let idle = Requests::of(&audit.read().await?);
    println!("idle: {idle:#?}");

    fleet.apply(&form(1)).await?;
    let mut labelled = form(1);
    labelled["metadata"]["labels"] = json!({"team": "blue"});
    labelled["metadata"]["annotations"] = json!({"note": "nothing to do with the content"});
    fleet.apply(&labelled).await?;
    until_synced(&operator, 3).await?;
    let unchanged = Requests::of(&audit.read().await?);
    println!("metadata: {unchanged:#?}");

    fleet.apply(&form(2)).await?;
    fleet.complete(NODES, SOON).await?;
    println!("change: {:#?}", Requests::of(&audit.read().await?));
    until_settled(&fleet, &mut audit).await?;
    println!("dir {:?}", cluster.group().directory());
    Ok(())
}

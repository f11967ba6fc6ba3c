//! What the operator asks of the API server, counted in its audit log: nothing while nothing happens, and a fixed number
//! of requests for a change of one resource of a node.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::json;

use crate::cluster::audit::{AuditEvent, AuditLog};
use crate::cluster::{Cluster, Options, wait};
use crate::operator::{self, Operator};
use crate::tenants::{Fleet, SOON};

const NODES: usize = 12;
const WINDOW: usize = 3;

/// The requests of an operator that has nothing to do: it keeps its lease.
const QUIET: [&str; 2] = ["get leases", "patch leases"];

/// The operator's requests by what they were for, such as `patch lynqnodes/status`; those that lost a conflict apart.
#[derive(Debug, Default)]
struct Requests(BTreeMap<String, usize>);

impl Requests {
    fn of(events: &[AuditEvent]) -> Requests {
        let mut counts = BTreeMap::new();
        let user = operator::identity().username();
        for event in events.iter().filter(|event| event.user == user) {
            let mut what = format!("{} {}", event.verb, event.resource);
            if !event.subresource.is_empty() {
                what = format!("{what}/{}", event.subresource);
            }
            if event.code == 409 {
                what = format!("lost {what}");
            }
            *counts.entry(what).or_default() += 1;
        }
        Requests(counts)
    }

    fn without(mut self, what: &[&str]) -> BTreeMap<String, usize> {
        self.0.retain(|name, _| !what.contains(&name.as_str()));
        self.0
    }

    /// Between `least` and `most` requests of this kind, which are taken out.
    #[track_caller]
    fn assert(&mut self, what: &str, least: usize, most: usize) {
        let found = self.0.remove(what).unwrap_or_default();
        assert!(
            (least..=most).contains(&found),
            "{found} times {what}, not {least} to {most}; the rest: {:?}",
            self.0
        );
    }
}

/// Until the hub was synced this often from now on, so that whatever a sync may find has been found.
pub async fn until_synced(operator: &Operator, times: u64) -> Result<()> {
    let syncs = async || -> Result<u64> {
        let metrics = operator.metrics().await?;
        let name = "lynqgate_hub_syncs_total{result=\"success\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.unwrap_or("0").parse()?)
    };
    let target = syncs().await? + times;
    wait::until("the hub is synced", SOON, async || {
        anyhow::ensure!(syncs().await? >= target, "not yet");
        Ok(())
    })
    .await
}

/// Until nothing is in flight any more: the ledger is empty, and two syncs pass without a request. Returns all requests
/// up to there.
async fn settle(
    (fleet, nodes): (&Fleet, usize),
    operator: &Operator,
    audit: &mut AuditLog,
) -> Result<Requests> {
    wait::until("the ledger is empty", SOON, async || {
        let hub = fleet.get("LynqHub", "tenants").await?;
        let slots = &hub["status"]["rollout"]["slots"];
        let ready = hub["status"]["ready"] == nodes;
        anyhow::ensure!(ready && *slots == json!([]), "{}", hub["status"]);
        Ok(())
    })
    .await?;
    let mut all = vec![];
    for _ in 0..10 {
        all.extend(audit.read().await?);
        until_synced(operator, 2).await?;
        let new = audit.read().await?;
        let quiet = Requests::of(&new).without(&QUIET).is_empty();
        all.extend(new);
        if quiet {
            return Ok(Requests::of(&all));
        }
    }
    anyhow::bail!("it does not come to rest: {:?}", Requests::of(&all));
}

/// A settled fleet: no write, and no read but the lease's, while the hub reads its rows 20 times. The same form again and
/// an edit of its metadata reach no node and no object. A change of one resource costs each node one write, one release,
/// one apply, one live read, one event and at most two status writes. A few may take a third one,
/// for a Deployment that is not ready within 2 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_costs_nothing_and_a_change_what_it_must() -> Result<()> {
    let cluster = Cluster::start(Options::default()).await?;
    let operator = Operator::start(&cluster, "operator", &["--leader-elect"]).await?;
    let fleet = Fleet::new(&cluster, "idle", NODES).await?;
    let form = |version: u32| {
        let image = format!("registry.example.com/web:{version}");
        fleet.form(&image, json!(WINDOW), 0)
    };
    let mut audit = cluster.audit().await?;
    fleet.apply(&form(1)).await?;
    fleet.complete(NODES, SOON).await?;
    let first = settle((&fleet, NODES), &operator, &mut audit).await?;
    println!("the first sync of {NODES} nodes: {first:?}");

    until_synced(&operator, 20).await?;
    let idle = Requests::of(&audit.read().await?).without(&QUIET);
    assert!(idle.is_empty(), "a settled fleet: {idle:?}");

    fleet.apply(&form(1)).await?;
    let mut labelled = form(1);
    labelled["metadata"]["labels"] = json!({"team": "blue"});
    labelled["metadata"]["annotations"] = json!({"note": "nothing to do with the content"});
    fleet.apply(&labelled).await?;
    until_synced(&operator, 3).await?;
    let same = Requests::of(&audit.read().await?).without(&QUIET);
    assert!(same.is_empty(), "the same form, and its metadata: {same:?}");

    let begin = std::time::Instant::now();
    fleet.apply(&form(2)).await?;
    fleet.complete(NODES, SOON).await?;
    let seconds = begin.elapsed().as_secs() as usize;
    let mut change = settle((&fleet, NODES), &operator, &mut audit).await?;
    println!("a change of {NODES} nodes: {change:?}");
    // A release that meets a write of the node is decided anew.
    let slack = NODES / 4;
    change.assert("lost patch lynqnodes", 0, slack);
    change.assert("get lynqnodes", 0, slack);
    change.assert("patch lynqnodes", 2 * NODES, 2 * NODES);
    // The form was tried on one of them.
    change.assert("patch deployments", NODES + 1, NODES + 1);
    change.assert("get deployments", NODES, NODES + slack);
    change.assert("patch lynqnodes/status", NODES, 2 * NODES + slack);
    // A slot is taken with the one before it freed; the counters go along at most once a second.
    change.assert("lost patch lynqhubs/status", 0, slack);
    change.assert("get lynqhubs", 0, slack);
    change.assert("patch lynqhubs/status", 2, 2 * NODES);
    change.assert("lost patch lynqforms/status", 0, 2);
    // Its counts at most once a second.
    change.assert("patch lynqforms/status", 2, NODES + seconds);
    // Each node tells what was applied; what the form waits for changes a few times, whatever the number of nodes.
    // What was said of late is counted on the first event.
    change.assert("create events", 0, 6);
    change.assert("patch events", NODES, NODES + 6);
    // The form was tried on the rows before it was stored, and its author's rights were asked for.
    change.assert("create subjectaccessreviews", 2, 2);
    // What the form is now is a revision, and marked once it is complete.
    change.assert("list controllerrevisions", 1, 1);
    change.assert("create controllerrevisions", 1, 1);
    change.assert("patch controllerrevisions", 1, 1);
    let rest = change.without(&QUIET);
    assert!(rest.is_empty(), "nothing else is asked: {rest:?}");

    // The same for a node of many resources, of which Lynq writes the status at every look.
    let many = Fleet::new(&cluster, "many", 1).await?;
    let map = |i: usize| {
        json!({
            "id": format!("m{i}"), "nameTemplate": format!("{{{{ .uid }}}}-m{i}"),
            "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"plan": "{{ .plan }}"}},
        })
    };
    let maps: Vec<_> = (0..12).map(map).collect();
    let form = json!({
        "apiVersion": "operator.lynq.sh/v1", "kind": "LynqForm",
        "metadata": {"name": "web", "namespace": many.namespace},
        "spec": {"hubId": "tenants", "rollout": {"maxSkew": WINDOW}, "configMaps": maps},
    });
    many.apply(&form).await?;
    many.complete(1, SOON).await?;
    let mut first = settle((&many, 1), &operator, &mut audit).await?;
    println!("the first sync of a node of many resources: {first:?}");
    // The form was tried: each map was looked for. After a few such reads of the node loop it lists.
    first.assert("get configmaps", 12, 12 + 8);
    first.assert("list configmaps", 1, 2);
    until_synced(&operator, 20).await?;
    let idle = Requests::of(&audit.read().await?).without(&QUIET);
    assert!(idle.is_empty(), "a node of many resources: {idle:?}");
    Ok(())
}

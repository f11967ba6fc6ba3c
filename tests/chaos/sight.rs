//! The line on the screen: how the fleet stands, as anybody could see it. The verdict is the auditor's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::stage::{Stage, soon};

#[derive(Debug, Default)]
pub struct Sight {
    pub nodes: usize,
    pub held: usize,
    pub ready: usize,
    /// Not held, and the Deployment not rolled out.
    pub in_flight: usize,
    pub window: Value,
}

impl Sight {
    pub async fn of(stage: &Stage) -> Result<Sight> {
        let form = soon("form", stage.fleet.get("LynqForm", "web")).await?;
        let nodes = soon("nodes", stage.fleet.list("LynqNode")).await?;
        let deployments = soon("Deployments", stage.fleet.list("Deployment")).await?;
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        let done: BTreeMap<String, bool> = deployments
            .iter()
            .map(|d| (name(d), is_rolled_out(d)))
            .collect();
        let mut sight = Sight {
            nodes: nodes.len(),
            window: form["spec"]["rollout"]["maxSkew"].clone(),
            ..Sight::default()
        };
        for node in &nodes {
            let hash = |which: &str| &node["metadata"]["annotations"][which];
            let held = hash("lynq.sh/desired-hash") != hash("lynq.sh/live-hash");
            let row = name(node).trim_end_matches("-web").to_owned();
            let ready = done.get(&format!("{row}-app")).copied().unwrap_or(false);
            sight.held += usize::from(held);
            sight.ready += usize::from(ready);
            sight.in_flight += usize::from(!held && !ready);
        }
        Ok(sight)
    }
}

/// As `kubectl rollout status` says it.
fn is_rolled_out(deployment: &Value) -> bool {
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let status = &deployment["status"];
    let count = |field: &str| status[field].as_i64().unwrap_or_default();
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"]
            .into_iter()
            .all(|field| count(field) == wanted)
}

pub async fn show(stage: Arc<Stage>, started: Instant, every: Duration) {
    loop {
        let line = match Sight::of(&stage).await {
            Ok(s) => format!(
                "{:3} nodes, {:3} ready, {:3} held, {:2} in flight, window {}",
                s.nodes, s.ready, s.held, s.in_flight, s.window
            ),
            Err(_) => "the API server does not answer".to_owned(),
        };
        let (at, found) = (started.elapsed().as_secs(), stage.auditor.so_far());
        let faults = stage.under_way();
        println!("{at:5} s  {line:60} {found} violations; fault: {faults}");
        tokio::time::sleep(every).await;
    }
}

pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

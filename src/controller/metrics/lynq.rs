//! Metrics under Lynq's names, as its dashboards and alerts expect them. They are read at each scrape from what the watches
//! know, so that nothing is kept for them, and nothing stays of what is gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::api::conditions::Condition;
use crate::api::form::{FormRolloutStatus, Phase};
use crate::api::hub::HubStatus;
use crate::cluster::clock;
use crate::controller::World;
use crate::controller::partition::{PartitionMemory, SetKey};
use crate::decide::node::digest::NodeDigest;

pub struct LynqMetrics {
    pub world: Arc<World>,
    /// Whether there are series for each node.
    pub nodes: bool,
}

impl fmt::Debug for LynqMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LynqMetrics")
    }
}

type Label<'a> = (&'static str, &'a str);

/// 0, 1 and 2, as Lynq counts them.
fn number(condition: &Condition) -> i64 {
    match condition.status.as_str() {
        "False" => 0,
        "True" => 1,
        _ => 2,
    }
}

fn phase(phase: Phase) -> i64 {
    match phase {
        Phase::Idle => 0,
        Phase::InProgress | Phase::Paused => 1,
        Phase::Failed => 2,
        Phase::Complete => 3,
    }
}

/// One metric with its series.
fn gauge<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (L, i64)>,
) -> Result<(), fmt::Error> {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in series {
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Collector for LynqMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        hubs(&self.world, &mut encoder)?;
        forms(&self.world, &mut encoder)?;
        shards(&self.world, &mut encoder)?;
        queues(&self.world, &mut encoder)?;
        stuck(&self.world, &mut encoder)?;
        if self.nodes {
            nodes(&self.world, &mut encoder)?;
            stateful_sets(&self.world, &mut encoder)?;
        }
        Ok(())
    }
}

fn hubs(world: &World, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let mut hubs = world.hubs.all();
    hubs.retain(|hub| world.leads(&(hub.namespace.clone(), hub.name.clone())));
    let mut of_hubs = |name, help, value: fn(&HubStatus) -> Option<i32>| {
        let series = hubs.iter().map(|hub| {
            let labels = [("hub", hub.name.as_str()), ("namespace", &hub.namespace)];
            (labels, value(&hub.status).unwrap_or_default().into())
        });
        gauge(encoder, name, help, series)
    };
    of_hubs("hub_desired", "Nodes that there should be", |s| s.desired)?;
    of_hubs("hub_ready", "Nodes that are ready", |s| s.ready)?;
    of_hubs("hub_failed", "Nodes that failed", |s| s.failed)
}

fn forms(world: &World, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let mut forms = world.forms.all();
    forms.retain(|form| world.leads(&(form.namespace.clone(), form.hub_id.clone())));
    let mut of_forms = |name, help, value: fn(&FormRolloutStatus) -> i64| {
        let series = forms.iter().filter_map(|form| {
            let labels = [("form", form.name.as_str()), ("namespace", &form.namespace)];
            Some((labels, value(form.status.rollout.as_ref()?)))
        });
        gauge(encoder, name, help, series)
    };
    of_forms(
        "lynqform_rollout_updating_nodes",
        "Updated nodes that are not ready",
        |rollout| rollout.updating_nodes.into(),
    )?;
    of_forms(
        "lynqform_rollout_phase",
        "0 Idle, 1 InProgress, 2 Failed, 3 Complete",
        |rollout| phase(rollout.phase),
    )?;
    of_forms(
        "lynqform_rollout_progress",
        "Updated nodes that are ready, in percent",
        |rollout| {
            let ready = 100 * i64::from(rollout.ready_updated_nodes);
            ready.checked_div(rollout.total_nodes.into()).unwrap_or(100)
        },
    )
}

fn shards(world: &World, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let help =
        "Shards that this replica leads; without --shards there is one, which the leader leads";
    let led = i64::try_from(world.shards_led()).unwrap_or(i64::MAX);
    let series = [([("", ""); 0], led)].into_iter();
    gauge(encoder, "lynqgate_shards_led", help, series)
}

fn queues(world: &World, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let seconds = |waited: Duration| waited.as_secs() as i64;
    let queues = [
        ("lynqhub", world.hub_queue.depth(), world.hub_queue.waited()),
        (
            "lynqform",
            world.rollout_queue.depth(),
            world.rollout_queue.waited(),
        ),
        (
            "lynqnode",
            world.node_queue.depth(),
            world.node_queue.waited(),
        ),
        (
            "statefulset",
            world.partition_queue.depth(),
            world.partition_queue.waited(),
        ),
    ];
    let depths = queues.map(|(name, depth, _)| ([("name", name)], depth as i64));
    let help = "Objects that are due to be reconciled";
    gauge(encoder, "workqueue_depth", help, depths.into_iter())?;
    let waits = queues.map(|(name, _, waited)| ([("name", name)], seconds(waited)));
    let help = "How long the object has been due that waits longest";
    let name = "lynqgate_workqueue_oldest_seconds";
    gauge(encoder, name, help, waits.into_iter())
}

/// StatefulSets for which a person should look, whatever series there are: as a rule there is none.
fn stuck(world: &World, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let partitions = world.partitions.lock();
    let now = clock::now();
    let led = partitions.iter().filter(|(key, _)| world.leads(key));
    let series = led.filter_map(|((namespace, name), memory)| {
        let labels: [Label<'_>; 3] = [
            ("namespace", namespace),
            ("statefulset", name),
            ("reason", memory.stuck(now)?.code()),
        ];
        Some((labels, 1))
    });
    let help =
        "1 for each StatefulSet whose next pod could not be updated for two minutes, by the reason";
    gauge(encoder, "lynqgate_statefulset_stuck", help, series)
}

/// As MOCO names them.
fn stateful_sets(world: &World, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let partitions = world.partitions.lock();
    let labels = |(namespace, name): &SetKey| {
        [
            ("namespace", namespace.clone()),
            ("statefulset", name.clone()),
        ]
    };
    let mut of_sets = |name, help, value: fn(&PartitionMemory) -> i64| {
        let series = partitions
            .iter()
            .map(|(key, memory)| (labels(key), value(memory)));
        gauge(encoder, name, help, series)
    };
    of_sets(
        "lynqgate_statefulset_replicas",
        "Pods of the StatefulSet",
        |memory| memory.replicas,
    )?;
    of_sets(
        "lynqgate_statefulset_current_replicas",
        "Pods of its current revision",
        |memory| memory.current_replicas,
    )?;
    of_sets(
        "lynqgate_statefulset_updated_replicas",
        "Pods of its newest revision",
        |memory| memory.updated_replicas,
    )?;
    of_sets(
        "lynqgate_statefulset_last_partition_updated",
        "When lynqgate last lowered its partition, in seconds since 1970",
        |memory| memory.last_step.map_or(0, Timestamp::as_second),
    )?;
    let help = "Steps of its partition that the API server did not take, and that were tried again";
    let name = "lynqgate_statefulset_partition_update_retries";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (key, memory) in partitions.iter() {
        ConstCounter::new(memory.retries).encode(metric.encode_family(&labels(key))?)?;
    }
    Ok(())
}

fn of_node(node: &NodeDigest) -> [Label<'_>; 2] {
    [
        ("lynqnode", &node.key.name),
        ("namespace", &node.key.namespace),
    ]
}

fn nodes(world: &World, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let mut nodes = world.nodes.all();
    nodes.retain(|node| world.leads(&node.hub_key()));
    let mut of_nodes = |name, help, value: fn(&NodeDigest) -> i64| {
        let series = nodes.iter().map(|node| (of_node(node), value(node)));
        gauge(encoder, name, help, series)
    };
    of_nodes(
        "lynqnode_resources_ready",
        "Resources that are ready",
        |node| node.status.ready_resources.into(),
    )?;
    of_nodes(
        "lynqnode_resources_desired",
        "Resources of the live content",
        |node| node.status.desired_resources.into(),
    )?;
    of_nodes(
        "lynqnode_resources_failed",
        "Resources that failed",
        |node| node.status.failed_resources.into(),
    )?;
    of_nodes(
        "lynqnode_resources_conflicted",
        "Resources whose object, or a field of it, is somebody else's",
        |node| node.status.conflicted_resources.into(),
    )?;
    let conditions = || {
        nodes.iter().flat_map(|node| {
            let of_node = of_node(node);
            let conditions = node.status.conditions.iter();
            conditions.map(move |condition| (of_node, condition))
        })
    };
    gauge(
        encoder,
        "lynqnode_condition_status",
        "Conditions: 0 False, 1 True, 2 Unknown",
        conditions().map(|([name, namespace], condition)| {
            let labels: [Label<'_>; 3] = [name, namespace, ("type", &condition.type_)];
            (labels, number(condition))
        }),
    )?;
    let degraded = conditions().filter(|(_, c)| c.type_ == "Degraded" && c.status == "True");
    gauge(
        encoder,
        "lynqnode_degraded_status",
        "1 for each node that is degraded, by the reason",
        degraded.map(|([name, namespace], condition)| {
            let labels: [Label<'_>; 3] = [name, namespace, ("reason", &condition.reason)];
            (labels, 1)
        }),
    )?;
    let help = "Writes that met an object or a field of somebody else's";
    let mut metric =
        encoder.encode_descriptor("lynqnode_conflicts", help, None, MetricType::Counter)?;
    let conflicts = world.conflicts.lock();
    for (node, of_node) in conflicts.iter() {
        for ((kind, policy), times) in of_node {
            let labels: [Label<'_>; 4] = [
                ("lynqnode", &node.name),
                ("namespace", &node.namespace),
                ("resource_kind", kind),
                ("conflict_policy", policy.name()),
            ];
            ConstCounter::new(*times).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

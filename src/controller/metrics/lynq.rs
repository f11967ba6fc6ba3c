//! Metrics under Lynq's names, as its dashboards and alerts expect them. They are read at each scrape from what the watches
//! know, so that nothing is kept for them, and nothing stays of what is gone.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::api::conditions::Condition;
use crate::api::form::Phase;
use crate::controller::World;
use crate::decide::node::NodeDigest;

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

type Labels<'a> = Vec<(&'static str, &'a str)>;

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
        Phase::InProgress => 1,
        Phase::Failed => 2,
        Phase::Complete => 3,
    }
}

fn is_true(node: &NodeDigest, type_: &str) -> bool {
    let of_type = |c: &&Condition| c.type_ == type_;
    let condition = node.status.conditions.iter().find(of_type);
    condition.is_some_and(|c| c.status == "True")
}

/// One metric with its series.
fn gauge<'a>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    series: impl Iterator<Item = (Labels<'a>, i64)>,
) -> Result<(), fmt::Error> {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in series {
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Collector for LynqMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let encoder = &mut encoder;
        let hubs = self.world.hubs.all();
        let of_hubs = |value: fn(&crate::api::hub::HubStatus) -> Option<i32>| {
            hubs.iter().map(move |hub| {
                let labels = vec![
                    ("hub", hub.name.as_str()),
                    ("namespace", hub.namespace.as_str()),
                ];
                (labels, value(&hub.status).unwrap_or_default().into())
            })
        };
        gauge(
            encoder,
            "hub_desired",
            "Nodes that there should be",
            of_hubs(|s| s.desired),
        )?;
        gauge(
            encoder,
            "hub_ready",
            "Nodes that are ready",
            of_hubs(|s| s.ready),
        )?;
        gauge(
            encoder,
            "hub_failed",
            "Nodes that are not ready",
            of_hubs(|s| s.failed),
        )?;
        self.forms(encoder)?;
        match self.nodes {
            true => self.nodes(encoder),
            false => Ok(()),
        }
    }
}

impl LynqMetrics {
    fn forms(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let forms = self.world.forms.all();
        let rolling = || {
            forms.iter().filter_map(|form| {
                let labels = vec![
                    ("form", form.name.as_str()),
                    ("namespace", form.namespace.as_str()),
                ];
                Some((labels, form.status.rollout.as_ref()?))
            })
        };
        gauge(
            encoder,
            "lynqform_rollout_updating_nodes",
            "Updated nodes that are not ready",
            rolling().map(|(labels, rollout)| (labels, rollout.updating_nodes.into())),
        )?;
        gauge(
            encoder,
            "lynqform_rollout_phase",
            "0 Idle, 1 InProgress, 2 Failed, 3 Complete",
            rolling().map(|(labels, rollout)| (labels, phase(rollout.phase))),
        )?;
        gauge(
            encoder,
            "lynqform_rollout_progress",
            "Updated nodes that are ready, in percent",
            rolling().map(|(labels, rollout)| {
                let (ready, total) = (rollout.ready_updated_nodes, rollout.total_nodes);
                (
                    labels,
                    (100 * ready).checked_div(total).unwrap_or(100).into(),
                )
            }),
        )
    }

    fn nodes(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let nodes = self.world.nodes.all();
        let labels = |node: &'_ Arc<NodeDigest>| -> [(&'static str, String); 2] {
            [
                ("lynqnode", node.key.name.clone()),
                ("namespace", node.key.namespace.clone()),
            ]
        };
        let mut of_nodes = |name: &str, help: &str, value: fn(&NodeDigest) -> i64| {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for node in &nodes {
                ConstGauge::new(value(node)).encode(metric.encode_family(&labels(node))?)?;
            }
            Ok(())
        };
        of_nodes(
            "lynqnode_resources_ready",
            "Resources that are ready",
            |n| n.status.ready_resources.into(),
        )?;
        of_nodes(
            "lynqnode_resources_desired",
            "Resources of the live content",
            |n| n.status.desired_resources.into(),
        )?;
        of_nodes("lynqnode_resources_failed", "Resources that failed", |n| {
            n.status.failed_resources.into()
        })?;
        of_nodes(
            "lynqnode_resources_conflicted",
            "1 where objects are somebody else's",
            |n| is_true(n, "Conflicted").into(),
        )?;
        let mut metric = encoder.encode_descriptor(
            "lynqnode_condition_status",
            "Conditions: 0 False, 1 True, 2 Unknown",
            None,
            MetricType::Gauge,
        )?;
        for node in &nodes {
            for condition in &node.status.conditions {
                let [name, namespace] = labels(node);
                let labels = [name, namespace, ("type", condition.type_.clone())];
                ConstGauge::new(number(condition)).encode(metric.encode_family(&labels)?)?;
            }
        }
        let mut metric = encoder.encode_descriptor(
            "lynqnode_degraded_status",
            "1 for each node that is degraded, by the reason",
            None,
            MetricType::Gauge,
        )?;
        for node in &nodes {
            let degraded = |c: &&Condition| c.type_ == "Degraded" && c.status == "True";
            for condition in node.status.conditions.iter().filter(degraded) {
                let [name, namespace] = labels(node);
                let labels = [name, namespace, ("reason", condition.reason.clone())];
                ConstGauge::new(1i64).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

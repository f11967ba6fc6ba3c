//! Reads a StatefulSet and its pods once, for `lynqgate status` and `lynqgate explain`: which pod is updated next, or why none is.

use kube::api::ListParams;
use serde_json::Value;

use crate::cli::connection::{AnyError, Connected, Error};
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::clock;
use crate::cluster::objects::{ApiError, Objects};
use crate::controller::partition::{ObservedSet, waits_of};
use crate::controller::rollout::snapshot::is_forced;
use crate::decide::child::{ObjectKey, Owner, owner};
use crate::decide::node::digest::NodeDigest;
use crate::decide::partition;
use crate::decide::partition::explain::Explanation;
use crate::decide::partition::walk::{self, Around, Reason};
use crate::decide::readiness::obstacle;

pub async fn ask(cluster: &Connected, name: &str) -> Result<Explanation, AnyError> {
    let (objects, namespace) = (&cluster.objects, &cluster.namespace);
    let key = partition::key(namespace, name);
    let observed = ObservedSet::whole(objects, &key)
        .await
        .map_err(|reason| match reason {
            ApiError::NotFound(_) => Error::not_found("StatefulSet", namespace, name),
            reason => Error::Api {
                what: key.to_string(),
                reason,
            },
        })?;
    let node = owning_node(objects, &observed).await;
    let around = Around {
        forced: match &node {
            Some(node) => forces(objects, node).await,
            None => false,
        },
        node: None,
        probe: observed.unmet_probe(objects).await,
    };
    let step = walk::step(&observed.set, &observed.pods, &around, clock::now());
    let explanation = Explanation::of(
        namespace,
        (&observed.set, &observed.pods),
        &step,
        waits_of(&observed.object),
    );
    let found = match &step.reason {
        Reason::NotAvailable { pod } => obstacle_of(objects, namespace, pod).await,
        _ => None,
    };
    let form = node.as_ref().map(|node| node.form.as_str());
    Ok(match found {
        Some(found) => explanation.with_obstacle(&found, form),
        None => explanation,
    })
}

/// What keeps the pod from running, if its status says so.
async fn obstacle_of(objects: &Objects, namespace: &str, name: &str) -> Option<String> {
    // With the right to list pods, which the partition loop needs as well.
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let pods = objects.selected("Pod", namespace, params).await.ok()?;
    obstacle::of(&Value::Null, &pods)
}

/// A user who may not read the node sees what the StatefulSet says.
async fn owning_node(objects: &Objects, observed: &ObservedSet) -> Option<NodeDigest> {
    let Owner::Node { key, .. } = owner(&observed.object) else {
        return None;
    };
    let own = ObjectKey::own("LynqNode", &key.namespace, &key.name);
    let node = objects.get(&own).await.ok()?;
    Some(NodeDigest::of(&node, None))
}

/// Whether all changes of the node go live at once.
async fn forces(objects: &Objects, node: &NodeDigest) -> bool {
    let get = async |kind: &str, name: &str| {
        let own = ObjectKey::own(kind, &node.key.namespace, name);
        objects.get(&own).await.ok()
    };
    let form = get("LynqForm", &node.form).await;
    let hub = get("LynqHub", &node.hub).await;
    node.forced
        || form.is_some_and(|form| is_forced(&Form::of(&form).annotations))
        || hub.is_some_and(|hub| is_forced(&Hub::of(&hub).annotations))
}

//! Reads a StatefulSet and its pods once, for `lynqgate status` and `lynqgate explain`: which pod is updated next, or why none is.

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
use crate::decide::partition::walk::{self, Around};

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
    let around = Around {
        forced: forces(objects, &observed).await,
        node: None,
        probe: observed.unmet_probe(objects).await,
    };
    let step = walk::step(&observed.set, &observed.pods, &around, clock::now());
    Ok(Explanation::of(
        namespace,
        (&observed.set, &observed.pods),
        &step,
        waits_of(&observed.object),
    ))
}

/// Whether everything of the owning node goes at once. Who may not read the node sees what the StatefulSet says.
async fn forces(objects: &Objects, observed: &ObservedSet) -> bool {
    let Owner::Node { key, .. } = owner(&observed.object) else {
        return false;
    };
    let get = async |kind: &str, name: &str| {
        let own = ObjectKey::own(kind, &key.namespace, name);
        objects.get(&own).await.ok()
    };
    let Some(node) = get("LynqNode", &key.name).await else {
        return false;
    };
    let node = NodeDigest::of(&node, None);
    let form = get("LynqForm", &node.form).await;
    let hub = get("LynqHub", &node.hub).await;
    node.forced
        || form.is_some_and(|form| is_forced(&Form::of(&form).annotations))
        || hub.is_some_and(|hub| is_forced(&Hub::of(&hub).annotations))
}

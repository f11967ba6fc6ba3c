//! Looks after nodes of which it is not known what runs: Lynq left them, or something got past the gate. Their objects get the
//! label by which they are watched, and it is found out whether a release would change anything.

use serde_json::{Value, json};

use crate::api::names;
use crate::api::resource::Resource;
use crate::cluster::objects::ApiError;
use crate::controller::World;
use crate::controller::node::{Look, apply};
use crate::decide::child::{Child, Kind, NodeKey, ObjectKey, Scope, key_of, kind_of, object_key};
use crate::decide::gate::annotation;
use crate::decide::node::{NodeDigest, desired_content};
use crate::decide::node_plan::is_ours;
use crate::decide::rollout::Live;
use crate::decide::takeover::{self, Recorded, recorded};

impl Look<'_> {
    /// Once for each content that a hub rendered.
    pub async fn take_over(&mut self, node: &NodeDigest) -> Result<(), ApiError> {
        let concerned = node.live == Live::Unknown && node.rendered_hash.is_some();
        if !concerned {
            if self.memory.taken_over.take().is_some() {
                let mut found = self.world.unchanged.lock().expect("the takeovers' lock");
                found.remove(&self.key);
            }
            return Ok(());
        }
        if self.memory.taken_over.as_ref() == Some(&node.desired) {
            return Ok(());
        }
        let object = self.world.objects.get(&self.own()).await?;
        let Some(unchanged) = changes_nothing(self.world, node, &object).await? else {
            return Ok(());
        };
        let left = names::LEFT_BY_LYNQ
            .iter()
            .filter(|name| annotation(&object, name).is_some());
        let left: serde_json::Map<String, Value> =
            left.map(|name| ((*name).to_owned(), Value::Null)).collect();
        if !left.is_empty() {
            let patch = json!({"metadata": {"annotations": left}});
            let written = self.world.objects.merge(&self.own(), &patch).await?;
            self.world.nodes.learn(&written);
        }
        {
            let mut found = self.world.unchanged.lock().expect("the takeovers' lock");
            found.insert(self.key.clone(), (node.desired.clone(), unchanged));
        }
        let hub = (self.key.namespace.clone(), node.hub.clone());
        self.world.rollout_queue.add(hub);
        self.memory.taken_over = Some(node.desired.clone());
        Ok(())
    }
}

/// The same once more, right before such a release: somebody may have changed the objects since.
pub async fn still_changes_nothing(world: &World, key: &NodeKey) -> Result<bool, ApiError> {
    let Some(node) = world.nodes.get(key) else {
        return Ok(false);
    };
    let own = ObjectKey::own("LynqNode", &key.namespace, &key.name);
    let object = world.objects.get(&own).await?;
    let unchanged = changes_nothing(world, &node, &object).await? == Some(true);
    if !unchanged {
        let mut found = world.unchanged.lock().expect("the takeovers' lock");
        found.insert(key.clone(), (node.desired.clone(), false));
    }
    Ok(unchanged)
}

/// Whether the release of the node's desired content would change none of its objects; None if the content is another by now.
/// What is the node's gets the label by which it is watched.
async fn changes_nothing(
    world: &World,
    node: &NodeDigest,
    object: &Value,
) -> Result<Option<bool>, ApiError> {
    let Some(content) = desired_content(object, &node.desired) else {
        return Ok(None);
    };
    let mut unchanged = true;
    let mut named = vec![];
    for resource in content.iter() {
        match adopt(world, node, resource).await? {
            Some((key, same)) => {
                unchanged &= same;
                named.push(key);
            }
            None => unchanged = false,
        }
    }
    // What the content does not name any more goes with the release.
    for recorded in recorded(&node.status) {
        if recorded.is_template() {
            continue;
        }
        if recorded.api_versions.is_empty() {
            unchanged &= recorded.is_among(&named);
        }
        for api_version in &recorded.api_versions {
            unchanged &= !is_left(world, node, (&recorded, api_version), &named).await?;
        }
    }
    Ok(Some(unchanged))
}

/// The key of the resource's object, and whether applying it would change nothing; None where it cannot be applied.
async fn adopt(
    world: &World,
    node: &NodeDigest,
    resource: &Resource,
) -> Result<Option<(ObjectKey, bool)>, ApiError> {
    let kind = kind_of(&resource.spec);
    if !resource.render_error.is_empty() || kind.impossible().is_some() {
        return Ok(None);
    }
    let Some(served) = world.objects.served(&kind).await? else {
        return Ok(None);
    };
    let client = &world.objects.client;
    world.children.watch(&kind, &served, client);
    let key = object_key(resource, &node.key, served.scope);
    if key.impossible().is_some() {
        return Ok(None);
    }
    let live = match world.objects.get(&key).await {
        Ok(live) if is_ours(&Child::of(&live), node) && !Child::of(&live).deleting => live,
        Ok(_) | Err(ApiError::NotFound(_) | ApiError::Refused(_)) => return Ok(Some((key, false))),
        Err(error) => return Err(error),
    };
    label(world, &live).await?;
    let same = match apply::dry_run(world, node, resource, &key).await {
        Ok(applied) => takeover::changes_nothing(&live, &applied),
        Err(error @ ApiError::Unavailable(_)) => return Err(error),
        Err(_) => false,
    };
    Ok(Some((key, same)))
}

/// Whether a recorded object that is not named any more is there and the node's, as far as anybody may see it.
async fn is_left(
    world: &World,
    node: &NodeDigest,
    (recorded, api_version): (&Recorded, &str),
    named: &[ObjectKey],
) -> Result<bool, ApiError> {
    let kind = Kind {
        api_version: api_version.to_owned(),
        kind: recorded.kind.clone(),
    };
    let Some(served) = world.objects.served(&kind).await? else {
        return Ok(false);
    };
    let namespace = match served.scope {
        Scope::Cluster => String::new(),
        Scope::Namespaced => recorded.namespace.clone(),
    };
    let key = ObjectKey {
        kind,
        namespace,
        name: recorded.name.clone(),
    };
    if key.impossible().is_some() || named.iter().any(|named| named.is_same(&key)) {
        return Ok(false);
    }
    match world.objects.get(&key).await {
        Ok(live) if is_ours(&Child::of(&live), node) => {
            label(world, &live).await?;
            Ok(true)
        }
        Ok(_) | Err(ApiError::NotFound(_)) => Ok(false),
        Err(ApiError::Refused(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

async fn label(world: &World, live: &Value) -> Result<(), ApiError> {
    let metadata = &live["metadata"];
    if metadata["labels"][names::LABEL_MANAGED] == names::TRUE {
        return Ok(());
    }
    let key = key_of(live);
    let asked = world.children.asked(&key.kind);
    let patch = json!({"metadata": {
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
        "labels": {names::LABEL_MANAGED: names::TRUE},
    }});
    match world.objects.merge(&key, &patch).await {
        Ok(labelled) => drop(world.children.learn(&labelled, asked)),
        // What it is in the way of is said once it is released.
        Err(ApiError::NotFound(_) | ApiError::Refused(_)) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

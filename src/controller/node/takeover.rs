//! Looks after nodes of which it is not known what runs: Lynq left them, or something got past the gate. Their objects get the
//! label by which they are watched, and it is found out whether a release would change anything.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::names;
use crate::api::resource::Resource;
use crate::api::stamp;
use crate::cluster::objects::{ApiError, Objects, Served};
use crate::controller::World;
use crate::controller::node::{NodeReconciler, apply};
use crate::decide::child::{
    Child, Kind, NodeKey, ObjectKey, Owner, Scope, key_of, kind_of, object_key,
};
use crate::decide::node::digest::{NodeDigest, desired_content};
use crate::decide::node::plan::ownership::{is_ours, refused};
use crate::decide::node::plan::{missing_kind, twice};
use crate::decide::node::takeover::left::left;
use crate::decide::node::takeover::{self, Effect, Recorded, recorded};
use crate::decide::rollout::{Live, Way};

impl NodeReconciler<'_> {
    /// Once for each content that a hub rendered.
    pub async fn take_over(&mut self, node: &NodeDigest) -> Result<(), ApiError> {
        let concerned = node.live == Live::Unknown && node.rendered_hash.is_some();
        if !concerned {
            if self.memory.taken_over.take().is_some() {
                let mut found = self.world.unchanged.lock();
                found.remove(&self.key);
            }
            if node.live != Live::Unknown
                && node.rendered_hash.is_some()
                && let Err(error) = self.forget_row(node).await
            {
                // No reason not to look after what runs.
                tracing::warn!(node = %node.key, %error, "the row that Lynq left could not be removed");
            }
            return Ok(());
        }
        if self.memory.taken_over.as_ref() == Some(&node.desired) {
            return self.forget_row(node).await;
        }
        let object = self.world.objects.get(&self.own()).await?;
        let Some(unchanged) = changes_nothing(self.world, node, &object).await? else {
            return Ok(());
        };
        self.forget_row(node).await?;
        {
            let mut found = self.world.unchanged.lock();
            found.insert(self.key.clone(), (node.desired.clone(), unchanged));
        }
        let hub = node.hub_key();
        self.world.rollout_queue.add(hub);
        self.memory.taken_over = Some(node.desired.clone());
        Ok(())
    }

    /// Where it stays, an edit by hand is taken for Lynq's. The gate lets a forced node go at this write.
    async fn forget_row(&mut self, node: &NodeDigest) -> Result<(), ApiError> {
        if !node.bears_lynqs_row {
            return Ok(());
        }
        let row = names::LYNQS_ROW.map(|name| (name.to_owned(), Value::Null));
        let row = serde_json::Map::from_iter(row);
        let patch = json!({"metadata": {
            "uid": node.uid, "resourceVersion": node.resource_version, "annotations": row,
        }});
        let written = self.world.objects.merge(&self.own(), &patch).await?;
        let written = self.world.nodes.learn(&written);
        if node.held() && !written.held() {
            self.memory.report.went_by_force();
            let hub = node.hub_key();
            let since = node.held_since.as_deref().and_then(stamp::parse);
            let metrics = &self.world.metrics;
            metrics.released(&hub, &node.form, Way::Forced, since);
        }
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
        let mut found = world.unchanged.lock();
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
    let objects = &world.objects;
    let watch = |kind: &Kind, served: &Served| world.children.watch(kind, served, objects);
    let Some(foreseen) = foresee(objects, node, object, watch).await? else {
        return Ok(None);
    };
    for live in &foreseen.own {
        label(world, node, live).await?;
    }
    Ok(Some(foreseen.effects.is_empty()))
}

/// What the release of a node's desired content would do to its objects.
#[derive(Default)]
pub struct Foreseen {
    pub effects: Vec<Effect>,
    /// Those that are there and the node's.
    own: Vec<Value>,
}

/// None if the desired content is another than this one by now. Writes nothing; `before` hears of each kind before its objects
/// are read.
pub async fn foresee(
    objects: &Objects,
    node: &NodeDigest,
    object: &Value,
    before: impl Fn(&Kind, &Served),
) -> Result<Option<Foreseen>, ApiError> {
    let Some(content) = desired_content(object, &node.desired) else {
        return Ok(None);
    };
    let mut foreseen = Foreseen::default();
    let (mut named, mut unplaced) = (vec![], vec![]);
    // What does not render has no name by which its object could be told from the others: then none goes.
    let all_render = content
        .iter()
        .all(|resource| resource.render_error.is_empty());
    for resource in content.iter() {
        let key = match place(objects, resource, node, &before).await? {
            Ok(key) => key,
            Err(why) => {
                foreseen.unclear(&resource.id, why);
                unplaced.push(object_key(resource, &node.key, Scope::Namespaced));
                continue;
            }
        };
        if named.iter().any(|named: &ObjectKey| named.is_same(&key)) {
            foreseen.unclear(&resource.id, twice(&key));
            continue;
        }
        foreseen.applied(objects, node, resource, &key).await?;
        named.push(key);
    }
    // What the content does not name any more goes with the release.
    for recorded in recorded(&node.status) {
        if recorded.is_template() {
            if !all_render {
                continue;
            }
            let key = named.iter().find(|key| recorded.may_be(key));
            let makes =
                |key: &&ObjectKey| foreseen.effects.contains(&Effect::Makes((*key).clone()));
            if key.is_none_or(|key| makes(&key)) {
                let why = "Lynq recorded it in a namespace from a template, and the form does not name it there any more. If it exists, it stays: \
                           delete it by hand";
                foreseen.unclear(&recorded.to_string(), why.to_owned());
            }
            continue;
        }
        let is_named = recorded.is_among(&named) || recorded.is_among(&unplaced);
        if recorded.api_versions.is_empty() && all_render && !is_named {
            let why = "the node's status names it, and the form does not; it may be deleted";
            foreseen.unclear(&recorded.to_string(), why.to_owned());
        }
        for api_version in &recorded.api_versions {
            let Some(key) = place_of(objects, &recorded, api_version).await? else {
                continue;
            };
            if let Some(served) = objects.known(&key.kind) {
                before(&key.kind, &served);
            }
            if !named.iter().any(|named| named.is_same(&key)) {
                foreseen.left(objects, node, key, all_render).await?;
            }
        }
    }
    Ok(Some(foreseen))
}

/// The key of the resource's object, or why there can be none.
pub async fn place(
    objects: &Objects,
    resource: &Resource,
    node: &NodeDigest,
    before: impl Fn(&Kind, &Served),
) -> Result<Result<ObjectKey, String>, ApiError> {
    if !resource.render_error.is_empty() {
        return Ok(Err(resource.render_error.clone()));
    }
    let kind = kind_of(&resource.spec);
    if let Some(why) = kind.impossible() {
        return Ok(Err(why));
    }
    let Some(served) = objects.served(&kind).await? else {
        return Ok(Err(missing_kind(&kind)));
    };
    before(&kind, &served);
    let key = object_key(resource, &node.key, served.scope);
    Ok(match key.impossible() {
        None => Ok(key),
        Some(why) => Err(why),
    })
}

/// The key of a recorded object; None where there can be none.
pub async fn place_of(
    objects: &Objects,
    recorded: &Recorded,
    api_version: &str,
) -> Result<Option<ObjectKey>, ApiError> {
    let kind = Kind {
        api_version: api_version.to_owned(),
        kind: recorded.kind.clone(),
    };
    if kind.impossible().is_some() {
        return Ok(None);
    }
    let Some(served) = objects.served(&kind).await? else {
        return Ok(None);
    };
    let key = recorded.key(kind, served.scope);
    Ok(Some(key).filter(|key| key.impossible().is_none()))
}

impl Foreseen {
    fn unclear(&mut self, what: &str, why: String) {
        let what = what.to_owned();
        self.effects.push(Effect::Unclear { what, why });
    }

    /// Of an object that the content names.
    async fn applied(
        &mut self,
        objects: &Objects,
        node: &NodeDigest,
        resource: &Resource,
        key: &ObjectKey,
    ) -> Result<(), ApiError> {
        let live = match objects.get(key).await {
            Ok(live) => live,
            Err(ApiError::NotFound(_)) => {
                self.effects.push(Effect::Makes(key.clone()));
                return Ok(());
            }
            Err(ApiError::Refused(why)) => {
                self.unclear(&key.to_string(), why);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let child = Child::of(&live);
        let (ours, orphaned) = (is_ours(&child, node), child.orphaned);
        let why = match *child.owner {
            _ if child.deleting => Some("it is being deleted".to_owned()),
            _ if ours => None,
            Owner::Nobody => refused(&child, node, resource.conflict_policy, false),
            Owner::Node { .. } | Owner::Other(_) => Some("it is not this node's".to_owned()),
        };
        if let Some(why) = why {
            self.unclear(&key.to_string(), why);
            return Ok(());
        }
        match apply::dry_run(objects, node, (resource, key), false).await {
            Ok(applied) => {
                let (object, fields) = (key.clone(), takeover::changed(&live, &applied));
                if !ours {
                    self.effects.push(Effect::Takes {
                        object,
                        orphaned,
                        fields,
                    });
                } else if !fields.is_empty() {
                    self.effects.push(Effect::Changes { object, fields });
                }
            }
            Err(error @ ApiError::Unavailable(_)) => return Err(error),
            Err(error) => self.unclear(&key.to_string(), error.to_string()),
        }
        if ours {
            self.own.push(live);
        }
        Ok(())
    }

    /// Of one that the node's status names, and the content does not, as far as it renders.
    async fn left(
        &mut self,
        objects: &Objects,
        node: &NodeDigest,
        key: ObjectKey,
        goes: bool,
    ) -> Result<(), ApiError> {
        match objects.get(&key).await {
            Ok(live) if is_ours(&Child::of(&live), node) => {
                let goes = goes.then(|| match Child::of(&live).retain {
                    true => Effect::Leaves(key),
                    false => Effect::Deletes(key),
                });
                self.own.push(live);
                self.effects.extend(goes);
                Ok(())
            }
            Ok(_) | Err(ApiError::NotFound(_)) => Ok(()),
            Err(ApiError::Refused(why)) => {
                self.unclear(&key.to_string(), why);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The objects of a node that is being deleted before it was taken over.
#[derive(Default)]
pub struct NotTakenOver {
    pub children: BTreeMap<ObjectKey, Child>,
    /// The same, and whether its content says that they are to stay.
    pub named: BTreeMap<ObjectKey, bool>,
    /// What cannot be read, and why.
    pub unread: Vec<String>,
    /// What is recorded and nobody can find, and why.
    pub unclear: Vec<String>,
}

/// What Lynq applied for the node has no label by which it would be known: it is read, and gets one, so that its end is seen.
pub async fn not_taken_over(world: &World, node: &NodeDigest) -> Result<NotTakenOver, ApiError> {
    let mut found = NotTakenOver::default();
    if !node.is_not_taken_over() {
        return Ok(found);
    }
    let own = ObjectKey::own("LynqNode", &node.key.namespace, &node.key.name);
    let left = left(&world.objects.get(&own).await?, node);
    found.unclear = left.unclear;
    for (recorded, retain) in left.objects {
        for api_version in &recorded.api_versions {
            let key = place_of(&world.objects, &recorded, api_version).await?;
            let known = |key: &ObjectKey| found.children.keys().any(|known| known.is_same(key));
            let Some(key) = key.filter(|key| !known(key)) else {
                continue;
            };
            let live = match world.objects.get(&key).await {
                Ok(live) => live,
                Err(ApiError::NotFound(_)) => continue,
                Err(ApiError::Refused(why)) => {
                    found.unread.push(why);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut child = Child::of(&live);
            if !is_ours(&child, node) {
                continue;
            }
            if let Some(served) = world.objects.known(&key.kind) {
                (world.children).watch(&key.kind, &served, &world.objects);
            }
            if !child.deleting {
                child = label(world, node, &live).await?;
            }
            found.named.insert(key.clone(), retain);
            found.children.insert(key, child);
        }
    }
    Ok(found)
}

async fn label(world: &World, node: &NodeDigest, live: &Value) -> Result<Child, ApiError> {
    let metadata = &live["metadata"];
    let key = key_of(live);
    let asked = world.children.asked(&key.kind);
    if metadata["labels"][names::LABEL_MANAGED] == names::TRUE {
        return Ok(Child::clone(&world.children.learn(live, asked)));
    }
    let mut patch = json!({"metadata": {
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
        "labels": {names::LABEL_MANAGED: names::TRUE},
    }});
    if key.namespace.is_empty() {
        patch["metadata"]["labels"][names::LABEL_NODE_NAMESPACE] = json!(node.key.namespace);
    }
    match world.objects.merge(&key, &patch).await {
        Ok(labelled) => {
            world.children.learn(&labelled, asked);
            Ok(Child::of(&labelled))
        }
        // What it is in the way of is said once it is released.
        Err(ApiError::NotFound(_) | ApiError::Refused(_) | ApiError::Invalid { .. }) => {
            Ok(Child::of(live))
        }
        Err(error) => Err(error),
    }
}

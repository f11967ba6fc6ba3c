//! Looks after nodes of which it is not known what runs: Lynq left them, or something got past the gate. Their objects get the
//! label by which they are watched, and it is found out whether a release would change anything.

use serde_json::{Value, json};

use crate::api::names;
use crate::api::resource::Resource;
use crate::cluster::objects::ApiError;
use crate::controller::node::{Look, apply};
use crate::decide::child::{Child, ObjectKey, key_of, kind_of, object_key};
use crate::decide::gate::annotation;
use crate::decide::node::{NodeDigest, desired_content};
use crate::decide::node_plan::is_ours;
use crate::decide::rollout::Live;
use crate::decide::takeover::{changes_nothing, recorded};

impl Look<'_> {
    /// Once for each content that a hub rendered.
    pub async fn take_over(&mut self, node: &NodeDigest) -> Result<(), ApiError> {
        let concerned = node.live == Live::Unknown && node.rendered_hash.is_some();
        if !concerned || self.memory.taken_over.as_ref() == Some(&node.desired) {
            return Ok(());
        }
        let object = self.world.objects.get(&self.own()).await?;
        let Some(content) = desired_content(&object, &node.desired) else {
            return Ok(());
        };
        let mut unchanged = true;
        for resource in content.iter() {
            unchanged &= self.adopt(node, resource).await?;
        }
        for key in recorded(&node.status) {
            if let Some(live) = self.find(node, &key).await? {
                self.label(&live).await?;
            }
        }
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

    /// Whether applying the resource would change nothing.
    async fn adopt(&self, node: &NodeDigest, resource: &Resource) -> Result<bool, ApiError> {
        let kind = kind_of(&resource.spec);
        if !resource.render_error.is_empty() || kind.impossible().is_some() {
            return Ok(false);
        }
        let Some(served) = self.world.objects.served(&kind).await? else {
            return Ok(false);
        };
        let client = &self.world.objects.client;
        self.world.children.watch(&kind, &served, client);
        let key = object_key(resource, &node.key, served.scope);
        if key.impossible().is_some() {
            return Ok(false);
        }
        let Some(live) = self.find(node, &key).await? else {
            return Ok(false);
        };
        self.label(&live).await?;
        match apply::dry_run(self.world, node, resource, &key).await {
            Ok(applied) => Ok(changes_nothing(&live, &applied)),
            Err(error @ ApiError::Unavailable(_)) => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// The object, if there is one and it is the node's.
    async fn find(&self, node: &NodeDigest, key: &ObjectKey) -> Result<Option<Value>, ApiError> {
        match self.world.objects.get(key).await {
            Ok(live) if is_ours(&Child::of(&live), node) => Ok(Some(live)),
            Ok(_) | Err(ApiError::NotFound(_) | ApiError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn label(&self, live: &Value) -> Result<(), ApiError> {
        let metadata = &live["metadata"];
        if metadata["labels"][names::LABEL_MANAGED] == names::TRUE {
            return Ok(());
        }
        let key = key_of(live);
        let asked = self.world.children.asked(&key.kind);
        let patch = json!({"metadata": {
            "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            "labels": {names::LABEL_MANAGED: names::TRUE},
        }});
        match self.world.objects.merge(&key, &patch).await {
            Ok(labelled) => drop(self.world.children.learn(&labelled, asked)),
            // What it is in the way of is said once it is released.
            Err(ApiError::NotFound(_) | ApiError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

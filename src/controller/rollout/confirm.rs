//! The live reads before slots are freed.

use std::collections::BTreeSet;

use futures::future::join_all;

use crate::cluster::objects::ApiError;
use crate::controller::node::confirm::confirm_ready;
use crate::controller::rollout::{REQUESTS_MAX, RolloutReconciler};
use crate::decide::child::{NodeKey, ObjectKey};
use crate::decide::rollout::{Confirm, Confirmation};

impl RolloutReconciler<'_> {
    /// Live reads for the slots that look free; also whether some of them are not.
    pub async fn confirm(&self, confirm: &[Confirm]) -> (BTreeSet<Confirmation>, bool) {
        let (mut confirmed, mut unconfirmed) = (BTreeSet::new(), false);
        for some in confirm.chunks(REQUESTS_MAX) {
            let asked: Vec<_> = some.iter().map(|one| self.confirm_one(one)).collect();
            for answer in join_all(asked).await {
                unconfirmed |= answer.is_none();
                confirmed.extend(answer);
            }
        }
        (confirmed, unconfirmed)
    }

    async fn confirm_one(&self, confirm: &Confirm) -> Option<Confirmation> {
        let asked = self.world.nodes.asked();
        match confirm {
            Confirm::Gone { node, uid } => match self
                .world
                .objects
                .get(&ObjectKey::own("LynqNode", &self.key.0, node))
                .await
            {
                Err(ApiError::NotFound(_)) => Some(Confirmation::Gone { uid: uid.clone() }),
                Ok(object) if object["metadata"]["uid"] != uid.as_str() => {
                    Some(Confirmation::Gone { uid: uid.clone() })
                }
                Ok(object) => {
                    // What is another hub's by now is counted there.
                    let node = self.world.nodes.learn_new(&object, asked);
                    (node.hub != self.key.1).then(|| Confirmation::Gone { uid: uid.clone() })
                }
                Err(_) => None,
            },
            Confirm::Ready {
                node,
                uid,
                resource_version,
            } => {
                let key = NodeKey::new(self.key.0.as_str(), node.as_str());
                let digest = self
                    .world
                    .nodes
                    .get(&key)
                    .filter(|n| n.uid == *uid && n.resource_version == *resource_version)?;
                let ready = confirm_ready(self.world, &digest).await;
                let ready = ready.unwrap_or_else(|error| {
                    tracing::warn!(node, %error, "whether it is ready could not be read, so that it keeps its slot; it is tried again");
                    false
                });
                ready.then(|| Confirmation::Ready {
                    uid: uid.clone(),
                    resource_version: resource_version.clone(),
                })
            }
        }
    }
}

//! The live reads before a slot is freed, as `controller::node::confirm` makes them.

use lynqgate::decide::rollout::{Confirm, Confirmation, Live};
use lynqgate_plants::Plant;

use crate::cluster::Refused;
use crate::operator::Asked;
use crate::operator::release_loop::{Go, Look, Sent};
use crate::request::{Reply, Request};
use crate::world::World;

impl Look {
    pub(super) fn confirm_one(&mut self, world: &mut World, p: usize, confirm: Confirm) -> Go {
        match &confirm {
            Confirm::Gone { node, uid } => {
                if world.planted(Plant::FreeGoneByCache) {
                    self.confirmed
                        .insert(Confirmation::Gone { uid: uid.clone() });
                    return Go::On;
                }
                let request = Request::ReadNode { name: node.clone() };
                let asked = world.processes[p].asked();
                self.ask(world, p, request, Sent::Confirm(confirm, asked))
            }
            Confirm::Ready {
                node,
                uid,
                resource_version,
            } => {
                let known = world.processes[p].nodes.get(node);
                let same =
                    known.is_some_and(|n| n.uid == *uid && n.resource_version == *resource_version);
                if !same {
                    self.unconfirmed = true;
                    return Go::On;
                }
                // Without workloads there is nothing to read.
                let nothing =
                    known.is_some_and(|node| node.facts.is_empty() && node.live != Live::Unknown);
                if nothing
                    || world.planted(Plant::FreeUnconfirmed)
                    || world.planted(Plant::FreeUnheld)
                {
                    let (uid, resource_version) = (uid.clone(), resource_version.clone());
                    self.confirmed.insert(Confirmation::Ready {
                        uid,
                        resource_version,
                    });
                    return Go::On;
                }
                let request = Request::ReadChild { name: node.clone() };
                let asked = world.processes[p].asked();
                self.ask(world, p, request, Sent::Confirm(confirm, asked))
            }
        }
    }

    pub(super) fn confirmed_by(
        &mut self,
        world: &mut World,
        p: usize,
        (confirm, asked): (Confirm, Asked),
        reply: Result<Reply, Refused>,
    ) {
        let process = &mut world.processes[p];
        let confirmation = match confirm {
            Confirm::Gone { uid, .. } => match reply {
                Err(Refused::NotFound) if world.settings.mutant == Some(Plant::NeverFree) => None,
                Err(Refused::NotFound) => Some(Confirmation::Gone { uid }),
                Ok(Reply::Node(node)) if node.digest.uid != uid => Some(Confirmation::Gone { uid }),
                Ok(Reply::Node(node)) => {
                    process.learn_node(&node.digest);
                    None
                }
                _ => None,
            },
            // `node::confirm_ready`
            Confirm::Ready {
                node,
                uid,
                resource_version,
            } => match reply {
                Ok(Reply::Child(child)) => {
                    let facts = process
                        .nodes
                        .get(&node)
                        .map(|n| n.facts.clone())
                        .unwrap_or_default();
                    if process.learn_child(&child, asked) {
                        process.node_loop.wake(&node, world.time);
                    }
                    let current = facts.iter().all(|facts| facts.hash == child.applied_hash);
                    (current && child.ready).then_some(Confirmation::Ready {
                        uid,
                        resource_version,
                    })
                }
                Err(Refused::NotFound) => {
                    let known = process.nodes.get(&node);
                    let unknown = known.is_some_and(|node| node.live == Live::Unknown);
                    unknown.then_some(Confirmation::Ready {
                        uid,
                        resource_version,
                    })
                }
                _ => None,
            },
        };
        self.unconfirmed |= confirmation.is_none();
        self.confirmed.extend(confirmation);
    }
}

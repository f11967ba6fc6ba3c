//! The witness: computes from the objects that are stored, and from nothing that the operator believes, whether the invariants of
//! the design hold. It reads JSON by itself and shares no decision with the library.

mod ledger;
mod plans;
mod read;
mod reverts;
mod windows;

use std::collections::{BTreeMap, BTreeSet};

use lynqgate::api::hub::Slot;
use lynqgate::api::policy::{Rollout, Skew};
use serde_json::Value;

use crate::api::requests::Verb;
use crate::api::store::{DEPLOYMENT, FORM, HUB, NODE, Object};
use read::is_forced;
pub use read::{
    FormView, NodeView, Workload, asks_for_reverts, held, image_of_form, is_in_phase, live_image,
    text, version,
};
use reverts::Reverts;
use windows::{History, Policy};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub text: String,
}

/// One life of one process: after a restart it is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LifeId {
    pub process: usize,
    pub boot: u32,
}

/// Since which revision the caches hold that a plan was made on, and whether nothing was missing in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub since: u64,
    /// Since which revision the hub and its forms said what its sender knew of them when it sent the request.
    pub said: u64,
    pub current: bool,
}

/// Who of the operator's processes asks, on what view, and for what.
#[derive(Clone, Copy, Debug)]
pub struct Author {
    pub life: LifeId,
    pub view: View,
    /// At which revision it had planned the node's last release when it sent the request.
    pub planned: u64,
    pub verb: Verb,
    /// For the review of a form or a hub.
    pub for_review: bool,
    /// It arrives for a node that is gone.
    pub for_gone: bool,
}

/// A node whose live content changed and that has not been settled since.
#[derive(Clone, Debug)]
struct Flight {
    name: String,
    form: String,
    cause: Cause,
    /// The widest window that was in force between the plan's view and the release: the form's, the hub's.
    allowed: Widths,
    /// By a slot that is for a repair.
    repair: bool,
    /// Repairs had a window of their own when it was released (`skewCounts: Released`).
    apart: bool,
    /// Or when one was that its slot was taken for, and that this one replaces.
    was_apart: bool,
}

/// Of a form and of its hub; None: unlimited.
type Widths = (Option<usize>, Option<usize>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Gated,
    Ungated,
    Forced,
}

/// What figures a run yields, beside its verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub steps: u64,
    pub releases: u64,
    pub peak: usize,
    /// How often the operator set a form back.
    pub reverts: u64,
}

#[derive(Default)]
pub struct Witness {
    pub nodes: BTreeMap<String, NodeView>,
    pub children: BTreeMap<String, Workload>,
    pub forms: BTreeMap<String, FormView>,
    pub slots: Vec<Slot>,
    /// Which uids of rows a life's last sync saw.
    pub rows: BTreeMap<LifeId, BTreeSet<String>>,
    /// Which of them the last sync of any life saw.
    pub newest_rows: BTreeSet<String>,
    pub violation: Option<Violation>,
    pub figures: Figures,
    history: History,
    /// The windows in which the slots of the ledger were taken, by uid.
    taken: BTreeMap<String, Widths>,
    /// Whose slots were in a ledger that was lost, until there is another; by uid.
    lost: Option<BTreeSet<String>>,
    /// The gate does not see the write that is seen now.
    pub past_gate: bool,
    /// Nodes of which nobody knows what is live: Lynq left them, or content got past the gate; by uid.
    unknown: BTreeSet<String>,
    /// What a life has read of a node's workload last: what it runs, and at which revision.
    read: BTreeMap<(LifeId, String), (u64, String)>,
    /// Nodes about which a request of a life failed, by name.
    failed: BTreeSet<(LifeId, String)>,
    /// By uid of the node.
    flights: BTreeMap<String, Flight>,
    /// Every content that was ever live on a node, by uid.
    live: BTreeMap<String, BTreeSet<String>>,
    /// Nodes that were let go through a slot, and whose slot has not been freed since; by uid.
    released: BTreeSet<String>,
    /// Who has read of which of those that its workload is ready, since it was let go.
    read_ready: BTreeSet<(LifeId, String)>,
    /// Acknowledged ledger writes: who wrote which slot (uid, hash, version).
    acknowledged: BTreeSet<(LifeId, String, String, String)>,
    reverts: Reverts,
}

impl Witness {
    pub fn fail(&mut self, invariant: &'static str, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation {
                invariant,
                text: text(),
            });
        }
    }

    fn expect(&mut self, holds: bool, invariant: &'static str, text: impl FnOnce() -> String) {
        if !holds {
            self.fail(invariant, text);
        }
    }

    /// Something was written; by the operator, or by somebody else.
    pub fn saw(
        &mut self,
        revision: u64,
        kind: usize,
        (before, now): (Option<&Object>, Option<&Object>),
        author: Option<Author>,
    ) {
        let Some(object) = now.or(before) else {
            return;
        };
        let name = object.text_of("name").to_owned();
        match (kind, now) {
            (NODE, Some(now)) => {
                let node = NodeView::of(now);
                self.note_live(&node);
                self.nodes.insert(name, node);
                self.node_written(revision, before, now, author);
            }
            (NODE, None) => {
                self.nodes.remove(&name);
                self.node_gone(revision, object.uid());
            }
            (DEPLOYMENT, Some(now)) => {
                let new = Workload::of(now);
                let old = self.children.insert(name.clone(), new.clone());
                match author {
                    Some(Author {
                        view,
                        verb: Verb::Apply | Verb::Create | Verb::Replace,
                        for_gone: false,
                        ..
                    }) => self.child_applied(old.as_ref(), &new, view),
                    _ => self.look_at(&name),
                }
            }
            (DEPLOYMENT, None) => drop(self.children.remove(&name)),
            (FORM, now) => {
                if let Some(now) = now {
                    self.form_written(before, now, author.is_some());
                }
                self.form_changed(revision, &name, now)
            }
            (HUB, Some(now)) => {
                let rollout = &now.value["spec"]["rollout"];
                let skew = rollout["maxSkew"].clone();
                let skew: Skew = serde_json::from_value(skew).unwrap_or_default();
                let confirmed = text(&now.value, "confirm-deletions").parse();
                let confirmed = confirmed.unwrap_or_default();
                let forced = is_forced(&now.value);
                self.history.hub(revision, skew, forced, confirmed);
                let slots = now.value["status"]["rollout"]["slots"].clone();
                let slots: Vec<Slot> = serde_json::from_value(slots).unwrap_or_default();
                let old = std::mem::replace(&mut self.slots, slots);
                let is_there = !now.value["status"]["rollout"].is_null();
                if let Some(author) = author
                    && is_there
                    && (old != self.slots || self.lost.is_some())
                {
                    self.ledger_written(&old, author);
                }
            }
            _ => {}
        }
    }

    fn form_changed(&mut self, revision: u64, name: &str, form: Option<&Object>) {
        let Some(form) = form else {
            self.forms.remove(name);
            return self.history.policy(revision, name, None);
        };
        let rollout = form.value["spec"]["rollout"].clone();
        let rollout: Rollout = serde_json::from_value(rollout).unwrap_or_default();
        let view = FormView {
            rollout: rollout.clone(),
            image: image_of_form(&form.value).to_owned(),
        };
        self.forms.insert(name.to_owned(), view);
        let forced = is_forced(&form.value);
        self.history
            .policy(revision, name, Some(Policy { rollout, forced }));
    }

    /// A node was written; `release` is who asked for it and on which view, where a marker came along.
    fn node_written(
        &mut self,
        revision: u64,
        old: Option<&Object>,
        new: &Object,
        author: Option<Author>,
    ) {
        let (old_value, value) = (old.map(|old| &old.value), &new.value);
        let (uid, name) = (new.uid().to_owned(), new.text_of("name").to_owned());
        let form = self.nodes[&name].form.clone();
        self.count_nodes(revision);
        // Nothing is applied of a node on its way out, and the gate lets it be. What nobody let through says so itself.
        if self.nodes[&name].deleting || self.past_gate {
            return;
        }
        self.expect(
            held(value) != value["spec"]["released"].is_null()
                || text(value, "live-hash") == "unknown",
            "gate",
            || {
                format!(
                    "{} is held and has no released content, or is not held and has",
                    name
                )
            },
        );
        let marked = |which| {
            !text(value, which).is_empty()
                && old_value.is_none_or(|old| text(old, which) != text(value, which))
        };
        let was = old_value.and_then(live_image);
        let was = was.filter(|_| !self.unknown.contains(&uid));
        let is = live_image(value);
        if marked("release") && old.is_some() {
            self.expect(!held(value), "gate", || {
                format!(
                    "the release of {} was answered 200, and it is held still",
                    name
                )
            });
        }
        if let Some(image) = &is {
            self.live
                .entry(uid.clone())
                .or_default()
                .insert(image.clone());
        }
        let start = |value: &Value| text(value, "rollout-update-start-time").to_owned();
        let went_live = is != was || old_value.is_some_and(|old| start(old) != start(value));
        if !went_live || is.is_none() {
            self.expect(is == was, "gate", || {
                format!("{} lost its live content", name)
            });
            // What is live is let go once more, while no window applies.
            if marked("ungated")
                && let Some(flight) = self.flights.get_mut(&uid)
            {
                flight.cause = Cause::Ungated;
            }
            return;
        }
        self.unknown.remove(&uid);
        let cause = if marked("release") {
            Cause::Gated
        } else if marked("ungated") {
            Cause::Ungated
        } else if text(value, "force-rollout") == "true" {
            Cause::Forced
        } else {
            return self.fail("gate", || {
                format!(
                    "the live content of {} changed without release, force or ungating",
                    name
                )
            });
        };
        let mut flight = Flight {
            name: name.clone(),
            form: form.clone(),
            cause,
            allowed: (None, None),
            repair: false,
            apart: false,
            was_apart: false,
        };
        if cause != Cause::Forced {
            let Some(Author {
                life,
                view,
                planned,
                ..
            }) = author
            else {
                return self.fail("gate", || {
                    format!(
                        "{} was let go by somebody who is not the operator",
                        flight.name
                    )
                });
            };
            flight.allowed = self.history.widths(&flight.form, view.since);
            // A slot that was taken in a wider window keeps its place in a narrower one.
            if let Some(taken) = self.taken.get(&uid) {
                flight.allowed.0 = flight.allowed.0.zip(taken.0).map(|(a, b)| a.max(b));
                flight.allowed.1 = flight.allowed.1.zip(taken.1).map(|(a, b)| a.max(b));
            }
            let slot = self.slots.iter().find(|slot| slot.uid == uid);
            flight.repair = slot.is_some_and(|slot| slot.repair);
            flight.apart = !self.history.counts_all(&flight.form, view.since);
            let before = self.flights.get(&uid);
            flight.was_apart = flight.apart || before.is_some_and(|before| before.was_apart);
            if cause == Cause::Gated {
                self.released(old, new, life, view, &flight);
            } else if self.history.was_forced(&flight.form, view.said) {
                flight.cause = Cause::Forced;
            } else if self.runs_already((life, planned), &flight.name, &is) {
                self.expect(
                    self.history.was_open(&flight.form, view.said),
                    "paused",
                    || format!("{} was taken over, though its form was paused", flight.name),
                );
            } else {
                self.expect(
                    self.history
                        .was_ungated(&flight.form, view.said, was.is_none()),
                    "window",
                    || {
                        format!(
                            "{} went live ungated, though a window applied all the time",
                            flight.name
                        )
                    },
                );
            }
        }
        self.flights.insert(uid.clone(), flight);
        self.look_at(&name);
    }

    /// A gated release has happened.
    fn released(
        &mut self,
        old: Option<&Object>,
        new: &Object,
        life: LifeId,
        view: View,
        flight: &Flight,
    ) {
        self.figures.releases += 1;
        let uid = &new.uid().to_owned();
        self.released.insert(uid.clone());
        self.read_ready.retain(|(_, released)| released != uid);
        let name = &flight.name;
        let Some(old) = old else {
            return self.fail("exact", || format!("{name} was released at its creation"));
        };
        let (hash, version) = (text(&new.value, "desired-hash"), &old.version().to_owned());
        let named = |slot: &&Slot| slot.uid == *uid;
        let slot = self.slots.iter().find(named).cloned();
        self.expect(
            slot.as_ref()
                .is_some_and(|slot| slot.hash == hash && slot.resource_version == *version),
            "exact",
            || format!("{name} was released at {version} as {hash}, and the ledger says {slot:?}"),
        );
        let own = (life, uid.clone(), hash.to_owned(), version.clone());
        self.expect(self.acknowledged.contains(&own), "exact", || {
            format!("{name} was released at {version} without an acknowledged ledger write of its own before")
        });
        self.expect(
            self.history.was_open(&flight.form, view.since),
            "paused",
            || format!("{name} was released, though its form was paused all the time"),
        );
        let mut flights = self.flights.clone();
        flights.insert(uid.clone(), flight.clone());
        let form: Vec<&Flight> = flights
            .values()
            .filter(|f| f.cause == Cause::Gated && f.form == flight.form)
            .filter(|f| !flight.apart || f.repair == flight.repair)
            .collect();
        let hub: Vec<&Flight> = flights
            .values()
            .filter(|f| f.cause == Cause::Gated)
            .collect();
        self.figures.peak = self.figures.peak.max(form.len());
        for (which, flights, allowed) in [
            (
                "form",
                &form,
                form.iter().map(|f| f.allowed.0).collect::<Option<Vec<_>>>(),
            ),
            (
                "hub",
                &hub,
                hub.iter().map(|f| f.allowed.1).collect::<Option<Vec<_>>>(),
            ),
        ] {
            let Some(width) = allowed.and_then(|all| all.into_iter().max()) else {
                continue;
            };
            // Nodes of two windows, after they became one.
            let two = !flight.apart && which == "form" && flights.iter().any(|f| f.was_apart);
            let width = if two { 2 * width } else { width };
            self.expect(flights.len() <= width, "window", || {
                let names: Vec<&str> = flights.iter().map(|f| f.name.as_str()).collect();
                format!("{} nodes of the {which} are released and not settled since, and the window is {width}: {}", flights.len(), names.join(", "))
            });
        }
    }

    fn node_gone(&mut self, revision: u64, uid: &str) {
        self.flights.remove(uid);
        self.live.remove(uid);
        self.released.remove(uid);
        self.unknown.remove(uid);
        self.count_nodes(revision);
    }

    fn count_nodes(&mut self, revision: u64) {
        self.history.nodes(revision, &self.nodes);
    }

    /// A workload changed: is its node settled now?
    fn look_at(&mut self, name: &str) {
        let Some((node, child)) = self.nodes.get(name).zip(self.children.get(name)) else {
            return;
        };
        // What is there stays as it is where nobody knows what is live.
        let is_live = || node.reading.live_image.as_ref() == Some(&child.image);
        if child.ready
            && child.node_uid == node.uid
            && (self.unknown.contains(&node.uid) || is_live())
        {
            let uid = node.uid.clone();
            self.flights.remove(&uid);
        }
    }

    /// Nobody knows any more what is live on a node, or has ever known.
    pub fn forgotten(&mut self, name: &str) {
        if let Some(node) = self.nodes.get(name) {
            self.unknown.insert(node.uid.clone());
            self.look_at(name);
        }
    }

    /// Whether who let a node go has read since its plan that the node's workload runs this already. A late release was asked
    /// for by the plan before it was sent.
    fn runs_already(
        &self,
        (life, planned): (LifeId, u64),
        name: &str,
        image: &Option<String>,
    ) -> bool {
        let read = self.read.get(&(life, name.to_owned()));
        read.is_some_and(|(at, runs)| *at >= planned && Some(runs) == image.as_ref())
    }

    /// A request about a node or its workload was not answered, or refused; or, where it names none, one about all of them.
    pub fn request_failed(&mut self, life: LifeId, node: String) {
        let nodes = match node.is_empty() {
            true => self.nodes.keys().cloned().collect(),
            false => vec![node],
        };
        self.failed
            .extend(nodes.into_iter().map(|node| (life, node)));
    }

    /// Whether a workload is written for a node that is gone: a late request of its controller may follow it, also where a node of
    /// the same name has been made meanwhile.
    pub fn is_for_gone(&self, workload: &Value) -> bool {
        let metadata = &workload["metadata"];
        let node = metadata["name"]
            .as_str()
            .and_then(|name| self.nodes.get(name));
        node.is_none_or(|node| metadata["ownerReferences"][0]["uid"] != node.uid.as_str())
    }

    /// Somebody applied content to a workload of a node that is there.
    fn child_applied(&mut self, old: Option<&Workload>, new: &Workload, view: View) {
        let live = self.live.get(&new.node_uid);
        let ever = live.is_some_and(|live| live.contains(&new.image));
        self.expect(ever, "gate", || {
            format!(
                "{} was given {}, which was never live on it",
                new.node, new.image
            )
        });
        // What somebody else has applied since the view is not in it.
        let known = |old: &Workload| old.version.parse::<u64>().is_ok_and(|v| v <= view.since);
        let same = old.is_some_and(|old| {
            old.image == new.image
                && old.node_uid == new.node_uid
                && old.applied_hash == new.applied_hash
                && known(old)
        });
        self.expect(!(same && view.current), "revert", || {
            format!("{} was given {} once more", new.node, new.image)
        });
        self.look_at(&new.node);
    }

    /// A workload was read from the API server itself.
    pub fn child_read(&mut self, revision: u64, life: LifeId, child: &Workload) {
        let runs = (revision, child.image.clone());
        self.read.insert((life, child.node.clone()), runs);
        self.child_known(life, child);
    }

    /// A workload as a process knows it when it reads the reply to a read of it: its watch may have told something newer by then.
    pub fn child_known(&mut self, life: LifeId, child: &Workload) {
        if child.ready && self.released.contains(&child.node_uid) {
            self.read_ready.insert((life, child.node_uid.clone()));
        }
    }
}

//! What the witness says of a form that the operator sets back: from what, to what, how often, and what runs in the end. It reads
//! the statuses that were stored, and nothing of the form's ControllerRevisions.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::store::Object;
use crate::witness::read::{asks_for_reverts, image_of_form, is_in_phase, version};
use crate::witness::{NodeView, Witness};

const SET_BACK: &str = "set-back";

/// By the form's uid, where nothing else is said.
#[derive(Default)]
pub struct Reverts {
    /// The version of which a status said last that its rollout is complete.
    completed: BTreeMap<String, String>,
    /// By the form's name: every version that was ever live on a node of it.
    ran: BTreeMap<String, BTreeSet<String>>,
    /// The version that was taken back last.
    taken_back: BTreeMap<String, String>,
    /// The generation that the last revert made.
    generations: BTreeMap<String, i64>,
}

fn generation(form: &Object) -> i64 {
    let generation = form.value["metadata"]["generation"].as_i64();
    generation.unwrap_or_default()
}

impl Witness {
    /// A node was written.
    pub(super) fn note_live(&mut self, node: &NodeView) {
        let Some(image) = &node.reading.live_image else {
            return;
        };
        let live = version(image);
        let ran = &mut self.reverts.ran;
        if !ran.get(&node.form).is_some_and(|ran| ran.contains(live)) {
            let of_form = ran.entry(node.form.clone()).or_default();
            of_form.insert(live.to_owned());
        }
    }

    /// A form was written; by the operator, or by somebody else.
    pub(super) fn form_written(
        &mut self,
        before: Option<&Object>,
        form: &Object,
        by_operator: bool,
    ) {
        if by_operator
            && let Some(before) = before
            && before.value["spec"] != form.value["spec"]
        {
            self.form_set_back(before, form);
        }
        if is_in_phase(&form.value, "Complete") {
            let complete = version(image_of_form(&form.value)).to_owned();
            self.reverts
                .completed
                .insert(form.uid().to_owned(), complete);
        }
    }

    /// The operator changed the spec of a form.
    fn form_set_back(&mut self, old: &Object, new: &Object) {
        self.figures.reverts += 1;
        let (uid, name) = (new.uid(), new.text_of("name"));
        let (from, to) = (
            version(image_of_form(&old.value)),
            version(image_of_form(&new.value)),
        );
        let (policy, new_policy) = (&old.value["spec"]["rollout"], &new.value["spec"]["rollout"]);
        let said = |what: &str| format!("form {name} was set back from {from} to {to}, {what}");
        self.expect(asks_for_reverts(&old.value), SET_BACK, || {
            said(&format!("and did not ask for it: {policy}"))
        });
        // Who edits the form takes this from it until the operator has seen the edit.
        self.expect(is_in_phase(&old.value, "Failed"), SET_BACK, || {
            said("and its status did not say that this version failed")
        });
        let ran = self.reverts.ran.get(name);
        let ran = ran.is_some_and(|ran| ran.contains(from));
        self.expect(ran, SET_BACK, || {
            said("and no node of it ever ran the version that was taken back")
        });
        let last = self.reverts.completed.get(uid).cloned();
        self.expect(last.as_deref() == Some(to), SET_BACK, || {
            said(&format!(
                "and the version that was complete last is {last:?}"
            ))
        });
        self.expect(policy == new_policy, SET_BACK, || {
            said(&format!("and its policy was changed: {new_policy}"))
        });
        let taken_back = &mut self.reverts.taken_back;
        let before = taken_back.insert(uid.to_owned(), from.to_owned());
        self.expect(before.as_deref() != Some(from), SET_BACK, || {
            said("and that is the version that was taken back before")
        });
        self.reverts
            .generations
            .insert(uid.to_owned(), generation(new));
    }

    /// At rest no form is left with what failed, where it asks for reverts; and what a form was set back to runs, where nobody has
    /// edited it since. `waits`: its nodes may wait for something else.
    pub fn form_rests(&mut self, form: &Object, waits: bool) {
        let (uid, name) = (form.uid(), form.text_of("name"));
        let newest = version(image_of_form(&form.value));
        let halted = asks_for_reverts(&form.value) && is_in_phase(&form.value, "Failed");
        let of_form = |versions: &BTreeMap<String, String>| versions.get(uid).cloned();
        let last = of_form(&self.reverts.completed).filter(|last| last != newest);
        let was_taken_back = of_form(&self.reverts.taken_back).as_deref() == Some(newest);
        if halted
            && !was_taken_back
            && let Some(last) = last
        {
            self.fail(SET_BACK, || {
                format!("form {name} is left with {newest}, which failed, and {last} was complete before")
            });
        }
        if waits || self.reverts.generations.get(uid) != Some(&generation(form)) {
            return;
        }
        let of_form = |node: &&NodeView| node.form == name && !node.deleting;
        let nodes: Vec<&NodeView> = self.nodes.values().filter(of_form).collect();
        // What somebody wrote by hand, and what nobody knows, may fill the window.
        let is_forms = |node: &&NodeView| {
            let desired = node.reading.desired_image.as_deref();
            desired.map(version) == Some(newest) && !self.unknown.contains(&node.uid)
        };
        if !nodes.iter().all(is_forms) {
            return;
        }
        let runs = |node: &NodeView| {
            let child = self.children.get(&node.name);
            let is_up = child.is_some_and(|child| child.ready && version(&child.image) == newest);
            is_up && !node.reading.held && node.reading.settled
        };
        let left = nodes.into_iter().find(|node| !runs(node));
        if let Some(node) = left.map(|node| node.name.clone()) {
            self.fail(SET_BACK, || {
                format!("form {name} was set back to {newest}, and at rest {node} does not run it")
            });
        }
    }
}

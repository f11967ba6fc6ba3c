//! What the witness says of a plan and of what follows from it: the rule of release on a view that misses nothing,
//! a reason for every held node, and a status that is true.

use std::collections::BTreeSet;

use lynqgate::api::form::Phase;
use lynqgate::api::policy::SkewCounts;
use lynqgate::decide::rollout::{Plan, Snapshot, Way};
use serde_json::Value;

use crate::witness::{LifeId, NodeView, View, Witness, version};

impl Witness {
    pub fn planned(
        &mut self,
        revision: u64,
        snapshot: &Snapshot,
        plan: &Plan,
        (life, view): (LifeId, View),
    ) {
        for (name, node) in snapshot.nodes.iter() {
            let waits = node.held() && !node.deleting && snapshot.forms.contains_key(&*node.form);
            self.expect(!waits || plan.waiting.contains_key(name), "reason", || {
                format!("{name} is held, and the plan says no reason")
            });
        }
        if !view.current {
            return;
        }
        self.is_wanted(plan);
        self.misses_none(plan, life);
        for (name, state) in &plan.forms {
            if state.rollout.phase == Phase::Complete
                && let Some(node) = self.not_done(name)
            {
                self.fail("complete", || {
                    format!("form {name} is said to be Complete, and {node} is held or not ready")
                });
            }
            self.follows_the_rule(revision, (snapshot, plan), name, life);
        }
    }

    /// A node of the form that is held or not settled.
    fn not_done(&self, form: &str) -> Option<String> {
        let of_form = |node: &&NodeView| node.form == form && !node.deleting;
        let mut nodes = self.nodes.values().filter(of_form);
        let node = nodes.find(|node| node.reading.held || !node.reading.settled);
        node.map(|node| node.name.clone())
    }

    /// No rollout is complete without a node that the rows of its process's last sync ask for. Another process may have read since that
    /// such a row is gone, and deleted its node.
    fn misses_none(&mut self, plan: &Plan, life: LifeId) {
        let Some(rows) = self.rows.get(&life) else {
            return;
        };
        let rows: Vec<String> = rows.intersection(&self.newest_rows).cloned().collect();
        for (form, state) in &plan.forms {
            if state.rollout.phase != Phase::Complete {
                continue;
            }
            for uid in &rows {
                let node = self.nodes.get(&format!("{uid}-{form}"));
                self.expect(node.is_some_and(|node| !node.deleting), "complete", || {
                    format!(
                        "form {form} is said to be Complete, and there is no node for the row {uid}"
                    )
                });
            }
        }
    }

    /// What is let go of a form is its newest version, or what somebody wrote by hand.
    fn is_wanted(&mut self, plan: &Plan) {
        for release in &plan.releases {
            let Some(node) = self.nodes.get(&release.node) else {
                continue;
            };
            let Some(form) = self.forms.get(&node.form) else {
                continue;
            };
            let newest = version(&form.image).to_owned();
            let desired = node.reading.desired_image.as_deref();
            let goes = version(desired.unwrap_or_default()).to_owned();
            let is_of_form = goes.starts_with('v');
            self.expect(!is_of_form || goes == newest, "wanted", || {
                format!(
                    "{} is released with {goes}, and its form says {newest}",
                    release.node
                )
            });
        }
    }

    /// A form's status is written. A view that missed nothing when it was made, and misses nothing now, tells the truth.
    pub fn form_said(&mut self, revision: u64, name: &str, status: &Value, view: View) {
        let complete = status["rollout"]["phase"] == "Complete";
        if !complete || !view.current || view.since != revision {
            return;
        }
        if let Some(node) = self.not_done(name) {
            self.fail("complete", || {
                format!("the status of form {name} says Complete, and {node} is held or not ready")
            });
        }
    }

    /// A sync has decided on deletions: no more than half of the nodes, or five, without anybody's word.
    pub fn synced(&mut self, existing: usize, deletes: usize, view: View) {
        let confirmed = self.history.confirmed(view.since);
        let allowed = 5.max(existing / 2).max(confirmed);
        self.expect(deletes <= allowed, "rows", || {
            format!("{deletes} of {existing} nodes are deleted, and {confirmed} are confirmed")
        });
    }

    /// On a view that misses nothing: slots and non-ready nodes after the plan, against the window.
    fn follows_the_rule(
        &mut self,
        revision: u64,
        (snapshot, plan): (&Snapshot, &Plan),
        form: &str,
        life: LifeId,
    ) {
        let Some(width) = self.history.widths(form, revision).0 else {
            return;
        };
        let slots = plan.ledger.as_ref().unwrap_or(&self.slots);
        let slots: BTreeSet<&str> = slots
            .iter()
            .filter(|s| s.form == form)
            .map(|s| s.uid.as_str())
            .collect();
        let nodes = || {
            let all = self.nodes.values();
            all.filter(|node| node.form == form && !node.deleting)
        };
        let non_ready = |node: &&NodeView| match self.unknown.contains(&node.uid) {
            true => !node.reading.said_ready,
            false => node.reading.live_image.is_some() && !node.reading.settled,
        };
        let broken: BTreeSet<&str> = nodes().filter(non_ready).map(|n| n.uid.as_str()).collect();
        let goes = |name: &str| {
            plan.releases
                .iter()
                .any(|r| r.way == Way::Slot && r.node == name)
        };
        let going: BTreeSet<&str> = nodes()
            .filter(|n| goes(&n.name))
            .map(|n| n.uid.as_str())
            .collect();
        let counts_all =
            |form: &crate::witness::FormView| form.rollout.skew_counts == SkewCounts::All;
        let counts_all = self.forms.get(form).is_none_or(counts_all);
        if !counts_all {
            return;
        }
        let of_form = self.slots.iter().filter(|s| s.form == form);
        let of_form = of_form.map(|s| s.uid.as_str());
        // Of a ledger that was lost the plan gives them back.
        let lost = self.lost.iter().flatten().map(String::as_str);
        let first: BTreeSet<&str> = of_form.chain(lost).collect();
        // What has a slot and is not ready may be repaired in a window that was made narrower.
        let repaired = |uid: &&str| first.contains(uid) && broken.contains(uid);
        let fits = going.iter().all(repaired) || slots.len() <= width;
        let busy = slots.union(&broken).count();
        // What cannot be looked after counts as not ready, whatever its status says: the plan must give that reason, and there must be
        // a request that failed.
        let says_so = |name: &str| {
            let why = snapshot.nodes.get(name).and_then(|node| node.why.as_ref());
            why.is_some_and(|why| why.starts_with("lynqgate cannot reconcile it"))
        };
        let has_failed = |node: &&NodeView| self.failed.contains(&(life, node.name.clone()));
        let in_vain = nodes().filter(|node| says_so(&node.name) && has_failed(node));
        let in_vain: BTreeSet<&str> = in_vain.map(|node| node.uid.as_str()).collect();
        let is_healthy = |uid: &&str| !broken.contains(uid) && !in_vain.contains(uid);
        let healthy: Vec<&str> = going.iter().copied().filter(is_healthy).collect();
        let healthy = healthy.join(", ");
        // For the message alone: what the operator sees otherwise.
        let planned = snapshot.nodes.iter().map(|(_, node)| node);
        let planned =
            planned.filter(|node| broken.contains(node.uid.as_str()) && !node.non_ready());
        let planned: Vec<&str> = planned.map(|node| node.uid.as_str()).collect();
        let planned = planned.join(", ");
        let count = slots.len();
        self.expect(fits, "window", || {
            format!("{count} nodes of form {form} have slots, and the window is {width}")
        });
        self.expect(healthy.is_empty() || busy <= width, "window", || {
            format!("healthy nodes of form {form} ({healthy}) are released while {busy} have slots or are not ready, and the window is {width}; taken for ready: {planned}")
        });
    }
}

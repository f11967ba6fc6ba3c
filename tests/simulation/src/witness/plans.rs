//! What the witness says of a plan and of what follows from it: the rule of release on a view that misses nothing,
//! a reason for every held node, and a status that is true.

use std::collections::BTreeSet;
use std::sync::Arc;

use lynqgate::api::form::{FormStatus, Phase};
use lynqgate::api::policy::SkewCounts;
use lynqgate::decide::rollout::{Plan, Snapshot, Way};

use crate::cluster::{Cluster, Node};
use crate::operator::Process;
use crate::witness::{Life, View, Witness};

impl Witness {
    pub fn planned(
        &mut self,
        cluster: &Cluster,
        snapshot: &Snapshot,
        plan: &Plan,
        (life, view): (Life, View),
    ) {
        self.planned.insert(life, cluster.revision);
        for (name, node) in &snapshot.nodes {
            let waits = node.held() && !node.deleting && snapshot.forms.contains_key(&node.form);
            self.expect(!waits || plan.waiting.contains_key(name), "reason", || {
                format!("{name} is held, and the plan says no reason")
            });
        }
        if !view.current {
            return;
        }
        self.is_wanted(cluster, plan);
        for (name, state) in &plan.forms {
            let nodes = || {
                cluster
                    .nodes
                    .values()
                    .filter(|n| n.digest.form == *name && !n.digest.deleting)
            };
            if state.rollout.phase == Phase::Complete {
                for node in nodes().filter(|n| n.reading.held || !n.reading.settled) {
                    self.fail("complete", || {
                        format!(
                            "form {name} is said to be Complete, and {} is held or not ready",
                            node.digest.key.name
                        )
                    });
                }
            }
            self.follows_the_rule(cluster, plan, name);
        }
    }

    /// No rollout is complete without a node that the rows of the last sync ask for.
    pub fn misses_none(&mut self, cluster: &Cluster, plan: &Plan, process: &Process, view: View) {
        for (form, state) in &plan.forms {
            let known = process.rendered.get(form);
            let is_known = known.is_some_and(|known| known.desired.is_some());
            if !view.current || !is_known || state.rollout.phase != Phase::Complete {
                continue;
            }
            for uid in &process.hub_loop.rows {
                let node = cluster.nodes.get(&format!("{uid}-{form}"));
                self.expect(node.is_some_and(|node| !node.digest.deleting), "complete", || {
                    format!("form {form} is said to be Complete, and there is no node for the row {uid}")
                });
            }
        }
    }

    /// What is let go of a form is its newest version, or what somebody wrote by hand.
    fn is_wanted(&mut self, cluster: &Cluster, plan: &Plan) {
        let version = |image: &str| image.split(' ').next().unwrap_or_default().to_owned();
        for release in &plan.releases {
            let Some(node) = cluster.nodes.get(&release.node) else {
                continue;
            };
            let Some(form) = cluster.forms.get(&node.digest.form) else {
                continue;
            };
            let resource = form.spec.content.iter().next();
            let newest = resource.and_then(|resource| resource.spec["image"].as_str());
            let newest = version(newest.unwrap_or_default());
            let goes = version(node.reading.desired_image.as_deref().unwrap_or_default());
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
    pub fn form_said(&mut self, cluster: &Cluster, name: &str, status: &FormStatus, view: View) {
        let complete = status
            .rollout
            .as_ref()
            .is_some_and(|rollout| rollout.phase == Phase::Complete);
        if !complete || !view.current || view.since != cluster.revision {
            return;
        }
        let nodes = cluster
            .nodes
            .values()
            .filter(|n| n.digest.form == name && !n.digest.deleting);
        let not_done = nodes
            .filter(|n| n.reading.held || !n.reading.settled)
            .map(|n| n.digest.key.name.clone())
            .next();
        if let Some(node) = not_done {
            self.fail("complete", || {
                format!("the status of form {name} says Complete, and {node} is held or not ready")
            });
        }
    }

    /// A sync has decided on deletions: no more than half of the nodes, or five, without anybody's word.
    pub fn synced(&mut self, existing: usize, deletes: usize, confirmation: Option<&str>) {
        let confirmed = confirmation.and_then(|text| text.parse().ok()).unwrap_or(0);
        let allowed = 5.max(existing / 2).max(confirmed);
        self.expect(deletes <= allowed, "rows", || {
            format!("{deletes} of {existing} nodes are deleted, and {confirmed} are confirmed")
        });
    }

    /// On a view that misses nothing: slots and non-ready nodes after the plan, against the window.
    fn follows_the_rule(&mut self, cluster: &Cluster, plan: &Plan, form: &str) {
        let Some(width) = self.history.widths(form, cluster.revision).0 else {
            return;
        };
        let slots = plan.ledger.as_ref().unwrap_or(&cluster.hub.slots);
        let slots: BTreeSet<&str> = slots
            .iter()
            .filter(|s| s.form == form)
            .map(|s| s.uid.as_str())
            .collect();
        let nodes = || {
            cluster
                .nodes
                .values()
                .filter(|n| n.digest.form == form && !n.digest.deleting)
        };
        let non_ready = |node: &&Arc<Node>| match self.unknown.contains(&node.digest.uid) {
            true => !node.reading.said_ready,
            false => node.reading.live_image.is_some() && !node.reading.settled,
        };
        let broken: BTreeSet<&str> = nodes()
            .filter(non_ready)
            .map(|n| n.digest.uid.as_str())
            .collect();
        let goes = |name: &str| {
            plan.releases
                .iter()
                .any(|r| r.way == Way::Slot && r.node == name)
        };
        let going: BTreeSet<&str> = nodes()
            .filter(|n| goes(&n.digest.key.name))
            .map(|n| n.digest.uid.as_str())
            .collect();
        let counts_all = cluster
            .forms
            .get(form)
            .and_then(|f| f.spec.rollout.as_ref())
            .is_none_or(|r| r.skew_counts == SkewCounts::All);
        if !counts_all {
            return;
        }
        let of_form = cluster.hub.slots.iter().filter(|s| s.form == form);
        let of_form = of_form.map(|s| s.uid.as_str());
        // Of a ledger that was lost the plan gives them back.
        let lost = self.lost.iter().flatten().map(String::as_str);
        let first: BTreeSet<&str> = of_form.chain(lost).collect();
        // What has a slot and is not ready may be repaired in a window that was made narrower.
        let repaired = |uid: &&str| first.contains(uid) && broken.contains(uid);
        self.expect(
            going.iter().all(repaired) || slots.len() <= width,
            "window",
            || {
                format!(
                    "{} nodes of form {form} have slots, and the window is {width}",
                    slots.len()
                )
            },
        );
        let busy = slots.union(&broken).count();
        let disturbs = !going.is_subset(&broken);
        self.expect(!disturbs || busy <= width, "window", || {
            format!("a healthy node of form {form} is released while {busy} have slots or are not ready, and the window is {width}")
        });
    }
}

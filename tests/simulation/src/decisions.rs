//! Where the product decides: the witness looks on, and bugs are planted.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use lynqgate::api::form::{FormSpec, FormStatus};
use lynqgate::controller::Said;
use lynqgate::controller::decisions::{Decide, Decisions};
use lynqgate::decide::hub::sync;
use lynqgate::decide::node::digest::NodeDigest;
use lynqgate::decide::node::plan::{self, NodePlan, Rest};
use lynqgate::decide::partition::walk::{Around, Pod, Set, Step};
use lynqgate::decide::rollout::{Plan, Snapshot};
use lynqgate_plants::Plant;

use crate::life::Life;
use crate::planted;
use crate::world::{Shared, lock};

pub struct Watched {
    pub shared: Shared,
    pub life: Arc<Life>,
}

impl Decisions for Watched {
    fn sync(&self, seen: &sync::SyncInputs, now: Timestamp) -> sync::Plan {
        let mutant = lock(&self.shared).settings.mutant;
        let plan = match mutant {
            Some(mutant) => planted::sync(mutant, seen, now),
            None => Decide.sync(seen, now),
        };
        let mut world = lock(&self.shared);
        let view = world.view(&self.life);
        self.life.views.lock().expect("no panic under it").sync = view;
        world.deletions_held = plan.held.as_ref().map(|held| held.count);
        let rows: BTreeSet<String> = seen.source.rows.rows.keys().cloned().collect();
        world.witness.newest_rows.clone_from(&rows);
        world.witness.rows.insert(self.life.id(), rows);
        let (nodes, deletes) = (seen.nodes.len(), plan.deletes.len());
        world.witness.synced(nodes, deletes, view);
        world.trace(|| {
            let writes = plan.writes.len();
            format!(
                "operator {}: sync: {writes} writes, {deletes} deletes",
                self.life.replica
            )
        });
        plan
    }

    fn releases(&self, snapshot: &Snapshot, now: Timestamp) -> Plan {
        let mutant = lock(&self.shared).settings.mutant;
        let plan = match mutant {
            Some(mutant) => planted::releases(mutant, &self.shared, &self.life, snapshot, now),
            None => Decide.releases(snapshot, now),
        };
        let mut world = lock(&self.shared);
        let view = world.view(&self.life);
        let revision = world.store.revision;
        let mut views = self.life.views.lock().expect("no panic under it");
        views.releases = view;
        for release in &plan.releases {
            views.sent.insert(release.node.clone(), (view, revision));
        }
        views.slots.clone_from(&snapshot.slots);
        views.surveyed |= snapshot.unlooked.is_empty();
        drop(views);
        let of = (self.life.id(), view);
        world.witness.planned(revision, snapshot, &plan, of);
        plan
    }

    fn reverts_to<'a>(
        &self,
        spec: &FormSpec,
        generation: i64,
        status: &'a FormStatus,
        reverted: Option<&str>,
    ) -> Option<&'a str> {
        let mutant = lock(&self.shared).settings.mutant;
        match mutant {
            Some(Plant::RevertUnasked) => {
                let asking = planted::asking(spec);
                Decide.reverts_to(&asking, generation, status, reverted)
            }
            Some(Plant::RevertAgain) => Decide.reverts_to(spec, generation, status, None),
            _ => Decide.reverts_to(spec, generation, status, reverted),
        }
    }

    fn node(
        &self,
        node: &NodeDigest,
        seen: &[plan::ObservedResource],
        rest: &Rest,
        now: Timestamp,
    ) -> NodePlan {
        let view = lock(&self.shared).view(&self.life);
        let mut views = self.life.views.lock().expect("no panic under it");
        views.nodes.insert(node.key.name.to_string(), view);
        drop(views);
        Decide.node(node, seen, rest, now)
    }

    fn step(&self, set: &Set, pods: &[Pod], around: &Around, now: Timestamp) -> Step {
        match lock(&self.shared).planted(Plant::StepUnready) {
            true => Decide.step(set, &planted::all_ready(pods), around, now),
            false => Decide.step(set, pods, around, now),
        }
    }

    fn still_says(&self, decided_on: &Said, now: &Said) -> bool {
        Decide.still_says(decided_on, now) || lock(&self.shared).planted(Plant::UngatedUnasked)
    }
}

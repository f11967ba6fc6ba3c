//! The statuses that the release loop writes, as `controller::rollout::report` does.

use lynqgate::api::form::{FormRolloutStatus, FormStatus};
use lynqgate::api::hub::Slot;
use lynqgate_plants::Plant;

use crate::operator::release_loop::{Go, Look, Sent};
use crate::operator::sooner;
use crate::request::Request;
use crate::world::World;

const FORM_STATUS_EVERY: u64 = 500;
const HUB_STATUS_EVERY: u64 = 1_000;

impl Look {
    pub(super) fn write_form(&mut self, world: &mut World, p: usize, name: String) -> Go {
        let process = &world.processes[p];
        let may_tell = !self.interrupted || !self.frees_slots_of(&name);
        let form = process.forms.get(&name).filter(|_| may_tell);
        let Some(form) = form.filter(|form| self.forms.contains(&form.uid)) else {
            return Go::On;
        };
        let Some(state) = self.plan.forms.get(&name) else {
            return Go::On;
        };
        let windowed = state.is_told();
        let mut status = FormStatus {
            observed_generation: Some(state.rollout.target_generation),
            total_nodes: Some(state.total_nodes),
            ready_nodes: Some(state.ready_nodes),
            rollout: windowed.then(|| state.rollout.clone()),
            conditions: vec![],
        };
        if world.planted(Plant::Restless)
            && let Some(rollout) = &mut status.rollout
        {
            rollout.message = format!("{} at {}", rollout.message, world.time);
        }
        if status == form.status {
            return Go::On;
        }
        let phase = |rollout: &Option<FormRolloutStatus>| rollout.as_ref().map(|r| r.phase);
        let urgent = phase(&status.rollout) != phase(&form.status.rollout)
            || form.status.observed_generation != status.observed_generation;
        let last = process.release.form_written.get(&name).copied();
        if !urgent && let Some(wait) = too_soon(last, FORM_STATUS_EVERY, world.time) {
            self.again = sooner(self.again, Some(wait));
            return Go::On;
        }
        let request = Request::FormStatus {
            name: name.clone(),
            resource_version: form.resource_version.clone(),
            status,
        };
        self.ask(world, p, request, Sent::Form(name))
    }

    /// `Pass::frees_slots_of`.
    fn frees_slots_of(&self, form: &str) -> bool {
        let stays = |slot: &Slot| {
            let mut left = self.plan.ledger.iter().flatten();
            left.any(|new| new.uid == slot.uid)
        };
        let mut slots = self.slots.iter();
        slots.any(|slot| slot.form == form && !stays(slot))
    }

    pub(super) fn write_counts(&mut self, world: &mut World, p: usize) -> Go {
        let Some(hub) = self.hub.clone() else {
            return Go::Back(self.again);
        };
        let ready = self.nodes.iter().filter(|node| node.is_ready()).count() as i32;
        let counts = (ready, self.nodes.len() as i32 - ready);
        if hub.counts == counts {
            return self.over(world, p);
        }
        if let Some(wait) = too_soon(
            world.processes[p].release.hub_written,
            HUB_STATUS_EVERY,
            world.time,
        ) {
            self.again = sooner(self.again, Some(wait));
            return self.over(world, p);
        }
        self.ask(world, p, Request::HubCounts { counts }, Sent::Counts)
    }
}

fn too_soon(last: Option<u64>, every: u64, now: u64) -> Option<u64> {
    let since = now - last?;
    (since < every).then(|| every - since)
}

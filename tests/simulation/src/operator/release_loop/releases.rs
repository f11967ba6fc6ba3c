//! One release on its way, as `Look::release` and `release_one` of `controller::rollout` send it.

use lynqgate::decide::rollout::{Release, Way};
use lynqgate_plants::Plant;

use crate::operator::release_loop::refused::CONFLICT;
use crate::operator::release_loop::{Go, Look, Sent};
use crate::request::Request;
use crate::world::World;

impl Look {
    /// As long as the hub and its forms say what it was decided on.
    pub(super) fn release(&mut self, world: &mut World, p: usize, release: Release) -> Go {
        let process = &mut world.processes[p];
        if process.said() != self.said && world.settings.mutant != Some(Plant::UngatedUnasked) {
            process.release.refuse(&release, CONFLICT, world.time);
            return Go::On;
        }
        if release.way == Way::TakenOver && !world.planted(Plant::TakeOverUnasked) {
            let name = release.node.clone();
            return self.ask(world, p, Request::ReadNode { name }, Sent::Own(release));
        }
        let request = self.release_one(world, &release);
        self.ask(world, p, request, Sent::Release(release))
    }

    /// What the node's workload runs is read; where it is what the release would make of it, the node may go.
    pub(super) fn still_taken_over(
        &mut self,
        world: &mut World,
        p: usize,
        release: Release,
        same: bool,
    ) -> Go {
        let process = &mut world.processes[p];
        if !same {
            let found = (release.hash.clone(), false);
            process.unchanged.insert(release.node.clone(), found);
        }
        if !same || process.said() != self.said {
            process.release.refuse(&release, CONFLICT, world.time);
            return Go::On;
        }
        let request = self.release_one(world, &release);
        self.ask(world, p, request, Sent::Release(release))
    }

    fn release_one(&self, world: &World, release: &Release) -> Request {
        Request::Release {
            name: release.node.clone(),
            resource_version: (!world.planted(Plant::ReleaseUnversioned))
                .then(|| release.resource_version.clone()),
            marker: release.marker(),
        }
    }
}

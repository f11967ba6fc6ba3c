//! Two operators, one Kubernetes node, and every order of their reads and writes: the decisions are the product's own
//! (`decide::maintenance::step`), the shell is its rules. It says whether they hold, and must not decide what they are:
//! docs/proofs/protocols.md.

mod protocol;
mod state;

use crate::{Told, tell};
use protocol::{Bug, Protocol, World};

/// Whether all worlds hold, and each bug is found.
pub fn check() -> bool {
    let mut good = true;
    for world in World::ALL {
        let told = Told {
            world: world.name(),
            bug: "none",
            reached: protocol::ENDS,
        };
        good &= tell(&told, Protocol { world, bug: None }).is_none();
    }
    for bug in Bug::ALL {
        let (world, bug_name) = (bug.world(), bug.name());
        let told = Told {
            world: world.name(),
            bug: bug_name,
            reached: protocol::ENDS,
        };
        good &= tell(
            &told,
            Protocol {
                world,
                bug: Some(bug),
            },
        )
        .is_some();
    }
    good
}

//! What `main` prints, as a test.

use crate::protocol::{Bug, Protocol, World};
use crate::tell;

#[test]
fn the_rules_of_maintenance_hold() {
    for world in World::ALL {
        assert_eq!(
            tell(Protocol { world, bug: None }),
            None,
            "{}",
            world.name()
        );
    }
}

#[test]
fn every_planted_bug_of_maintenance_is_found() {
    for bug in Bug::ALL {
        let protocol = Protocol {
            world: bug.world(),
            bug: Some(bug),
        };
        assert!(tell(protocol).is_some(), "{} is not found", bug.name());
    }
}

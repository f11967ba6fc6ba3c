//! Two operators, one Kubernetes node, and every order of their reads and writes: the decisions are the product's own
//! (`decide::maintenance::step`), the shell is its rules. It says whether they hold, and must not decide what they are: docs/SAFETY.md.

mod protocol;
mod state;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Instant;

use protocol::{Bug, Protocol, World};
use stateright::{Checker, HasDiscoveries, Model};

fn main() -> ExitCode {
    let mut good = true;
    println!(
        "{:<14} {:<22} {:>9} {:>9} {:>6} {:>8}  found",
        "world", "bug", "states", "unique", "depth", "seconds"
    );
    for world in World::ALL {
        good &= tell(Protocol { world, bug: None }).is_none();
    }
    for bug in Bug::ALL {
        let protocol = Protocol {
            world: bug.world(),
            bug: Some(bug),
        };
        good &= tell(protocol).is_some();
    }
    match good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn tell(protocol: Protocol) -> Option<&'static str> {
    let (world, bug, began) = (
        protocol.world.name(),
        protocol.bug.map_or("none", Bug::name),
        Instant::now(),
    );
    let until = HasDiscoveries::AnyFailures;
    let checker = protocol.checker().finish_when(until).spawn_bfs().join();
    let broken = checker
        .discoveries()
        .into_iter()
        .find(|(name, _)| *name != protocol::ENDS);
    let found = match &broken {
        Some((property, path)) => format!(
            "{property} after {} steps",
            path.clone().into_actions().len()
        ),
        None if checker.discovery(protocol::ENDS).is_some() => "all holds".to_owned(),
        None => "nothing ever ends".to_owned(),
    };
    println!(
        "{world:<14} {bug:<22} {:>9} {:>9} {:>6} {:>8.1}  {found}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64(),
    );
    if std::env::args().nth(1).as_deref() == Some("traces")
        && let Some((_, path)) = &broken
    {
        path.clone().into_vec().iter().for_each(|(state, action)| {
            println!(
                "    {:?} node {:?} lease {:?} {action:?}",
                state.now, state.node, state.lease
            );
        });
    }
    broken.map(|(property, _)| property)
}

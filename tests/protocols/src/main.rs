//! Models of the protocols beside the window, each in every order of its reads and writes, and with planted bugs. They say whether the
//! rules hold, and must not decide what they are: docs/proofs/protocols.md.

mod maintenance;
mod partition;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

fn main() -> ExitCode {
    println!(
        "{:<14} {:<22} {:>9} {:>9} {:>6} {:>8}  found",
        "world", "bug", "states", "unique", "depth", "seconds"
    );
    match maintenance::check() & partition::check() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// How a search is called.
struct Told {
    world: &'static str,
    bug: &'static str,
    /// What must be reachable, or nothing was checked.
    reached: &'static str,
}

/// Searches every state; returns the property that is broken.
fn tell<M>(told: &Told, model: M) -> Option<&'static str>
where
    M: Model + Send + Sync + 'static,
    M::State: std::fmt::Debug + std::hash::Hash + Clone + PartialEq + Send + Sync,
    M::Action: std::fmt::Debug + Clone + PartialEq + Send + Sync,
{
    let began = Instant::now();
    let until = HasDiscoveries::AnyFailures;
    let checker = model.checker().finish_when(until).spawn_bfs().join();
    let mut discoveries = checker.discoveries().into_iter();
    let broken = discoveries.find(|(name, _)| *name != told.reached);
    let found = match &broken {
        Some((property, path)) => format!(
            "{property} after {} steps",
            path.clone().into_actions().len()
        ),
        None if checker.discovery(told.reached).is_some() => "all holds".to_owned(),
        None => "what must be reached is not".to_owned(),
    };
    println!(
        "{:<14} {:<22} {:>9} {:>9} {:>6} {:>8.1}  {found}",
        told.world,
        told.bug,
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64(),
    );
    if std::env::args().nth(1).as_deref() == Some("traces")
        && let Some((_, path)) = &broken
    {
        for (state, action) in path.clone().into_vec() {
            println!("    {state:?} {action:?}");
        }
    }
    broken.map(|(property, _)| property)
}

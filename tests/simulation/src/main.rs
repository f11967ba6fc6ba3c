//! The deterministic simulation: the operator's own loops, two processes of them, against an API server in memory, thousands of
//! seeds of it, and the list of planted bugs that it must find. Every figure and every trace follows from the seed alone.

mod admission;
mod api;
mod decisions;
mod life;
mod machines;
mod network;
mod planted;
mod random;
mod reverts;
mod reviews;
mod run;
mod sets;
mod settings;
mod shrink;
mod time;
mod users;
mod witness;
mod workloads;
mod world;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, Subcommand};
use lynqgate_plants::{Plant, Proof};
use run::{Outcome, run};
use settings::{Fault, Settings};

#[derive(Parser)]
#[command(about = "lynqgate's own loops against an API server in memory, from a seed")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Many seeds; the first that fails is shown in short.
    Seeds {
        #[arg(long, default_value_t = 0)]
        from: u64,
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// A planted bug.
        #[arg(long, value_parser = |name: &str| Proof::Simulation.plant(name))]
        mutant: Option<Plant>,
        /// Go on after a violation, and count them.
        #[arg(long)]
        all: bool,
    },
    /// One seed with its whole trace.
    Replay {
        seed: u64,
        /// A planted bug.
        #[arg(long, value_parser = |name: &str| Proof::Simulation.plant(name))]
        mutant: Option<Plant>,
        /// Classes of faults that are left out.
        #[arg(long, value_delimiter = ',')]
        without: Vec<String>,
        #[arg(long)]
        rows: Option<usize>,
        #[arg(long)]
        steps: Option<u64>,
    },
    /// Every planted bug, and after how many seeds it is found.
    Mutants {
        #[arg(long, default_value_t = 3_000)]
        seeds: u64,
        /// Leave out the rarest, which may take hundreds of seeds to find.
        #[arg(long)]
        common: bool,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Seeds {
            from,
            seeds,
            mutant,
            all,
        } => all_seeds(from, seeds, mutant, all),
        Command::Replay {
            seed,
            mutant,
            without,
            rows,
            steps,
        } => {
            let mut settings = Settings::planted(seed, mutant);
            settings
                .faults
                .retain(|fault| !without.contains(&format!("{fault:?}")));
            settings.rows = rows.unwrap_or(settings.rows);
            settings.steps = steps.unwrap_or(settings.steps);
            println!("{settings:?}");
            let outcome = run(&settings, true);
            outcome.lines.iter().for_each(|line| println!("{line}"));
            verdict(
                outcome
                    .violation
                    .map(|v| format!("{}: {}", v.invariant, v.text)),
            )
        }
        Command::Mutants { seeds, common } => mutants(seeds, common),
    }
}

fn verdict(problem: Option<String>) -> ExitCode {
    match problem {
        None => ExitCode::SUCCESS,
        Some(text) => {
            println!("VIOLATED {text}");
            ExitCode::FAILURE
        }
    }
}

/// A line of progress after so many seeds: half a minute's.
const PROGRESS: u64 = 100;
/// Within so many seeds a form must have been set back: one in four is to show it.
const REVERT_WITHIN: u64 = 100;

/// What some seeds came to.
#[derive(Default)]
struct Totals {
    seeds: u64,
    steps: u64,
    requests: u64,
    releases: u64,
    peak: usize,
    reverts: u64,
    struck: BTreeMap<Fault, u64>,
    /// By seed: those that failed.
    failed: BTreeMap<u64, Outcome>,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.steps += outcome.figures.steps;
        self.requests += outcome.requests;
        self.releases += outcome.figures.releases;
        self.peak = self.peak.max(outcome.figures.peak);
        self.reverts += outcome.figures.reverts;
        for (fault, times) in &outcome.struck {
            *self.struck.entry(*fault).or_default() += times;
        }
    }
}

/// Runs seeds on every core until one breaks one of these invariants (or any, if none is named).
fn search(from: u64, seeds: u64, mutant: Option<Plant>, invariants: &[&str], all: bool) -> Totals {
    let next = AtomicU64::new(from);
    let totals = Mutex::new(Totals::default());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let goes_on = all || totals.lock().expect("no panic").failed.is_empty();
            if seed >= from + seeds || !goes_on {
                return;
            }
            let outcome = run(&Settings::planted(seed, mutant), false);
            let mut totals = totals.lock().expect("no panic");
            totals.add(&outcome);
            if mutant.is_none() && totals.seeds % PROGRESS == 0 {
                eprintln!("{} of {seeds} seeds, {} steps", totals.seeds, totals.steps);
            }
            let violation = outcome.violation.as_ref().map(|v| v.invariant);
            if violation.is_some_and(|v| invariants.is_empty() || invariants.contains(&v)) {
                totals.failed.insert(seed, outcome);
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    totals.into_inner().expect("no panic")
}

fn all_seeds(from: u64, seeds: u64, mutant: Option<Plant>, all: bool) -> ExitCode {
    let start = Instant::now();
    let totals = search(from, seeds, mutant, &[], all);
    println!(
        "simulation: {} seeds from {from}, {} steps, {} requests, {} gated releases, most in flight {}, {} reverts, {} violations, {:.1} s",
        totals.seeds,
        totals.steps,
        totals.requests,
        totals.releases,
        totals.peak,
        totals.reverts,
        totals.failed.len(),
        start.elapsed().as_secs_f64()
    );
    let struck: Vec<_> = totals
        .struck
        .iter()
        .map(|(fault, times)| format!("{fault} {times}"))
        .collect();
    println!("faults: {}", struck.join(", "));
    let found = totals.failed;
    if mutant.is_none() && found.is_empty() && totals.seeds >= REVERT_WITHIN && totals.reverts == 0
    {
        println!("NOT PLAYED: no form was set back in {} seeds", totals.seeds);
        return ExitCode::FAILURE;
    }
    if all {
        for (seed, outcome) in &found {
            let violation = outcome.violation.as_ref().expect("it failed");
            println!("seed {seed}: {}: {}", violation.invariant, violation.text);
        }
        return match found.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        };
    }
    match found.first_key_value() {
        None => ExitCode::SUCCESS,
        Some((seed, outcome)) => {
            let violation = outcome.violation.as_ref().expect("it failed");
            println!(
                "VIOLATED by seed {seed}: {}: {}; in short:",
                violation.invariant, violation.text
            );
            let of_seed = Settings::planted(*seed, mutant);
            shrink::show(&shrink::shrink(&of_seed, violation.invariant), &of_seed);
            ExitCode::FAILURE
        }
    }
}

fn mutants(seeds: u64, common: bool) -> ExitCode {
    let mut missed = 0;
    println!("| planted bug | caught by | seeds | steps |\n|---|---|---|---|");
    let left_out = |mutant: &Plant| common && planted::is_rare(*mutant);
    for mutant in Proof::Simulation.plants().filter(|plant| !left_out(plant)) {
        let breaks = mutant.breaks_in(Proof::Simulation).expect("it is its own");
        let totals = search(0, seeds, Some(mutant), breaks, false);
        let first = totals.failed.values().next();
        let violation = first.and_then(|outcome| outcome.violation.as_ref());
        missed += usize::from(violation.is_none());
        let by = violation.map_or("NOT CAUGHT", |violation| violation.invariant);
        println!(
            "| `{mutant}`: {} | {by} | {} | {} |",
            mutant.what(),
            totals.seeds,
            totals.steps
        );
    }
    if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_trace_each_time() {
        let settings = Settings {
            steps: 40,
            ..Settings::planted(7, None)
        };
        let first = run(&settings, true).lines;
        assert!(first.len() > 100, "{first:?}");
        assert_eq!(first, run(&settings, true).lines);
    }
}

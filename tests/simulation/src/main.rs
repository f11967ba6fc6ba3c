//! The deterministic simulation: the operator's own loops, two processes of them, against an API server in memory, thousands of
//! seeds of it, and the list of planted bugs that it must find. Every figure and every trace follows from the seed alone.

mod admission;
mod api;
mod decisions;
mod life;
mod network;
mod planted;
mod random;
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
use run::run;
use settings::Settings;

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
        /// Leave out those that take more than a hundred seeds to find.
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

/// Runs seeds on every core until one breaks one of these invariants (or any, if none is named); returns the failed seed with the
/// lowest number tried, and the totals.
fn search(
    from: u64,
    seeds: u64,
    mutant: Option<Plant>,
    invariants: &[&str],
    all: bool,
) -> (BTreeMap<u64, run::Outcome>, u64, witness::Figures) {
    let next = AtomicU64::new(from);
    let found = Mutex::new(BTreeMap::new());
    let totals = Mutex::new((0, witness::Figures::default()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds || !(all || found.lock().expect("no panic").is_empty())
                    {
                        return;
                    }
                    let outcome = run(&Settings::planted(seed, mutant), false);
                    let mut totals = totals.lock().expect("no panic");
                    totals.0 += 1;
                    totals.1.steps += outcome.figures.steps;
                    totals.1.requests += outcome.requests;
                    totals.1.releases += outcome.figures.releases;
                    totals.1.peak = totals.1.peak.max(outcome.figures.peak);
                    if mutant.is_none() && totals.0 % PROGRESS == 0 {
                        let steps = totals.1.steps;
                        eprintln!("{} of {seeds} seeds, {steps} steps", totals.0);
                    }
                    let violation = outcome.violation.as_ref().map(|v| v.invariant);
                    if violation.is_some_and(|v| invariants.is_empty() || invariants.contains(&v)) {
                        found.lock().expect("no panic").insert(seed, outcome);
                    }
                }
            });
        }
    });
    let (count, figures) = totals.into_inner().expect("no panic");
    (found.into_inner().expect("no panic"), count, figures)
}

fn all_seeds(from: u64, seeds: u64, mutant: Option<Plant>, all: bool) -> ExitCode {
    let start = Instant::now();
    let (found, count, figures) = search(from, seeds, mutant, &[], all);
    println!(
        "simulation: {count} seeds from {from}, {} steps, {} requests, {} gated releases, most in flight {}, {:.1} s",
        figures.steps,
        figures.requests,
        figures.releases,
        figures.peak,
        start.elapsed().as_secs_f64()
    );
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
        let (found, count, figures) = search(0, seeds, Some(mutant), breaks, false);
        let violation = found.values().next().and_then(|o| o.violation.as_ref());
        missed += usize::from(violation.is_none());
        let by = violation.map_or("NOT CAUGHT", |violation| violation.invariant);
        println!(
            "| `{mutant}`: {} | {by} | {count} | {} |",
            mutant.what(),
            figures.steps
        );
    }
    if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

//! Makes a failing seed short: the same invariant, with fewer classes of faults, fewer steps and fewer nodes. It only
//! runs the seed again with other settings, and never edits a run.

use crate::run::run;
use crate::settings::{Fault, Settings};

pub fn shrink(settings: &Settings, invariant: &str) -> Settings {
    let mut best = settings.clone();
    let fails = |candidate: &Settings| {
        let violation = run(candidate, false).violation;
        violation.is_some_and(|violation| violation.invariant == invariant)
    };
    let mut improved = true;
    while improved {
        improved = false;
        for candidate in smaller(&best) {
            if fails(&candidate) {
                best = candidate;
                improved = true;
                break;
            }
        }
    }
    best
}

/// Settings with a little less, the greatest step first.
fn smaller(settings: &Settings) -> Vec<Settings> {
    let mut all = vec![];
    for fault in &settings.faults {
        let mut fewer = settings.clone();
        fewer.faults.remove(fault);
        all.push(fewer);
    }
    for steps in [settings.steps / 2, settings.steps * 9 / 10] {
        if steps < settings.steps {
            all.push(Settings {
                steps,
                ..settings.clone()
            });
        }
    }
    for rows in [settings.rows / 2, settings.rows - 1] {
        if rows > 0 && rows < settings.rows {
            all.push(Settings {
                rows,
                ..settings.clone()
            });
        }
    }
    all
}

/// The trace, and the command that shows it again.
pub fn show(short: &Settings, whole: &Settings) {
    for line in run(short, true).lines {
        println!("{line}");
    }
    for fault in &short.faults {
        println!("with {fault:?}: {}", fault.what());
    }
    let left_out: Vec<String> = whole
        .faults
        .difference(&short.faults)
        .map(Fault::to_string)
        .collect();
    let mutant = short
        .mutant
        .map(|mutant| format!(" --mutant {mutant}"))
        .unwrap_or_default();
    let without = if left_out.is_empty() {
        String::new()
    } else {
        format!(" --without {}", left_out.join(","))
    };
    println!(
        "replay: cargo run --profile simulation -p lynqgate-simulation -- replay {} --rows {} --steps {}{without}{mutant}",
        short.seed, short.rows, short.steps
    );
}

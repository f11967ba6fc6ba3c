//! Checks the ledger's rules in every state of a few small worlds, and that each way to get them wrong is found.
//!
//! Without arguments: a table of all of it. With the name of a mutant: the steps by which that one does harm; with
//! `traces`: those of all. It says yes or no and must not decide what the rules are: docs/proofs/model.md.

mod bounds;
mod check;
mod mutant;
mod progress;
mod relabel;
mod rules;
mod state;
mod steps;
#[cfg(test)]
mod tests;
mod trace;

use std::process::ExitCode;

use lynqgate_plants::{Plant, Proof};

use bounds::Bounds;
use check::{Rollout, Searched};
use mutant::Card;
use relabel::Names;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let good = match argument.as_deref() {
        None => rules_hold() & mutants_are_found(),
        Some("traces") => mutant::all().all(|card| show(&card)),
        Some(name) => match Proof::Model.plant(name) {
            Ok(plant) => show(&Card::of(plant)),
            Err(unknown) => {
                eprintln!("{unknown}, and traces");
                false
            }
        },
    };
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn rules_hold() -> bool {
    println!(
        "{:<12} {:<9} {:>12} {:>11} {:>6} {:>8}  result",
        "world", "checked", "states", "unique", "depth", "seconds"
    );
    let mut good = true;
    for bounds in bounds::ALL {
        for (checked, property) in [("safety", None), ("progress", Some("progress"))] {
            let (found, told) = search(bounds, None, Names::Sorted, property);
            println!(
                "{:<12} {checked:<9} {:>12} {:>11} {:>6} {:>8.1}  {}",
                bounds.name,
                found.states,
                found.unique,
                found.depth,
                found.took.as_secs_f64(),
                found
                    .broken
                    .as_ref()
                    .map_or("holds", |(property, _)| property),
            );
            if found.broken.is_some() {
                good = false;
                // The names of a sorted state change from step to step: found again without sorting, it can be told.
                drop(told);
                let (_, told) = search(bounds, None, Names::Renumbered, property);
                told.iter().for_each(|line| println!("    {line}"));
            }
        }
    }
    good
}

fn mutants_are_found() -> bool {
    println!(
        "\n{:<20} {:<9} {:>5} {:>11} {:>8}  what it does",
        "mutant", "breaks", "steps", "states", "seconds"
    );
    let mut good = true;
    for card in mutant::all() {
        let (found, _) = hunt(&card);
        let steps = found
            .broken
            .as_ref()
            .map(|(_, steps)| steps.len().to_string());
        good &= steps.is_some() && world_is_sound(&card);
        println!(
            "{:<20} {:<9} {:>5} {:>11} {:>8.1}  {}",
            card.plant,
            card.breaks,
            steps.as_deref().unwrap_or("NONE"),
            found.unique,
            found.took.as_secs_f64(),
            card.plant.what()
        );
    }
    good
}

/// Without the mutant, its world must hold what the mutant breaks: else it was not the mutant that was found.
fn world_is_sound(card: &Card) -> bool {
    let (found, _) = search(card.bounds, None, Names::Sorted, Some(card.breaks));
    if found.broken.is_some() {
        println!(
            "the world of {} breaks {} without it",
            card.plant, card.breaks
        );
    }
    found.broken.is_none()
}

fn show(card: &Card) -> bool {
    println!("{}: {}", card.plant, card.plant.what());
    let (found, told) = hunt(card);
    told.iter().for_each(|line| println!("    {line}"));
    if found.broken.is_none() {
        println!("    NOT FOUND");
    }
    found.broken.is_some()
}

fn hunt(card: &Card) -> (Searched, Vec<String>) {
    search(
        card.bounds,
        Some(card.plant),
        card.names(),
        Some(card.breaks),
    )
}

/// Searches for what breaks this property, or any that can be seen in one state; also tells how.
fn search(
    bounds: Bounds,
    mutant: Option<Plant>,
    names: Names,
    property: Option<&'static str>,
) -> (Searched, Vec<String>) {
    match bounds.nodes {
        2 => search_among::<2>(bounds, mutant, names, property),
        3 => search_among::<3>(bounds, mutant, names, property),
        n => unreachable!("no bounds have {n} nodes"),
    }
}

fn search_among<const N: usize>(
    bounds: Bounds,
    mutant: Option<Plant>,
    names: Names,
    property: Option<&'static str>,
) -> (Searched, Vec<String>) {
    let model = || Rollout::<N>::new(bounds, mutant, names);
    let found = match property {
        Some("progress") => progress::search(&model()),
        property => check::search(model(), property),
    };
    let told = match &found.broken {
        Some((property, steps)) if names != Names::Sorted => trace::told(&model(), steps, property),
        _ => vec![],
    };
    (found, told)
}

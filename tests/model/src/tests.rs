//! The model in small: what `make model` does in minutes, in seconds.

use crate::bounds;
use crate::hunt;
use crate::mutant;
use crate::relabel::Names;
use crate::search;

#[test]
fn the_rules_hold() {
    for bounds in bounds::SMALL {
        for property in [None, Some("progress")] {
            let (found, _) = search(bounds, None, Names::Sorted, property);
            assert_eq!(found.broken, None, "in the world {:?}", bounds.name);
            assert!(
                found.depth > 10,
                "the world {:?} is nearly empty",
                bounds.name
            );
        }
    }
}

#[test]
fn sorted_and_unsorted_worlds_agree() {
    for bounds in bounds::SMALL.into_iter().filter(|bounds| bounds.nodes == 2) {
        let [sorted, renumbered] =
            [Names::Sorted, Names::Renumbered].map(|names| search(bounds, None, names, None).0);
        let ratio = renumbered.unique as f64 / sorted.unique as f64;
        assert!(
            (2.0..=4.0).contains(&ratio),
            "two nodes and two leaders change places in 4 ways, not {ratio} ({})",
            bounds.name
        );
        assert_eq!(renumbered.depth, sorted.depth, "{}", bounds.name);
    }
}

#[test]
fn every_mutant_is_found() {
    for card in mutant::all() {
        let (found, told) = hunt(&card);
        let (broken, steps) = found
            .broken
            .unwrap_or_else(|| panic!("{} is not found", card.name));
        assert_eq!(broken, card.breaks, "{}", card.name);
        assert_eq!(
            told.len(),
            steps.len() + 2,
            "{}: first and last state",
            card.name
        );
    }
}

/// Without its mutant, the same world is sound: it is the mutant that was found.
#[test]
fn the_worlds_of_the_mutants_are_sound() {
    for card in mutant::all() {
        let (found, _) = search(card.bounds, None, Names::Sorted, Some(card.breaks));
        assert_eq!(found.broken, None, "{}", card.name);
    }
}

//! The model in small: what `make model` does in minutes, in seconds.

use crate::bounds;
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
        // The whole world is explored for progress; sorted it is a quarter, and not told.
        let names = match card.breaks {
            "progress" => Names::Sorted,
            _ => card.names(),
        };
        let (found, told) = search(card.bounds, Some(card.plant), names, Some(card.breaks));
        let (broken, steps) = found
            .broken
            .unwrap_or_else(|| panic!("{} is not found", card.plant));
        assert_eq!(broken, card.breaks, "{}", card.plant);
        assert!(
            names == Names::Sorted || told.len() == steps.len() + 2,
            "{}: first state, steps, last state",
            card.plant
        );
    }
}

//! The judge by cases: each violation is found, and what is legal is not flagged.

mod fleet;
mod late;
mod legal;
mod partitions;
mod violations;

use super::Rule;
use fleet::Fleet;

/// A case: a name, what happens, and the rules that are broken by it.
struct Case {
    name: &'static str,
    play: fn(&mut Fleet),
    broken: &'static [Rule],
}

fn check(cases: &[Case]) {
    for case in cases {
        let mut fleet = Fleet::new(4, 2);
        (case.play)(&mut fleet);
        let conclusion = fleet.finish();
        let broken: Vec<Rule> = conclusion.counts.keys().copied().collect();
        assert_eq!(
            broken, case.broken,
            "{}: {:#?}",
            case.name, conclusion.violations
        );
        for violation in &conclusion.violations {
            assert!(violation.revision > 0, "{}: {violation:?}", case.name);
            assert!(
                !violation.what.contains("secret"),
                "{}: {violation:?}",
                case.name
            );
        }
    }
}

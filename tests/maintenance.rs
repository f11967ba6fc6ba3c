//! Kubernetes nodes in maintenance: the page of the rules, and the operator that keeps them, on the real control plane.

mod competing;
mod drained;
mod fleet;
pub mod scene;

use std::collections::BTreeSet;
use std::fs;

use crate::architecture::{quoted, tests_by_name};
use crate::tidy::root;

const PAGE: &str = "docs/MAINTENANCE.md";
const CASES: &str = "src/decide/maintenance/tests.rs";

/// Every rule has a case, every case a rule.
#[test]
fn each_rule_of_the_page_has_its_case() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let cases = fs::read_to_string(root().join(CASES)).expect("the cases");
    let cases: BTreeSet<String> = tests_by_name([cases]).into_keys().collect();
    let problems = problems_of(&page, &cases);
    assert!(problems.is_empty(), "{PAGE}:\n{}\n", problems.join("\n"));
}

#[test]
fn what_the_page_of_the_rules_has_wrong_is_found() {
    let cases = BTreeSet::from(["runs".to_owned()]);
    let page = |rows: &str| format!("# Page\n| when | case |\n|---|---|\n{rows}");
    for (rows, problem) in [
        ("| a | `runs` |\n", None),
        ("| a | `runs` |\n| b | |\n", Some("no case: | b | |")),
        ("| a | `runs`, `walks` |\n", Some("there is no case walks")),
        ("", Some("no row has the case runs")),
    ] {
        let problems = problems_of(&page(rows), &cases);
        assert_eq!(problems, Vec::from_iter(problem), "{rows}");
    }
}

/// The cases stand in the last cell of each row of a table whose head ends with "case".
fn problems_of(page: &str, cases: &BTreeSet<String>) -> Vec<String> {
    let (mut problems, mut named, mut of_rules) = (vec![], BTreeSet::new(), false);
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [.., last, _] = cells.as_slice() else {
            of_rules = false;
            continue;
        };
        match *last {
            "case" => of_rules = true,
            rule if rule.starts_with("---") => {}
            _ if !of_rules => {}
            last => {
                let of_row: Vec<&str> = quoted(last).collect();
                if of_row.is_empty() {
                    problems.push(format!("no case: {line}"));
                }
                let gone = of_row.iter().filter(|name| !cases.contains(**name));
                problems.extend(gone.map(|name| format!("there is no case {name}")));
                named.extend(of_row.into_iter().map(str::to_owned));
            }
        }
    }
    let unnamed = cases.difference(&named);
    problems.extend(unnamed.map(|name| format!("no row has the case {name}")));
    problems
}

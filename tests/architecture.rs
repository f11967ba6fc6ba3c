//! docs/ARCHITECTURE.md is read here: an invariant without a test, and a test or a path that is no longer there, fail.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::tidy::{root, rust_files};

const PAGE: &str = "docs/ARCHITECTURE.md";

/// The invariants that lynqgate promises.
const INVARIANTS: [&str; 11] = [
    "window",
    "gate",
    "exact",
    "idle",
    "progress",
    "revert",
    "reason",
    "rows",
    "ownership",
    "apart",
    "replaced",
];

/// Where a path on the page may start.
const ROOTS: [&str; 3] = ["", "src/", "tests/"];

#[test]
fn the_page_says_what_is_there() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let tests = tests_by_name(
        rust_files(["src", "go-templates", "webhook-certs", "tests"])
            .into_iter()
            .map(|path| fs::read_to_string(root().join(path)).expect("a source file")),
    );
    let problems = problems_of(&page, &tests, |path| root().join(path).exists());
    assert!(problems.is_empty(), "{PAGE}:\n{}\n", problems.join("\n"));
}

#[test]
fn what_the_page_has_wrong_is_found() {
    let source = "#[tokio::test(worker_threads = 2)]\nasync fn runs() {}\n\n#[test]\n#[ignore]\nfn sleeps() {}\nfn helps() {}\n";
    let tests = tests_by_name([source.to_owned()]);
    let rest: String = INVARIANTS[1..]
        .iter()
        .map(|name| format!("| {name}: x | `runs` |\n"))
        .collect();
    let page = |first: &str| format!("## Layers\n`src/api`\n## Invariants\n{first}{rest}## More\n");
    for (name, first, problem) in [
        ("all is well", "| window: x | `runs` |\n", None),
        (
            "no row",
            "",
            Some("the invariant window has no row with a test"),
        ),
        (
            "no test",
            "| window: x | soon |\n",
            Some("the invariant window has no row with a test"),
        ),
        (
            "no such test",
            "| window: x | `walks` |\n",
            Some("there is no test walks"),
        ),
        (
            "no test by its attribute",
            "| window: x | `helps` |\n",
            Some("there is no test helps"),
        ),
        (
            "a test that does not run",
            "| window: x | `sleeps` |\n",
            Some("the test sleeps is ignored"),
        ),
        (
            "no such path",
            "| window: `src/gone.rs` | `runs` |\n",
            Some("there is no src/gone.rs"),
        ),
    ] {
        let problems = problems_of(&page(first), &tests, |path| path == "src/api");
        assert_eq!(problems, Vec::from_iter(problem), "{name}");
    }
}

fn problems_of(
    page: &str,
    tests: &BTreeMap<String, bool>,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut problems = vec![];
    for path in quoted(page).filter(|text| text.contains('/') && !text.contains(['<', ':'])) {
        if !ROOTS.iter().any(|start| exists(&format!("{start}{path}"))) {
            problems.push(format!("there is no {path}"));
        }
    }
    let section = page.split_once("## Invariants").map_or("", |(_, rest)| {
        rest.split_once("\n## ")
            .map_or(rest, |(section, _)| section)
    });
    let mut proven = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with('|')) {
        let (invariant, held_by) = row[1..].split_once('|').expect("a row has two cells");
        let mut names = quoted(held_by).peekable();
        if names.peek().is_some() {
            proven.extend(invariant.trim().split_once(':').map(|(name, _)| name));
        }
        problems.extend(names.filter_map(|name| match tests.get(name) {
            None => Some(format!("there is no test {name}")),
            Some(false) => Some(format!("the test {name} is ignored")),
            Some(true) => None,
        }));
    }
    let unproven = INVARIANTS.iter().filter(|name| !proven.contains(*name));
    problems.extend(unproven.map(|name| format!("the invariant {name} has no row with a test")));
    problems
}

/// What stands between backticks.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The functions with a test's attribute, and whether they are run.
pub fn tests_by_name(sources: impl IntoIterator<Item = String>) -> BTreeMap<String, bool> {
    let mut tests = BTreeMap::new();
    for source in sources {
        let mut attributes = String::new();
        for line in source.lines().map(str::trim) {
            let function = line.trim_start_matches("async ").strip_prefix("fn ");
            if line.starts_with("#[") {
                attributes.push_str(line);
            } else if let Some(function) = function {
                let name = function.split(['(', '<']).next().unwrap_or_default();
                if attributes.contains("#[test]") || attributes.contains("#[tokio::test") {
                    tests.insert(name.to_owned(), !attributes.contains("#[ignore"));
                }
                attributes.clear();
            }
        }
    }
    tests
}

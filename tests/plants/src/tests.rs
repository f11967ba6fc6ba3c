//! The list, the proofs and docs/proofs/planted-bugs.md say the same. Held by reading text, as tests/tidy.rs does.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The code of what is in this directory and below.
fn code(directory: &Path) -> String {
    let entries = fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let text = |path: PathBuf| match path.is_dir() {
        true => code(&path),
        false => fs::read_to_string(path).unwrap_or_default(),
    };
    paths.map(text).collect()
}

/// Whether it finds them, each proof shows when it runs.
#[test]
fn a_proof_plays_what_the_list_says_it_finds() {
    for proof in Proof::ALL {
        let text = code(&root().join(match proof {
            Proof::Simulation => "tests/simulation/src",
            Proof::Model => "tests/model/src",
            Proof::Chaos => "tests/chaos",
            Proof::Histories => "src/decide/gate/tests",
        }));
        let named = text.split("Plant::").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric());
            rest[..end.unwrap_or(rest.len())].to_owned()
        });
        let listed = proof.plants().map(|plant| format!("{plant:?}"));
        assert_eq!(
            named.collect::<BTreeSet<_>>(),
            listed.collect::<BTreeSet<_>>(),
            "played by {proof:?}, and listed for it"
        );
    }
}

/// The numbers are those of a run, and change; all else is the list's.
#[test]
fn the_docs_have_the_list() {
    let page = fs::read_to_string(root().join("docs/proofs/planted-bugs.md")).expect("the page");
    let table = page.split("| plant | what it does |").nth(1);
    let rows: Vec<&str> = table
        .expect("the table of planted bugs")
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(rows.len(), Plant::ALL.len(), "a row for each plant");
    for (plant, row) in Plant::ALL.iter().zip(rows) {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        assert_eq!(cells.next(), Some(format!("`{plant}`").as_str()));
        assert_eq!(cells.next(), Some(plant.what()), "{plant}");
        for proof in Proof::ALL {
            let cell = cells.next().expect("a cell for each proof");
            let found_as = cell.split(':').next().unwrap_or_default();
            let good = match plant.breaks_in(proof) {
                None => cell.is_empty(),
                Some([]) => proof == Proof::Chaos && found_as == "not found",
                Some(breaks) => breaks.contains(&found_as),
            };
            assert!(good, "{plant} in {proof:?}: {cell:?}");
        }
    }
}

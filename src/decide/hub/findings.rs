//! Groups problems by cause: a thousand rows with one fault make one sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};

/// How many names of one cause, and how many causes, a message shows; it only counts the others.
const NAMES_MAX: usize = 5;
const CAUSES_MAX: usize = 10;

/// The object of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Row,
    Node,
}

impl Subject {
    fn noun(self, count: usize) -> &'static str {
        match (self, count) {
            (Subject::Row, 1) => "Row",
            (Subject::Row, _) => "Rows",
            (Subject::Node, 1) => "LynqNode",
            (Subject::Node, _) => "LynqNodes",
        }
    }
}

/// Sorted, so that a message changes only when the findings change, not with their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    by_cause: BTreeMap<(Subject, String), BTreeSet<String>>,
}

impl Findings {
    /// `cause` says what is wrong and what to do. It must contain nothing that differs between two objects.
    pub fn add(&mut self, subject: Subject, name: impl Into<String>, cause: impl Into<String>) {
        let names = self.by_cause.entry((subject, cause.into())).or_default();
        names.insert(name.into());
    }

    /// One sentence for each cause, with the objects that it affects.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        let shown = self.by_cause.iter().take(CAUSES_MAX);
        shown.map(|((subject, cause), names)| {
            let some: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
            let more = match names.len().saturating_sub(NAMES_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!(
                "{} {}{more}: {cause}",
                subject.noun(names.len()),
                some.join(", ")
            )
        })
    }

    /// The sentences, and how many causes they leave out.
    pub fn lines(&self) -> Vec<String> {
        let more = match self.by_cause.len().saturating_sub(CAUSES_MAX) {
            0 => None,
            1 => Some("And 1 more cause".to_owned()),
            more => Some(format!("And {more} more causes")),
        };
        self.sentences().chain(more).collect()
    }

    /// Every cause with the names of all objects that it affects.
    pub fn causes(&self) -> impl Iterator<Item = (&str, &BTreeSet<String>)> {
        let all = self.by_cause.iter();
        all.map(|((_, cause), names)| (cause.as_str(), names))
    }

    /// The same, for programs.
    pub fn json(&self) -> Value {
        let all = self.causes();
        all.map(|(cause, names)| json!({"cause": cause, "names": names}))
            .collect()
    }

    /// The names of all objects.
    pub fn names(&self) -> BTreeSet<&str> {
        let names = self.by_cause.values().flatten();
        names.map(String::as_str).collect()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join(". "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sentence_for_each_cause() {
        let mut findings = Findings::default();
        assert_eq!(findings.to_string(), "");
        findings.add(Subject::Node, "b-web", "too large");
        for row in ["7", "3", "5", "1", "4", "2", "6"] {
            findings.add(Subject::Row, row, "no uid; give it one");
        }
        assert_eq!(
            findings.to_string(),
            "Rows 1, 2, 3, 4, 5 and 2 more: no uid; give it one. LynqNode b-web: too large"
        );
        let causes: Vec<&str> = findings.causes().map(|(cause, _)| cause).collect();
        assert_eq!(causes, ["no uid; give it one", "too large"]);
        let names: Vec<&str> = findings.names().into_iter().collect();
        assert_eq!(names, ["1", "2", "3", "4", "5", "6", "7", "b-web"]);
        for n in 0..9 {
            findings.add(Subject::Node, "a-web", format!("{n}"));
        }
        assert_eq!(findings.lines().len(), CAUSES_MAX + 1);
        let text = findings.to_string();
        assert!(
            text.ends_with(". LynqNode a-web: 8. And 1 more cause"),
            "{text}"
        );
    }
}

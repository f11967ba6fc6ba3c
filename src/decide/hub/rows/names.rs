//! Names of nodes, and rows and forms whose nodes would have the same name. Decides nothing about their content.

use std::collections::BTreeSet;

use crate::decide::hub::rows::Rows;

/// Longest name of a Kubernetes object.
pub const NAME_CHARS_MAX: usize = 253;

/// Lynq's naming, kept so that existing nodes are found.
pub fn node_name(uid: &str, form: &str) -> String {
    format!("{uid}-{form}")
}

/// The row of a node of this form.
pub fn uid_of<'a>(node: &'a str, form: &str) -> &'a str {
    let uid = node.strip_suffix(form).and_then(|n| n.strip_suffix('-'));
    uid.unwrap_or_default()
}

/// A node that is neither created nor updated. An existing one stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SkippedNode {
    pub uid: String,
    pub form: String,
    pub reason: NameReason,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum NameReason {
    #[error(
        "its node would be named {name:?}, as the node of row {other_uid:?} and form {other_form:?} would; rename one of the forms or uids"
    )]
    Taken {
        name: String,
        other_uid: String,
        other_form: String,
    },
    #[error(
        "the name of its node would have {chars} characters; Kubernetes allows {NAME_CHARS_MAX}; shorten the form's name"
    )]
    TooLong { chars: u64 },
}

impl NameReason {
    /// For conditions, events and metric labels.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Taken { .. } => "NameTaken",
            Self::TooLong { .. } => "NameTooLong",
        }
    }
}

impl SkippedNode {
    /// What is wrong with the row.
    pub fn cause(&self) -> String {
        format!("left out of form {:?}: {}", self.form, self.reason)
    }
}

impl Rows {
    /// The (uid, form) pairs that must be left alone because of their node's name, sorted. Both sides of a
    /// collision are listed. Protected uids take part: their nodes occupy names.
    pub fn skipped_nodes(&self, forms: &BTreeSet<&str>) -> Vec<SkippedNode> {
        let uids: BTreeSet<&str> = (self.rows.keys())
            .chain(&self.settled)
            .chain(&self.protected)
            .map(String::as_str)
            .collect();
        let mut skipped = too_long(&uids, forms);
        skipped.extend(colliding(&uids, forms));
        skipped.sort();
        skipped
    }
}

fn too_long(uids: &BTreeSet<&str>, forms: &BTreeSet<&str>) -> Vec<SkippedNode> {
    let mut skipped = Vec::new();
    for form in forms {
        for uid in uids {
            let chars = uid.len() + 1 + form.len();
            if chars > NAME_CHARS_MAX {
                skipped.push(SkippedNode {
                    uid: (*uid).to_owned(),
                    form: (*form).to_owned(),
                    reason: NameReason::TooLong {
                        chars: chars as u64,
                    },
                });
            }
        }
    }
    skipped
}

/// `a` + `b-c` and `a-b` + `c` meet only where one form's name ends with `-` and the other's: with the middle
/// part fixed by the two forms, one look-up per uid finds every collision.
fn colliding(uids: &BTreeSet<&str>, forms: &BTreeSet<&str>) -> Vec<SkippedNode> {
    let mut skipped = Vec::new();
    for long_form in forms {
        for short_form in forms {
            let Some(middle) =
                (long_form.strip_suffix(short_form)).and_then(|rest| rest.strip_suffix('-'))
            else {
                continue;
            };
            for short_uid in uids {
                let long_uid = format!("{short_uid}-{middle}");
                if uids.contains(long_uid.as_str()) {
                    skipped.push(taken(short_uid, long_form, &long_uid, short_form));
                    skipped.push(taken(&long_uid, short_form, short_uid, long_form));
                }
            }
        }
    }
    skipped
}

fn taken(uid: &str, form: &str, other_uid: &str, other_form: &str) -> SkippedNode {
    SkippedNode {
        uid: uid.to_owned(),
        form: form.to_owned(),
        reason: NameReason::Taken {
            name: node_name(uid, form),
            other_uid: other_uid.to_owned(),
            other_form: other_form.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::texts::Texts;
    use crate::decide::hub::rows::{Row, RowCount};

    /// Active and protected uids.
    fn rows(active: &[&str], protected: &[&str]) -> Rows {
        let row = |uid: &&str| {
            let row = Row {
                uid: (*uid).to_owned(),
                variables: Texts::default(),
            };
            ((*uid).to_owned(), row)
        };
        Rows {
            read: RowCount(active.len() as u64),
            rows: active.iter().map(row).collect(),
            settled: BTreeSet::new(),
            inactive: 0,
            skipped: Vec::new(),
            protected: protected.iter().map(|uid| (*uid).to_owned()).collect(),
            unidentified: 0,
        }
    }

    #[test]
    fn collisions() {
        type Case<'a> = (
            &'a str,
            &'a [&'a str],
            &'a [&'a str],
            &'a [&'a str],
            &'a [(&'a str, &'a str)],
        );
        let cases: &[Case] = &[
            ("one form", &["a", "a-b"], &[], &["c"], &[]),
            (
                "two ways to read one name",
                &["a", "a-b", "x"],
                &[],
                &["b-c", "c"],
                &[("a", "b-c"), ("a-b", "c")],
            ),
            (
                "the other row is not there",
                &["a", "x"],
                &[],
                &["b-c", "c"],
                &[],
            ),
            (
                "suffix without a dash",
                &["a", "a-b"],
                &[],
                &["bc", "c"],
                &[],
            ),
            (
                "middle of several parts",
                &["a", "a-b-b2"],
                &[],
                &["b-b2-c", "c"],
                &[("a", "b-b2-c"), ("a-b-b2", "c")],
            ),
            (
                "three names in a chain",
                &["a", "a-b", "a-b-c"],
                &[],
                &["b-c-d", "c-d", "d"],
                &[
                    ("a", "b-c-d"),
                    ("a", "b-c-d"),
                    ("a-b", "c-d"),
                    ("a-b", "c-d"),
                    ("a-b-c", "d"),
                    ("a-b-c", "d"),
                ],
            ),
            (
                "a protected uid occupies its names",
                &["a"],
                &["a-b"],
                &["b-c", "c"],
                &[("a", "b-c"), ("a-b", "c")],
            ),
        ];
        for (name, active, protected, forms, expected) in cases {
            let found = rows(active, protected).skipped_nodes(&forms.iter().copied().collect());
            let pairs: Vec<_> = (found.iter())
                .map(|node| (node.uid.as_str(), node.form.as_str()))
                .collect();
            assert_eq!(pairs, *expected, "{name}");
            let codes: BTreeSet<_> = found.iter().map(|node| node.reason.code()).collect();
            assert!(codes.iter().all(|code| *code == "NameTaken"), "{name}");
        }
    }

    #[test]
    fn collision_message_names_both_sides() {
        let found = rows(&["a", "a-b"], &[]).skipped_nodes(&BTreeSet::from(["b-c", "c"]));
        assert_eq!(
            found[0].cause(),
            "left out of form \"b-c\": its node would be named \"a-b-c\", as the node of row \"a-b\" \
             and form \"c\" would; rename one of the forms or uids"
        );
    }

    #[test]
    fn length_of_the_name_counts_uid_and_form() {
        let form = "f".repeat(250);
        let forms = BTreeSet::from([form.as_str()]);
        let found = rows(&["a", "ab", "abc"], &[]).skipped_nodes(&forms);
        let reasons: Vec<_> = (found.iter())
            .map(|node| (node.uid.as_str(), node.reason.clone()))
            .collect();
        assert_eq!(
            reasons,
            [("abc", NameReason::TooLong { chars: 254 })],
            "253 characters are allowed"
        );
    }
}

//! Limits how many nodes one sync may delete or create. It decides only whether; the rows decide which.

use std::fmt;

use crate::api::names::{CONFIRM_CREATIONS, CONFIRM_DELETIONS};

/// Without `maxDeletions`, this many nodes may always go: the last rows of a small hub are no disaster.
pub const ALWAYS_ALLOWED: u64 = 5;

/// Without `maxCreations`, a hub's nodes may double in one sync, or grow by this many if that is more.
pub const NEW_ALLOWED: u64 = 100;

/// Without `maxCreations`, a hub without nodes may get this many.
pub const FIRST_ALLOWED: u64 = 1_000;

/// What a sync would do, and what the hub allows.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub direction: Direction,
    /// Nodes of the hub that are not being deleted already.
    pub existing: u64,
    /// The nodes to delete, or the nodes to create.
    pub count: u64,
    /// The hub's `spec.guard.maxDeletions` or `maxCreations`.
    pub max: Option<u64>,
    /// The hub's annotation [`Direction::annotation`]. It is valid once: a caller that acts on [`Verdict::Allow`] must remove it
    /// first, or it would allow the same number again.
    pub confirmation: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Deletions {
        /// Nodes whose form is gone, whatever their row.
        without_form: u64,
        /// Active rows without a usable uid ([`crate::decide::hub::rows::Rows::unidentified`]).
        unidentified: u64,
    },
    Creations,
}

impl Direction {
    pub fn annotation(self) -> &'static str {
        match self {
            Direction::Deletions { .. } => CONFIRM_DELETIONS,
            Direction::Creations => CONFIRM_CREATIONS,
        }
    }

    fn field(self) -> &'static str {
        match self {
            Direction::Deletions { .. } => "spec.guard.maxDeletions",
            Direction::Creations => "spec.guard.maxCreations",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// No node is deleted, or none created.
    Held(Held),
}

/// All deletions, or creations, of a sync wait. Confirming a smaller number releases none of them: the rest would pass as a small
/// change at the next sync, and lynqgate must not guess which ones to take first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub direction: Direction,
    pub count: u64,
    pub existing: u64,
    pub cause: Cause,
    pub confirmation: Confirmation,
    /// The first nodes to delete, and the first of their forms that are gone; empty if the caller does not add them.
    pub nodes: String,
    pub forms: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// More than half of the hub's nodes, and more than [`ALWAYS_ALLOWED`].
    MoreThanHalf,
    /// More than [`ALWAYS_ALLOWED`] whose form is gone, whatever their share of the hub's nodes.
    WithoutForm,
    /// More than one sync may create.
    MoreThanGrowth {
        allowed: u64,
    },
    MoreThanMax {
        max: u64,
    },
    /// Any of the nodes may belong to one of these rows.
    UnidentifiedRows {
        rows: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmation {
    Absent,
    /// The confirmed number differs: the user confirmed another change.
    Other {
        confirmed: u64,
    },
    Unreadable,
}

pub fn guard(asked: &Asked<'_>) -> Verdict {
    let Some(cause) = cause(asked) else {
        return Verdict::Allow;
    };
    let confirmation = match asked.confirmation.map(count) {
        None => Confirmation::Absent,
        Some(None) => Confirmation::Unreadable,
        Some(Some(confirmed)) if confirmed != asked.count => Confirmation::Other { confirmed },
        Some(Some(_)) => return Verdict::Allow,
    };
    Verdict::Held(Held {
        direction: asked.direction,
        count: asked.count,
        existing: asked.existing,
        cause,
        confirmation,
        nodes: String::new(),
        forms: String::new(),
    })
}

fn cause(asked: &Asked<'_>) -> Option<Cause> {
    let &Asked {
        existing, count, ..
    } = asked;
    if let Direction::Deletions {
        without_form,
        unidentified: rows @ 1..,
    } = asked.direction
        && count > without_form
    {
        return Some(Cause::UnidentifiedRows { rows });
    }
    let (limit, cause) = match (asked.max, asked.direction) {
        (Some(max), _) => (max, Cause::MoreThanMax { max }),
        (None, Direction::Deletions { without_form, .. }) => {
            let half = ALWAYS_ALLOWED.max(existing / 2);
            match count <= half && without_form > ALWAYS_ALLOWED {
                true => (ALWAYS_ALLOWED, Cause::WithoutForm),
                false => (half, Cause::MoreThanHalf),
            }
        }
        (None, Direction::Creations) => {
            let allowed = match existing {
                0 => FIRST_ALLOWED,
                existing => existing.max(NEW_ALLOWED),
            };
            (allowed, Cause::MoreThanGrowth { allowed })
        }
    };
    (count > limit).then_some(cause)
}

/// Accepts only digits: `u64::from_str` also accepts `+5`, which no user means as a count.
pub fn count(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            direction,
            count,
            existing,
            nodes,
            forms,
            ..
        } = self;
        let (annotation, field) = (direction.annotation(), direction.field());
        let (remedy, these) = match direction {
            Direction::Deletions { without_form, .. } => {
                let have = if *count == 1 { "has" } else { "have" };
                let (missing, remedy) = match without_form {
                    0 => ("active row", "Correct the rows"),
                    forms if forms == count => ("form", "Apply the form again"),
                    _ => (
                        "active row or form",
                        "Correct the rows, apply the form again",
                    ),
                };
                let forms = match forms.as_str() {
                    "" => String::new(),
                    forms => format!(" ({forms})"),
                };
                let named = if nodes.is_empty() { "" } else { ": " };
                write!(
                    f,
                    "{count} of {existing} nodes {have} no {missing}{forms} any more{named}{nodes}; lynqgate deletes none of them, because "
                )?;
                (remedy, "delete these nodes and their objects")
            }
            Direction::Creations => {
                let nodes = if *count == 1 { "node" } else { "nodes" };
                write!(f, "{count} new {nodes} wait: ")?;
                ("Correct the rows", "create these nodes")
            }
        };
        match self.cause {
            Cause::MoreThanHalf => write!(f, "that is more than half")?,
            Cause::WithoutForm => write!(
                f,
                "more than {ALWAYS_ALLOWED} nodes of a deleted form need a confirmation"
            )?,
            Cause::MoreThanGrowth { allowed } => {
                let of = if *existing == 1 { "node" } else { "nodes" };
                write!(
                    f,
                    "a sync of a hub with {existing} {of} creates at most {allowed} ({field})"
                )?;
            }
            Cause::MoreThanMax { max } => write!(f, "{field} allows {max} at a time")?,
            Cause::UnidentifiedRows { rows } => {
                let have = if rows == 1 { "row has" } else { "rows have" };
                write!(f, "{rows} active {have} no usable uid and may be theirs")?
            }
        }
        match self.confirmation {
            Confirmation::Absent => {}
            Confirmation::Other { confirmed } => {
                write!(f, " and {annotation} confirms {confirmed}")?;
            }
            Confirmation::Unreadable => write!(f, " and {annotation} is not a number")?,
        }
        write!(
            f,
            ". {remedy}; or, to {these}, annotate the hub with {annotation}=\"{count}\""
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletions(existing: u64, count: u64) -> Asked<'static> {
        let direction = Direction::Deletions {
            without_form: 0,
            unidentified: 0,
        };
        Asked {
            direction,
            existing,
            count,
            max: None,
            confirmation: None,
        }
    }

    fn creations(existing: u64, count: u64) -> Asked<'static> {
        Asked {
            direction: Direction::Creations,
            ..deletions(existing, count)
        }
    }

    fn of(without_form: u64, unidentified: u64) -> Direction {
        Direction::Deletions {
            without_form,
            unidentified,
        }
    }

    fn held(verdict: Verdict) -> Option<(Cause, Confirmation)> {
        match verdict {
            Verdict::Allow => None,
            Verdict::Held(held) => Some((held.cause, held.confirmation)),
        }
    }

    #[test]
    fn defaults() {
        let half = Some((Cause::MoreThanHalf, Confirmation::Absent));
        let cases = [
            ("nothing to delete", 0, 0, None),
            ("the last row may go", 1, 1, None),
            ("five of five may go", 5, 5, None),
            ("six of six are held", 6, 6, half),
            ("all of a fleet", 10_000, 10_000, half),
            ("exactly half", 20, 10, None),
            ("one more than half", 20, 11, half),
            ("half of an odd number, rounded down", 13, 6, None),
            ("more than half of an odd number", 13, 7, half),
            ("six, but less than half", 100, 6, None),
        ];
        for (name, existing, to_delete, expected) in cases {
            let verdict = guard(&deletions(existing, to_delete));
            assert_eq!(held(verdict), expected, "{name}");
        }
    }

    #[test]
    fn a_hub_grows_by_what_it_has() {
        let more_than = |allowed| Some((Cause::MoreThanGrowth { allowed }, Confirmation::Absent));
        let cases = [
            ("nothing to make", 0, 0, None),
            ("a first sync", 0, 1_000, None),
            ("a first sync of more", 0, 1_001, more_than(1_000)),
            ("a hundred beside one", 1, 100, None),
            ("more than a hundred beside one", 1, 101, more_than(100)),
            ("as many again", 150, 150, None),
            ("one more", 150, 151, more_than(150)),
            ("as many again of a large fleet", 10_000, 10_000, None),
            ("a cross join", 10_000, 990_000, more_than(10_000)),
        ];
        for (name, existing, count, expected) in cases {
            assert_eq!(held(guard(&creations(existing, count))), expected, "{name}");
        }
        let own = |max, confirmation| {
            held(guard(&Asked {
                max: Some(max),
                confirmation,
                ..creations(0, 150)
            }))
        };
        let max = |max, confirmation| Some((Cause::MoreThanMax { max }, confirmation));
        assert_eq!(own(150, None), None, "the hub's own limit");
        assert_eq!(own(149, None), max(149, Confirmation::Absent));
        let other = Confirmation::Other { confirmed: 149 };
        assert_eq!(own(0, Some("149")), max(0, other));
        assert_eq!(own(0, Some("150")), None, "confirmed");
    }

    #[test]
    fn limit_of_the_hub() {
        let cases = [
            ("below", 3, 100, 2, None),
            ("at", 3, 100, 3, None),
            ("above", 3, 100, 4, Some(3)),
            ("none at all", 0, 100, 1, Some(0)),
            ("it replaces the default", 50, 50, 50, None),
        ];
        for (name, max, existing, to_delete, expected) in cases {
            let verdict = guard(&Asked {
                max: Some(max),
                ..deletions(existing, to_delete)
            });
            let expected = expected.map(|max| (Cause::MoreThanMax { max }, Confirmation::Absent));
            assert_eq!(held(verdict), expected, "{name}");
        }
    }

    #[test]
    fn confirmations() {
        let cases = [
            ("the very number", "20", None),
            ("more", "21", Some(Confirmation::Other { confirmed: 21 })),
            ("fewer", "19", Some(Confirmation::Other { confirmed: 19 })),
            ("zero", "0", Some(Confirmation::Other { confirmed: 0 })),
            ("empty", "", Some(Confirmation::Unreadable)),
            ("a word", "true", Some(Confirmation::Unreadable)),
            ("a sign", "+20", Some(Confirmation::Unreadable)),
            ("a space", "20 ", Some(Confirmation::Unreadable)),
            (
                "beyond 64 bits",
                "99999999999999999999",
                Some(Confirmation::Unreadable),
            ),
        ];
        for (name, confirmation, expected) in cases {
            let verdict = guard(&Asked {
                confirmation: Some(confirmation),
                ..deletions(20, 20)
            });
            let expected = expected.map(|confirmation| (Cause::MoreThanHalf, confirmation));
            assert_eq!(held(verdict), expected, "{name}");
        }
    }

    #[test]
    fn a_stale_or_broken_confirmation_holds_nothing_by_itself() {
        let verdict = guard(&Asked {
            confirmation: Some("no"),
            ..deletions(20, 1)
        });
        assert_eq!(verdict, Verdict::Allow);
    }

    #[test]
    fn rows_without_uid_hold_even_one_deletion() {
        let suspect = Asked {
            direction: of(0, 2),
            ..deletions(20, 1)
        };
        let cause = Cause::UnidentifiedRows { rows: 2 };
        assert_eq!(held(guard(&suspect)), Some((cause, Confirmation::Absent)));
        let confirmed = Asked {
            confirmation: Some("1"),
            ..suspect
        };
        assert_eq!(guard(&confirmed), Verdict::Allow);
        let formless = Asked {
            direction: of(1, 2),
            ..suspect
        };
        assert_eq!(guard(&formless), Verdict::Allow, "no row could keep it");
    }

    #[test]
    fn nodes_that_go_with_their_form_are_few() {
        let half = Some((Cause::MoreThanHalf, Confirmation::Absent));
        let formless = Some((Cause::WithoutForm, Confirmation::Absent));
        let cases = [
            ("five", 100, 5, 5, None),
            ("six", 100, 6, 6, formless),
            ("six, and their rows", 100, 20, 6, formless),
            ("five, and rows", 100, 20, 5, None),
            ("more than half", 9, 7, 7, half),
        ];
        for (name, existing, count, without_form, expected) in cases {
            let asked = Asked {
                direction: of(without_form, 0),
                ..deletions(existing, count)
            };
            assert_eq!(held(guard(&asked)), expected, "{name}");
            let own_limit = Asked {
                max: Some(count),
                ..asked
            };
            assert_eq!(guard(&own_limit), Verdict::Allow, "{name}");
        }
    }

    #[test]
    fn messages() {
        let cases = [
            (
                deletions(20, 20),
                "20 of 20 nodes have no active row any more; lynqgate deletes none of them, because that is more than half. \
                 Correct the rows; or, to delete these nodes and their objects, annotate the hub with lynq.sh/confirm-deletions=\"20\"",
            ),
            (
                Asked {
                    max: Some(3),
                    confirmation: Some("4"),
                    ..deletions(20, 5)
                },
                "5 of 20 nodes have no active row any more; lynqgate deletes none of them, because spec.guard.maxDeletions \
                 allows 3 at a time and lynq.sh/confirm-deletions confirms 4. Correct the rows; or, to delete these nodes and their objects, \
                 annotate the hub with lynq.sh/confirm-deletions=\"5\"",
            ),
            (
                Asked {
                    direction: of(0, 1),
                    ..deletions(9, 1)
                },
                "1 of 9 nodes has no active row any more; lynqgate deletes none of them, because 1 active row has no usable uid \
                 and may be theirs. Correct the rows; or, to delete these nodes and their objects, annotate the hub with \
                 lynq.sh/confirm-deletions=\"1\"",
            ),
            (
                Asked {
                    direction: of(7, 0),
                    ..deletions(9, 7)
                },
                "7 of 9 nodes have no form any more; lynqgate deletes none of them, because that is more than half. Apply the form again; or, to \
                 delete these nodes and their objects, annotate the hub with lynq.sh/confirm-deletions=\"7\"",
            ),
            (
                Asked {
                    direction: of(7, 0),
                    ..deletions(14, 7)
                },
                "7 of 14 nodes have no form any more; lynqgate deletes none of them, because more than 5 nodes of a deleted form need a \
                 confirmation. Apply the form again; or, to delete these nodes and their objects, annotate the hub with \
                 lynq.sh/confirm-deletions=\"7\"",
            ),
            (
                Asked {
                    direction: of(5, 0),
                    ..deletions(9, 7)
                },
                "7 of 9 nodes have no active row or form any more; lynqgate deletes none of them, because that is more than \
                 half. Correct the rows, apply the form again; or, to delete these nodes and their objects, annotate the hub with \
                 lynq.sh/confirm-deletions=\"7\"",
            ),
            (
                creations(3, 150),
                "150 new nodes wait: a sync of a hub with 3 nodes creates at most 100 (spec.guard.maxCreations). Correct the rows; or, to create \
                 these nodes, annotate the hub with lynq.sh/confirm-creations=\"150\"",
            ),
            (
                Asked {
                    max: Some(20),
                    confirmation: Some("149"),
                    ..creations(1, 150)
                },
                "150 new nodes wait: spec.guard.maxCreations allows 20 at a time and lynq.sh/confirm-creations confirms 149. \
                 Correct the rows; or, to create these nodes, annotate the hub with lynq.sh/confirm-creations=\"150\"",
            ),
        ];
        for (asked, expected) in cases {
            let Verdict::Held(held) = guard(&asked) else {
                panic!("held: {expected}");
            };
            assert_eq!(held.to_string(), expected);
        }
    }

    #[test]
    fn the_nodes_and_their_forms_are_named() {
        let Verdict::Held(held) = guard(&Asked {
            direction: of(5, 0),
            ..deletions(9, 7)
        }) else {
            panic!("held");
        };
        let held = Held {
            nodes: "a-web, b-web, c-web and 4 more".to_owned(),
            forms: "web".to_owned(),
            ..held
        };
        let begins = "7 of 9 nodes have no active row or form (web) any more: a-web, b-web, c-web and 4 more; lynqgate deletes none";
        assert!(held.to_string().starts_with(begins), "{held}");
    }
}

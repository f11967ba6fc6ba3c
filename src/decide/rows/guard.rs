//! How many nodes one sync may delete. Decides only whether; which nodes go follows from the rows.

use std::fmt;

use crate::api::names::CONFIRM_DELETIONS;

/// Without `maxDeletions`, this many nodes may always go: the last rows of a small hub are no disaster.
pub const ALWAYS_ALLOWED: u64 = 5;

/// What a sync would do, and what its hub says about it.
#[derive(Debug, Clone, Copy)]
pub struct Deletions<'a> {
    /// Nodes of the hub that are not being deleted already.
    pub existing: u64,
    /// Those of them that there is a reason to delete.
    pub to_delete: u64,
    /// Those of these whose form is gone, whatever their row says.
    pub without_form: u64,
    /// Active rows without a usable uid ([`crate::decide::rows::Rows::unidentified`]).
    pub unidentified: u64,
    /// The hub's `spec.guard.maxDeletions`.
    pub max: Option<u64>,
    /// The hub's annotation `lynq.sh/confirm-deletions`. It is spent by a sync that deletes: whoever acts on
    /// [`Verdict::Allow`] removes it first, or it would let the same number go again.
    pub confirmation: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// Nothing is deleted.
    Held(Held),
}

/// All of a sync's deletions wait. A confirmation of fewer releases none of them: the rest would pass as a small
/// change at the next sync, and which ones to take first is nobody's to guess.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub count: u64,
    pub without_form: u64,
    pub existing: u64,
    pub cause: Cause,
    pub confirmation: Confirmation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// More than half of the hub's nodes, and more than [`ALWAYS_ALLOWED`].
    MoreThanHalf,
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
    /// Another count: what is to go now is not what was looked at.
    Other {
        confirmed: u64,
    },
    Unreadable,
}

pub fn guard(deletions: &Deletions<'_>) -> Verdict {
    let Some(cause) = cause(deletions) else {
        return Verdict::Allow;
    };
    let confirmation = match deletions.confirmation.map(count) {
        None => Confirmation::Absent,
        Some(None) => Confirmation::Unreadable,
        Some(Some(confirmed)) if confirmed != deletions.to_delete => {
            Confirmation::Other { confirmed }
        }
        Some(Some(_)) => return Verdict::Allow,
    };
    Verdict::Held(Held {
        count: deletions.to_delete,
        without_form: deletions.without_form,
        existing: deletions.existing,
        cause,
        confirmation,
    })
}

fn cause(deletions: &Deletions<'_>) -> Option<Cause> {
    let &Deletions {
        existing,
        to_delete,
        without_form,
        unidentified,
        max,
        ..
    } = deletions;
    if to_delete == 0 {
        return None;
    }
    if unidentified > 0 && to_delete > without_form {
        return Some(Cause::UnidentifiedRows { rows: unidentified });
    }
    match max {
        Some(max) => (to_delete > max).then_some(Cause::MoreThanMax { max }),
        None => {
            (to_delete > ALWAYS_ALLOWED && to_delete > existing / 2).then_some(Cause::MoreThanHalf)
        }
    }
}

/// Digits only: what `u64::from_str` also takes (`+5`) is no count that anybody meant to write.
fn count(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl Held {
    /// For conditions, events and metric labels.
    pub fn code(&self) -> &'static str {
        match self.cause {
            Cause::MoreThanHalf => "MoreThanHalf",
            Cause::MoreThanMax { .. } => "MoreThanMax",
            Cause::UnidentifiedRows { .. } => "UnidentifiedRows",
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            count, existing, ..
        } = self;
        let have = if *count == 1 { "has" } else { "have" };
        let (missing, remedy) = match self.without_form {
            0 => ("active row", "Mend the rows"),
            forms if forms == *count => ("form", "Bring the form back"),
            _ => ("active row or form", "Mend the rows, bring the form back"),
        };
        write!(
            f,
            "{count} of {existing} nodes {have} no {missing} any more; none of them is deleted, because "
        )?;
        match self.cause {
            Cause::MoreThanHalf => write!(f, "that is more than half")?,
            Cause::MoreThanMax { max } => {
                write!(f, "spec.guard.maxDeletions allows {max} at a time")?;
            }
            Cause::UnidentifiedRows { rows } => {
                let have = if rows == 1 { "row has" } else { "rows have" };
                write!(f, "{rows} active {have} no usable uid and may be theirs")?
            }
        }
        match self.confirmation {
            Confirmation::Absent => {}
            Confirmation::Other { confirmed } => {
                write!(f, " and {CONFIRM_DELETIONS} confirms {confirmed}")?;
            }
            Confirmation::Unreadable => write!(f, " and {CONFIRM_DELETIONS} is not a number")?,
        }
        write!(
            f,
            ". {remedy}, or, if these nodes and their objects shall go, annotate the hub with {CONFIRM_DELETIONS}=\"{count}\""
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletions(existing: u64, to_delete: u64) -> Deletions<'static> {
        Deletions {
            existing,
            to_delete,
            without_form: 0,
            unidentified: 0,
            max: None,
            confirmation: None,
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
    fn limit_of_the_hub() {
        let cases = [
            ("below", 3, 100, 2, None),
            ("at", 3, 100, 3, None),
            ("above", 3, 100, 4, Some(3)),
            ("none at all", 0, 100, 1, Some(0)),
            ("it replaces the default", 50, 50, 50, None),
        ];
        for (name, max, existing, to_delete, expected) in cases {
            let verdict = guard(&Deletions {
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
            let verdict = guard(&Deletions {
                confirmation: Some(confirmation),
                ..deletions(20, 20)
            });
            let expected = expected.map(|confirmation| (Cause::MoreThanHalf, confirmation));
            assert_eq!(held(verdict), expected, "{name}");
        }
    }

    #[test]
    fn a_stale_or_broken_confirmation_holds_nothing_by_itself() {
        let verdict = guard(&Deletions {
            confirmation: Some("no"),
            ..deletions(20, 1)
        });
        assert_eq!(verdict, Verdict::Allow);
    }

    #[test]
    fn rows_without_uid_hold_even_one_deletion() {
        let suspect = Deletions {
            unidentified: 2,
            ..deletions(20, 1)
        };
        let cause = Cause::UnidentifiedRows { rows: 2 };
        assert_eq!(held(guard(&suspect)), Some((cause, Confirmation::Absent)));
        let confirmed = Deletions {
            confirmation: Some("1"),
            ..suspect
        };
        assert_eq!(guard(&confirmed), Verdict::Allow);
        let formless = Deletions {
            without_form: 1,
            ..suspect
        };
        assert_eq!(guard(&formless), Verdict::Allow, "no row could keep it");
    }

    #[test]
    fn messages() {
        let cases = [
            (
                deletions(20, 20),
                "20 of 20 nodes have no active row any more; none of them is deleted, because that is more than half. \
                 Mend the rows, or, if these nodes and their objects shall go, annotate the hub with lynq.sh/confirm-deletions=\"20\"",
            ),
            (
                Deletions {
                    max: Some(3),
                    confirmation: Some("4"),
                    ..deletions(20, 5)
                },
                "5 of 20 nodes have no active row any more; none of them is deleted, because spec.guard.maxDeletions \
                 allows 3 at a time and lynq.sh/confirm-deletions confirms 4. Mend the rows, or, if these nodes and their objects \
                 shall go, annotate the hub with lynq.sh/confirm-deletions=\"5\"",
            ),
            (
                Deletions {
                    unidentified: 1,
                    ..deletions(9, 1)
                },
                "1 of 9 nodes has no active row any more; none of them is deleted, because 1 active row has no usable uid \
                 and may be theirs. Mend the rows, or, if these nodes and their objects shall go, annotate the hub with \
                 lynq.sh/confirm-deletions=\"1\"",
            ),
            (
                Deletions {
                    without_form: 7,
                    ..deletions(9, 7)
                },
                "7 of 9 nodes have no form any more; none of them is deleted, because that is more than half. Bring the \
                 form back, or, if these nodes and their objects shall go, annotate the hub with lynq.sh/confirm-deletions=\"7\"",
            ),
            (
                Deletions {
                    without_form: 5,
                    ..deletions(9, 7)
                },
                "7 of 9 nodes have no active row or form any more; none of them is deleted, because that is more than \
                 half. Mend the rows, bring the form back, or, if these nodes and their objects shall go, annotate the hub with \
                 lynq.sh/confirm-deletions=\"7\"",
            ),
        ];
        for (deletions, expected) in cases {
            let Verdict::Held(held) = guard(&deletions) else {
                panic!("held: {expected}");
            };
            assert_eq!(held.to_string(), expected);
        }
    }
}

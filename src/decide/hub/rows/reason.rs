//! Why a row is skipped, worded for the user who can correct the table. Never shows a value except the uid.

use crate::decide::hub::rows::VALUE_BYTES_MAX;
use crate::decide::hub::rows::uid::UID_CHARS_MAX;

/// One reason why a row that is not inactive is unusable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SkipReason {
    #[error("the uid is NULL; fill it in, or deactivate the row")]
    UidNull,
    #[error("the uid is empty; fill it in, or deactivate the row")]
    UidEmpty,
    #[error(
        "the uid has white space or NUL characters around it; trim the column, or read it through a view that does"
    )]
    UidSpace,
    #[error(
        "the uid has {chars} characters; at most {UID_CHARS_MAX} fit into a Kubernetes label, so use another column or shorten it in a view"
    )]
    UidTooLong { chars: u64 },
    #[error("the uid is not UTF-8 text; map a column that is, or convert it in a view")]
    UidNotText,
    #[error(
        "the uid cannot be part of a Kubernetes name; use lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"
    )]
    UidInvalid,
    #[error(
        "{rows} active rows have this uid (case and surrounding white space aside); leave one of them active"
    )]
    UidDuplicate { rows: u64 },
    #[error(
        "column {column:?} has a value that is neither active nor inactive, so its nodes stay as they are; write 1 or 0, or list the value in the hub's activeValues or inactiveValues"
    )]
    ActivateUndecided { column: String },
    #[error(
        "column {column:?} does not hold UTF-8 text; map a text column, or convert it in a view"
    )]
    ValueNotText { column: String },
    #[error(
        "column {column:?} holds {bytes} bytes; at most {VALUE_BYTES_MAX} can be used in a template"
    )]
    ValueTooLarge { column: String, bytes: u64 },
}

impl SkipReason {
    /// For conditions, events and metric labels.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UidNull => "UidNull",
            Self::UidEmpty => "UidEmpty",
            Self::UidSpace => "UidSpace",
            Self::UidTooLong { .. } => "UidTooLong",
            Self::UidNotText => "UidNotText",
            Self::UidInvalid => "UidInvalid",
            Self::UidDuplicate { .. } => "UidDuplicate",
            Self::ActivateUndecided { .. } => "ActivateUndecided",
            Self::ValueNotText { .. } => "ValueNotText",
            Self::ValueTooLarge { .. } => "ValueTooLarge",
        }
    }
}

/// A row that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedRow {
    pub number: u64,
    /// Escaped and cut for display; empty for NULL and for the empty uid.
    pub uid: String,
    pub reason: SkipReason,
}

impl SkippedRow {
    pub(super) fn new(number: u64, uid: String, reason: SkipReason) -> Self {
        Self {
            number,
            uid,
            reason,
        }
    }

    /// The uid, or, without one, the place in the result.
    pub fn name(&self) -> String {
        // The place may change from read to read: a message that named it always would change as often.
        if self.uid.is_empty() {
            format!("no. {}", self.number)
        } else {
            format!("\"{}\"", self.uid)
        }
    }
}

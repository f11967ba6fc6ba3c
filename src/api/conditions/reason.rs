//! The reasons of the conditions, each once, and which conditions give them.

use schemars::JsonSchema;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};

/// A kind and a type of its conditions.
type ConditionOf = (&'static str, &'static str);

const HUB_READY: &[ConditionOf] = &[("LynqHub", "Ready")];
const ROWS_SKIPPED: &[ConditionOf] = &[("LynqHub", "RowsSkipped")];
const RENDER_FAILED: &[ConditionOf] = &[("LynqHub", "RenderFailed")];
const WRITE_FAILED: &[ConditionOf] = &[("LynqHub", "WriteFailed")];
const DELETIONS_HELD: &[ConditionOf] = &[("LynqHub", "DeletionsHeld")];
const CREATIONS_HELD: &[ConditionOf] = &[("LynqHub", "CreationsHeld")];
const NOT_HELD_BY_HUB: &[ConditionOf] =
    &[("LynqHub", "DeletionsHeld"), ("LynqHub", "CreationsHeld")];
const VALID: &[ConditionOf] = &[("LynqForm", "Valid")];
// What is not valid has no rollout that could be complete.
const INVALID: &[ConditionOf] = &[("LynqForm", "Valid"), ("LynqForm", "RolloutComplete")];
const APPLIED: &[ConditionOf] = &[("LynqForm", "Applied")];
const COMPLETE: &[ConditionOf] = &[("LynqForm", "RolloutComplete")];
const REVERTED: &[ConditionOf] = &[("LynqForm", "Reverted")];
const FORM_HELD: &[ConditionOf] = &[("LynqForm", "Held")];
const NODE_HELD: &[ConditionOf] = &[("LynqNode", "Held")];
const HELD: &[ConditionOf] = &[("LynqForm", "Held"), ("LynqNode", "Held")];
const NODE_READY: &[ConditionOf] = &[("LynqNode", "Ready")];
const READY_AND_ROLLED: &[ConditionOf] = &[("LynqNode", "Ready"), ("LynqNode", "Rolled")];
const PROGRESSING: &[ConditionOf] = &[("LynqNode", "Progressing")];
const CONFLICTED: &[ConditionOf] = &[("LynqNode", "Conflicted")];
const DEGRADED: &[ConditionOf] = &[("LynqNode", "Degraded")];
const ROLLED: &[ConditionOf] = &[("LynqNode", "Rolled")];
const EDITED: &[ConditionOf] = &[("LynqNode", "Edited")];

/// Why a condition is as it is, in a word. A test takes all of them from the schema, and asks docs/LYNQ.md for each.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ConditionReason {
    DatabaseConnected,
    DatabaseConnectionFailed,
    SecretNotFound,
    SourceInvalid,
    InvalidSpec,
    AllRowsUsable,
    UnusableRows,
    AllRendered,
    TemplateErrors,
    AllWritten,
    NodesNotWritten,
    NothingHeld,
    TooManyDeletions,
    TooManyCreations,

    ValidationPassed,
    ValidationFailed,
    HubNotFound,
    HubInvalid,
    HubGoing,
    AllNodesReady,
    NotAllNodesReady,
    NoNodes,
    InProgress,
    Stalled,
    Failed,
    Complete,
    Reverted,

    NotHeld,
    Releasing,
    ReleaseRefused,
    LedgerRefused,
    SlotReserved,
    WindowFull,
    Soaking,
    ReadinessUnknown,
    BrokenBefore,
    HubWindowFull,
    DomainFull,
    RolloutFailed,
    GroupNotDone,
    AwaitingPromotion,
    NotRendered,
    Paused,
    DeletionsHeld,
    Starting,
    LiveContentUnknown,
    NoForm,
    NoLeader,

    Reconciled,
    NotReleased,
    DependencyError,
    ResourcesFailedAndConflicted,
    ResourcesConflicted,
    ResourcesFailed,
    NotAllResourcesReady,
    LookFailed,
    Deleting,
    Reconciling,
    ReconcileComplete,
    ResourceConflict,
    NoConflict,
    Healthy,
    DependencyCycle,
    ResourceFailuresAndConflicts,
    ResourceConflicts,
    ResourceFailures,
    DeletionFailed,
    Rolled,
    NotRolled,
    AsRendered,
    NotAsRendered,
}

impl ConditionReason {
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The conditions that give it.
    pub fn conditions(self) -> &'static [ConditionOf] {
        self.row().1
    }

    /// The one that is read in a status.
    pub fn named(word: &str) -> Option<Self> {
        Self::deserialize(StrDeserializer::<Error>::new(word)).ok()
    }

    fn row(self) -> (&'static str, &'static [ConditionOf]) {
        match self {
            Self::DatabaseConnected => ("DatabaseConnected", HUB_READY),
            Self::DatabaseConnectionFailed => ("DatabaseConnectionFailed", HUB_READY),
            Self::SecretNotFound => ("SecretNotFound", HUB_READY),
            Self::SourceInvalid => ("SourceInvalid", HUB_READY),
            Self::InvalidSpec => ("InvalidSpec", HUB_READY),
            Self::AllRowsUsable => ("AllRowsUsable", ROWS_SKIPPED),
            Self::UnusableRows => ("UnusableRows", ROWS_SKIPPED),
            Self::AllRendered => ("AllRendered", RENDER_FAILED),
            Self::TemplateErrors => ("TemplateErrors", RENDER_FAILED),
            Self::AllWritten => ("AllWritten", WRITE_FAILED),
            Self::NodesNotWritten => ("NodesNotWritten", WRITE_FAILED),
            Self::NothingHeld => ("NothingHeld", NOT_HELD_BY_HUB),
            Self::TooManyDeletions => ("TooManyDeletions", DELETIONS_HELD),
            Self::TooManyCreations => ("TooManyCreations", CREATIONS_HELD),

            Self::ValidationPassed => ("ValidationPassed", VALID),
            Self::ValidationFailed => ("ValidationFailed", INVALID),
            Self::HubNotFound => ("HubNotFound", INVALID),
            Self::HubInvalid => ("HubInvalid", INVALID),
            Self::HubGoing => ("HubGoing", INVALID),
            Self::AllNodesReady => ("AllNodesReady", APPLIED),
            Self::NotAllNodesReady => ("NotAllNodesReady", APPLIED),
            Self::NoNodes => (
                "NoNodes",
                &[("LynqForm", "Applied"), ("LynqForm", "RolloutComplete")],
            ),
            Self::InProgress => ("InProgress", COMPLETE),
            Self::Stalled => ("Stalled", COMPLETE),
            Self::Failed => ("Failed", COMPLETE),
            Self::Complete => ("Complete", COMPLETE),
            Self::Reverted => ("Reverted", REVERTED),

            Self::NotHeld => ("NotHeld", HELD),
            Self::Releasing => ("Releasing", NODE_HELD),
            Self::ReleaseRefused => ("ReleaseRefused", HELD),
            Self::LedgerRefused => ("LedgerRefused", HELD),
            Self::SlotReserved => ("SlotReserved", HELD),
            Self::WindowFull => ("WindowFull", HELD),
            // A node says `WindowFull` in their place.
            Self::Soaking => ("Soaking", FORM_HELD),
            Self::ReadinessUnknown => ("ReadinessUnknown", FORM_HELD),
            Self::BrokenBefore => ("BrokenBefore", FORM_HELD),
            Self::HubWindowFull => ("HubWindowFull", HELD),
            Self::DomainFull => ("DomainFull", HELD),
            Self::RolloutFailed => ("RolloutFailed", HELD),
            Self::GroupNotDone => ("GroupNotDone", HELD),
            Self::AwaitingPromotion => ("AwaitingPromotion", HELD),
            Self::NotRendered => ("NotRendered", HELD),
            Self::Paused => ("Paused", HELD),
            Self::DeletionsHeld => ("DeletionsHeld", HELD),
            Self::Starting => ("Starting", HELD),
            Self::LiveContentUnknown => (
                "LiveContentUnknown",
                &[
                    ("LynqForm", "Held"),
                    ("LynqNode", "Held"),
                    ("LynqNode", "Ready"),
                ],
            ),
            Self::NoForm => ("NoForm", NODE_HELD),
            // Nobody is there to write it: `explain` says it.
            Self::NoLeader => ("NoLeader", &[]),

            Self::Reconciled => ("Reconciled", NODE_READY),
            Self::NotReleased => ("NotReleased", NODE_READY),
            Self::DependencyError => ("DependencyError", NODE_READY),
            Self::ResourcesFailedAndConflicted => ("ResourcesFailedAndConflicted", NODE_READY),
            Self::ResourcesConflicted => ("ResourcesConflicted", NODE_READY),
            Self::ResourcesFailed => ("ResourcesFailed", NODE_READY),
            Self::NotAllResourcesReady => ("NotAllResourcesReady", NODE_READY),
            Self::LookFailed => ("LookFailed", READY_AND_ROLLED),
            Self::Deleting => ("Deleting", READY_AND_ROLLED),
            Self::Reconciling => ("Reconciling", PROGRESSING),
            Self::ReconcileComplete => ("ReconcileComplete", PROGRESSING),
            Self::ResourceConflict => ("ResourceConflict", CONFLICTED),
            Self::NoConflict => ("NoConflict", CONFLICTED),
            Self::Healthy => ("Healthy", DEGRADED),
            Self::DependencyCycle => ("DependencyCycle", DEGRADED),
            Self::ResourceFailuresAndConflicts => ("ResourceFailuresAndConflicts", DEGRADED),
            Self::ResourceConflicts => ("ResourceConflicts", DEGRADED),
            Self::ResourceFailures => ("ResourceFailures", DEGRADED),
            Self::DeletionFailed => ("DeletionFailed", DEGRADED),
            Self::Rolled => ("Rolled", ROLLED),
            Self::NotRolled => ("NotRolled", ROLLED),
            Self::AsRendered => ("AsRendered", EDITED),
            Self::NotAsRendered => ("NotAsRendered", EDITED),
        }
    }
}

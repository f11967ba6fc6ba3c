//! The reasons of the events, each once, and whether a person should look.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::api::conditions::ConditionReason;

/// Something that is as it should be.
pub const NORMAL: &str = "Normal";
/// Something that a person should look at.
pub const WARNING: &str = "Warning";

/// Why an event is written, in a word. A test takes all of them from the schema, and asks docs/LYNQ.md for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
pub enum EventReason {
    // Of a hub.
    DatabaseQueryFailed,
    InvalidSpec,
    RowsSkipped,
    TemplateRenderFailed,
    NodeWriteFailed,
    DeletionsHeld,
    CreationsHeld,
    ConfirmationNotNeeded,
    NodeDeleted,
    RolloutThrottled,
    ReleasesInterrupted,

    // Of a form; the first one of a hub, too.
    StatusRefused,
    RolloutStarted,
    RolloutComplete,
    RolloutHalted,
    RolloutReverted,
    RolloutStalled,

    // Of a node.
    Forced,
    Edited,
    PastTheGate,
    LookFailed,
    TemplateAppliedSuccess,
    TemplateAppliedPartial,
    ResourceConflict,
    ApplyFailed,
    DependencySkipped,
    DependencyFailedButProceeding,
    ReadinessTimeout,
    ResourceRecreated,
    ResourceDeleted,
    ResourceRetained,
    OrphanedResourceDeleted,
    OrphanedResourceRetained,
    DeletionFailed,
    CleanupPartialFailure,
    LynqNodeDeleted,

    // Of a StatefulSet.
    PartitionLowered,
    BrokenPodDeleted,
    PartitionStuck,

    // Of an object.
    OrphanMarkersAdded,
    OrphanMarkersRemoved,

    // Of a Kubernetes node.
    MaintenanceWaiting,
    MaintenanceBegan,
    MaintenanceActive,
    EvictionBlocked,
    Drained,
    MaintenanceEnded,
    MaintenanceLeaseLost,
    MaintenanceFailed,

    // Of a form, for its conditions `Valid` and `Held`; of a hub for a form that is gone.
    #[serde(skip)]
    Of(ConditionReason),
}

impl EventReason {
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The event's type.
    pub fn type_(self) -> &'static str {
        self.row().1
    }

    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::DatabaseQueryFailed => ("DatabaseQueryFailed", WARNING),
            Self::InvalidSpec => ("InvalidSpec", WARNING),
            Self::RowsSkipped => ("RowsSkipped", WARNING),
            Self::TemplateRenderFailed => ("TemplateRenderFailed", WARNING),
            Self::NodeWriteFailed => ("NodeWriteFailed", WARNING),
            Self::DeletionsHeld => ("DeletionsHeld", WARNING),
            Self::CreationsHeld => ("CreationsHeld", WARNING),
            Self::ConfirmationNotNeeded => ("ConfirmationNotNeeded", NORMAL),
            Self::NodeDeleted => ("NodeDeleted", NORMAL),
            Self::RolloutThrottled => ("RolloutThrottled", NORMAL),
            Self::ReleasesInterrupted => ("ReleasesInterrupted", WARNING),

            Self::StatusRefused => ("StatusRefused", WARNING),
            Self::RolloutStarted => ("RolloutStarted", NORMAL),
            Self::RolloutComplete => ("RolloutComplete", NORMAL),
            Self::RolloutHalted => ("RolloutHalted", WARNING),
            Self::RolloutReverted => ("RolloutReverted", WARNING),
            Self::RolloutStalled => ("RolloutStalled", WARNING),

            Self::Forced => ("Forced", NORMAL),
            Self::Edited => ("Edited", NORMAL),
            Self::PastTheGate => ("PastTheGate", WARNING),
            Self::LookFailed => ("LookFailed", WARNING),
            Self::TemplateAppliedSuccess => ("TemplateAppliedSuccess", NORMAL),
            Self::TemplateAppliedPartial => ("TemplateAppliedPartial", WARNING),
            Self::ResourceConflict => ("ResourceConflict", WARNING),
            Self::ApplyFailed => ("ApplyFailed", WARNING),
            Self::DependencySkipped => ("DependencySkipped", WARNING),
            Self::DependencyFailedButProceeding => ("DependencyFailedButProceeding", WARNING),
            Self::ReadinessTimeout => ("ReadinessTimeout", WARNING),
            Self::ResourceRecreated => ("ResourceRecreated", NORMAL),
            Self::ResourceDeleted => ("ResourceDeleted", NORMAL),
            Self::ResourceRetained => ("ResourceRetained", NORMAL),
            Self::OrphanedResourceDeleted => ("OrphanedResourceDeleted", NORMAL),
            Self::OrphanedResourceRetained => ("OrphanedResourceRetained", NORMAL),
            Self::DeletionFailed => ("DeletionFailed", WARNING),
            Self::CleanupPartialFailure => ("CleanupPartialFailure", WARNING),
            Self::LynqNodeDeleted => ("LynqNodeDeleted", NORMAL),

            Self::PartitionLowered => ("PartitionLowered", NORMAL),
            Self::BrokenPodDeleted => ("BrokenPodDeleted", NORMAL),
            Self::PartitionStuck => ("PartitionStuck", WARNING),

            Self::OrphanMarkersAdded => ("OrphanMarkersAdded", NORMAL),
            Self::OrphanMarkersRemoved => ("OrphanMarkersRemoved", NORMAL),

            Self::MaintenanceWaiting => ("MaintenanceWaiting", NORMAL),
            Self::MaintenanceBegan => ("MaintenanceBegan", NORMAL),
            Self::MaintenanceActive => ("MaintenanceActive", NORMAL),
            Self::EvictionBlocked => ("EvictionBlocked", WARNING),
            Self::Drained => ("Drained", NORMAL),
            Self::MaintenanceEnded => ("MaintenanceEnded", NORMAL),
            Self::MaintenanceLeaseLost => ("MaintenanceLeaseLost", WARNING),
            Self::MaintenanceFailed => ("MaintenanceFailed", WARNING),

            Self::Of(
                reason @ (ConditionReason::RolloutFailed
                | ConditionReason::LedgerRefused
                | ConditionReason::ReleaseRefused
                | ConditionReason::ValidationFailed
                | ConditionReason::HubNotFound
                | ConditionReason::HubInvalid
                | ConditionReason::HubGoing),
            ) => (reason.as_str(), WARNING),
            Self::Of(reason) => (reason.as_str(), NORMAL),
        }
    }
}

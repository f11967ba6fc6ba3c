//! The list of planted bugs. Each changes how the simulation wires the real decisions together, never the decisions
//! themselves; every one of them must be caught.

use std::fmt;

macro_rules! mutants {
    ($($name:ident [$($breaks:literal),*]: $what:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant { $($name,)* }

        impl Mutant {
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)*];

            pub fn what(self) -> &'static str {
                match self { $(Mutant::$name => $what,)* }
            }

            /// The invariants that it is about: by another one it is not caught.
            pub fn breaks(self) -> &'static [&'static str] {
                match self { $(Mutant::$name => &[$($breaks),*],)* }
            }
        }
    };
}

mutants! {
    ForgetLedger ["ledger", "window"]: "after a restart the ledger is taken for empty",
    TakeLostForEmpty ["window", "ledger"]: "a ledger that was lost is taken for empty",
    TrustSeenSlot ["exact"]: "a release goes out on a slot that was only seen, without a ledger write of its own",
    TrustLostLedgerWrite ["exact"]: "a ledger write whose reply was lost is taken for done",
    FreeEarly ["ledger", "window"]: "a slot is freed on an observation that is not newer than the slot's version",
    FreeUnheld ["ledger"]: "a slot is freed as soon as its node is not held, settled or not",
    FreeUnconfirmed ["ledger"]: "a slot is freed without the live read of the workload",
    GoneByCache ["ledger"]: "a slot is freed because its node is not in the cache, without a live read",
    CountCurrentGeneration ["window"]: "only nodes on the newest content count as non-ready",
    IgnoreSlots ["window"]: "the window counts non-ready nodes only, and no slots",
    OffByOne ["window"]: "the window is one wider than maxSkew",
    OldStatus ["window", "ledger"]: "a status that speaks of older content is taken for news of the content that is live",
    RewriteRepair ["ledger"]: "the repair flag is set anew whenever a slot is rewritten",
    BlindRetry ["exact"]: "a release that met a conflict is sent again with the version read since",
    NoVersion ["exact"]: "a release carries no resourceVersion, and the gate does not compare the marker's",
    NoCompareAndSwap ["ledger", "exact"]: "the ledger is written without its resourceVersion",
    StripMarker ["gate"]: "the gate takes the marker off, so that a reinvocation holds what was just released",
    GateTrustsClient ["gate"]: "the gate takes the live hash from the client",
    UngatedAnyway ["window", "paused"]: "an ungated marker counts also where the node is another by now",
    UngatedUnasked ["window", "paused"]: "what needs no window goes also when hub or forms say something else by now",
    TakeOverUnseen ["progress"]: "what Lynq left is taken for what its release would make of it (the look right before the release finds that, each time)",
    TakeOverUnasked ["window"]: "before a takeover nobody looks again whether it would change something",
    ApplyDesired ["gate"]: "the node loop applies the desired content instead of the live content",
    DeleteOnEmpty ["rows"]: "a failed query is taken for zero rows, and zero rows for a reason to delete",
    TakeBackUnseen ["wanted"]: "a form that is taken back while it is written is taken for what the nodes have",
    LateWriteUnseen ["wanted"]: "what a node holds is not compared with what was rendered for it last",
    AbsentUnseen ["complete"]: "nodes that the rows ask for and that are not there are not missed",
    IgnorePause ["paused"]: "a paused form is released like any other",
    NeverFree ["progress"]: "slots of nodes that are gone are never freed",
    NoReason ["reason"]: "nodes that wait for a full window get no reason",
    Restless ["idle"]: "every look writes the form's status anew",
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

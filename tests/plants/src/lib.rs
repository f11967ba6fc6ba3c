//! The one list of planted bugs: what each does, and which proofs must find it, as what. How it is planted is each proof's own
//! matter; none changes the product.

use std::fmt;

#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// `make simulate`
    Simulation,
    /// `make model`
    Model,
    /// `make plants`: a proxy between real parts, judged by the auditor.
    Chaos,
    /// The property test of the gate, `src/decide/gate/tests/histories.rs`.
    Histories,
}

impl Proof {
    pub const ALL: [Proof; 4] = [
        Proof::Simulation,
        Proof::Model,
        Proof::Chaos,
        Proof::Histories,
    ];

    /// Its part of the list.
    pub fn plants(self) -> impl Iterator<Item = Plant> {
        let all = Plant::ALL.iter().copied();
        all.filter(move |plant| plant.breaks_in(self).is_some())
    }

    pub fn plant(self, name: &str) -> Result<Plant, String> {
        self.plants()
            .find(|plant| plant.to_string() == name)
            .ok_or_else(|| {
                let names: Vec<_> = self.plants().map(|plant| plant.to_string()).collect();
                format!(
                    "no planted bug {name:?} here; there are: {}",
                    names.join(", ")
                )
            })
    }
}

macro_rules! plants {
    ($($name:ident: $what:literal, $($proof:ident $breaks:expr),+;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Plant { $(#[doc = $what] $name,)* }

        impl Plant {
            pub const ALL: &[Plant] = &[$(Plant::$name,)*];

            /// What it gets wrong.
            pub fn what(self) -> &'static str {
                match self { $(Plant::$name => $what,)* }
            }

            /// What this proof must see broken, any of these: by anything else it is not found. Empty where something else stands
            /// in the bug's way, so that nothing may break; None where the proof does not have it.
            pub fn breaks_in(self, proof: Proof) -> Option<&'static [&'static str]> {
                match self {
                    $(Plant::$name => match proof {
                        $(Proof::$proof => Some(&$breaks),)+
                        #[allow(unreachable_patterns)]
                        _ => None,
                    },)*
                }
            }
        }
    };
}

plants! {
    // The ledger.
    ForgetLedger: "after a restart the ledger is taken for empty",
        Simulation ["ledger", "window"];
    TakeLostForEmpty: "a ledger that was lost is taken for empty",
        Simulation ["window", "ledger"];
    ReleaseOnRead: "a release goes out on a slot that was only seen, without a ledger write of its own",
        Simulation ["exact"], Model ["window"];
    TrustLostLedgerWrite: "a ledger write whose reply was lost is taken for done",
        Simulation ["exact"];
    LeaderWithoutFence: "the ledger is written over what is there by now, without compare-and-swap",
        Simulation ["ledger", "exact"], Model ["window"], Chaos ["window", "exact"];
    LedgerRetried: "after a conflict the same change is made to the ledger that is there now",
        Simulation ["window"], Model ["window"];
    SlotGoesBack: "a slot is written again, from a stale view, with an older resourceVersion than it has",
        Simulation ["ledger", "window", "exact"], Model ["window"];
    RepairByRewriting: "writing a slot again decides anew whether it is a repair",
        Simulation ["ledger"], Model ["repairs"];

    // Its end.
    FreeNotNewer: "a slot is freed on an observation that is not newer than the slot's version",
        Simulation ["ledger", "window"], Model ["window"];
    FreeUnheld: "a slot is freed as soon as its node is not held, settled or not",
        Simulation ["ledger"], Model ["window"];
    FreeUnconfirmed: "a slot is freed on the status alone, without the live read of the workload",
        Simulation ["ledger"], Model ["window"];
    FreeOnOldRead: "a slot is freed on a live read that was made before the node was released again",
        Model ["window"];
    FreeGoneByCache: "a slot is freed because its node is not in the cache, without a live read",
        Simulation ["ledger"], Model ["window"];
    GiveUpUnmoved: "an unused slot is given up while the node's resourceVersion has not moved",
        Simulation ["ledger"], Model ["window"];
    LostReplyIsFailure: "a release whose reply was lost counts as one that did not happen, and its slot is given up",
        Simulation ["ledger", "window"], Chaos ["early-free", "window"];
    NeverFree: "slots of nodes that are gone are never freed",
        Simulation ["progress"];
    NeverGiveUp: "an unused slot is never given up",
        Model ["progress"];
    FreeOnlySettled: "a slot is freed of a settled node only: one never released has nothing to settle",
        Model ["progress"];

    // The window.
    IgnoreSlots: "the window counts non-ready nodes only, and no slots",
        Simulation ["window"], Model ["window"];
    WindowPlusOne: "the window is one wider than maxSkew",
        Simulation ["window"], Model ["window"];
    CountCurrent: "only nodes on the newest content count as non-ready (in the model: and only its slots)",
        Simulation ["window"], Model ["window"];
    OldStatus: "a status that speaks of older content is taken for news of the content that is live",
        Simulation ["window", "ledger"];
    RepairUncounted: "a node that is non-ready may go, however many slots are taken",
        Simulation ["window"], Model ["window"];
    BrokenNeedsRoom: "the repair of a broken node that has a slot needs `#(S \\ {n}) < W` too",
        Simulation ["progress", "rest"], Model ["progress"];

    // The release.
    BlindRetry: "a release that met a conflict is sent again with the version read since, the ledger unwritten",
        Simulation ["exact"], Model ["window"];
    ReleaseUnversioned: "a release carries no resourceVersion, and the gate does not compare the marker's",
        Simulation ["exact"], Model ["window"], Histories ["stale_release"];
    ReleaseWithoutVersion: "a release carries no resourceVersion, but the gate compares the marker's: no harm",
        Chaos [];
    UngatedUnasked: "what needs no window goes also when hub or forms say something else by now",
        Simulation ["window", "paused"];
    TakeOverUnseen: "what Lynq left is taken for what its release would make of it (the look right before the release finds that, each time)",
        Simulation ["progress"];
    TakeOverUnasked: "before a takeover nobody looks again whether it would change something",
        Simulation ["window"];
    IgnorePause: "a paused form is released like any other",
        Simulation ["paused"];

    // The gate.
    StripMarker: "the gate takes the marker off, so that a reinvocation holds what was just released",
        Simulation ["gate"], Histories ["not idempotent"];
    GateTrustsClient: "the gate takes the live hash from the client",
        Simulation ["gate"];
    UngatedAnyway: "an ungated marker counts also where the node is another by now",
        Simulation ["window", "paused"];
    StartTimeAtEveryWrite: "every write gets a new start time, whether what is live changes or not",
        Histories ["a start time for nothing"];
    StampsOutliveHold: "since when and by whom a node was held is still there when it is not",
        Histories ["not what is read from it"];

    // What is around them.
    ApplyDesired: "the node loop applies the desired content instead of the live content",
        Simulation ["gate"];
    DeleteOnEmptyRows: "zero rows are a reason to delete every node (in the simulation a failed query is zero rows, too)",
        Simulation ["rows"], Chaos ["deletions"];
    TakeBackUnseen: "a form that is taken back while it is written is taken for what the nodes have",
        Simulation ["wanted"];
    LateWriteUnseen: "what a node holds is not compared with what was rendered for it last",
        Simulation ["wanted"];
    AbsentUnseen: "nodes that the rows ask for and that are not there are not missed",
        Simulation ["complete"];
    NoReason: "nodes that wait for a full window get no reason",
        Simulation ["reason"];
    Restless: "every look writes the form's status anew",
        Simulation ["rest"];

    // A form that is set back.
    RevertUnasked: "a failed form is set back although its rollout.onFailure is Halt",
        Simulation ["set-back"];
    RevertAgain: "a revision that was taken back, is applied again and fails again, is taken back again",
        Simulation ["set-back"];
    RevertOverUsers: "a form is set back without its resourceVersion, over whatever was edited meanwhile",
        Simulation ["set-back"];
    RevertToUncompleted: "a form is set back to the revision before the failed one, whether that was complete or not",
        Simulation ["set-back"];

    // The partition.
    StepUnready: "the partition loop takes every pod for ready",
        Simulation ["partition"];

    // The maintenance of Kubernetes nodes.
    DrainEverywhere: "the maintenance of a Kubernetes node evicts the pods of all of them",
        Simulation ["maintenance"];

    // The webhooks of forms and hubs.
    TrialStored: "what is tried of a form on the API server is stored",
        Simulation ["trial"];
    TrialUnasked: "of a form that is tried, nothing is tried on the API server",
        Simulation ["answer"];
}

/// The variant in kebab case.
impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(letter.to_lowercase());
        }
        f.pad(&name)
    }
}

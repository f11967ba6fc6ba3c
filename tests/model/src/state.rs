//! The nouns of the model: nodes, the ledger, leaders with what they have seen, and releases under way.
//!
//! It is a model of the rules and must not use lynqgate's code: an error in the one would hide in the other.

/// Live content of a node that was never released.
pub const NONE: u8 = 0;

/// A LynqNode as it is stored, and as a leader saw it at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    pub exists: bool,
    pub uid: u8,
    /// resourceVersion.
    pub version: u8,
    pub desired: u8,
    pub live: u8,
    /// The version with which the live content was released.
    pub start: u8,
    /// What the status says: the live content is rolled out.
    pub settled: bool,
}

impl Object {
    pub fn held(&self) -> bool {
        self.exists && self.desired != self.live
    }

    /// Whether the same release is live.
    pub fn runs_as(&self, other: &Object) -> bool {
        (self.exists, self.uid, self.start) == (other.exists, other.uid, other.start)
    }

    pub fn non_ready(&self) -> bool {
        self.exists && self.live != NONE && !self.settled
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub object: Object,
    /// The truth about the workloads, which the status follows later.
    pub ready: bool,
    /// Released through a slot and not ready since: the window under which its slot was taken. Else 0. The rules cannot
    /// see it, the properties do.
    pub flight: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub uid: u8,
    pub hash: u8,
    pub version: u8,
    pub repair: bool,
    /// The window under which it was taken, and what it was taken for. Only the properties look at these.
    pub width: u8,
    pub taken_for_repair: bool,
}

impl Slot {
    /// Whether the API server sees no difference.
    pub fn same_bytes(&self, other: &Slot) -> bool {
        let bytes = |slot: &Slot| (slot.uid, slot.hash, slot.version, slot.repair);
        bytes(self) == bytes(other)
    }
}

/// The hub, as far as the ledger goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ledger<const N: usize> {
    /// The hub's resourceVersion.
    pub version: u8,
    pub slots: [Option<Slot>; N],
}

impl<const N: usize> Ledger<N> {
    pub const EMPTY: Self = Ledger {
        version: 0,
        slots: [None; N],
    };
}

/// A process that believes itself leader: nothing but what it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leader<const N: usize> {
    pub ledger: Ledger<N>,
    pub nodes: [Object; N],
    /// A live read found the workloads ready with the release that is live in the view of the node.
    pub confirmed: [bool; N],
    /// maxSkew; 0 is no window.
    pub window: u8,
}

/// A release on its way: decided, and sent now, later, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    pub node: u8,
    pub hash: u8,
    pub version: u8,
    /// The window under which its slot was taken; 0 where no window applied, and no slot was taken.
    pub width: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State<const N: usize> {
    pub nodes: [Node; N],
    pub ledger: Ledger<N>,
    pub leaders: [Leader<N>; 2],
    /// Sorted.
    pub releases: Vec<Release>,
    /// Position in the list of windows.
    pub window: u8,
    pub changes_left: u8,
    /// A gated release made something live that no slot named at that resourceVersion.
    pub inexact: bool,
}

//! How large a world is explored.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub name: &'static str,
    pub nodes: usize,
    /// The values of maxSkew, one after the other; 0 is no window.
    pub windows: &'static [u8],
    /// Contents are numbers from 1.
    pub contents: u8,
    /// The highest content never becomes ready.
    pub last_is_bad: bool,
    pub start: Start,
    /// Nodes are deleted and made anew.
    pub lives: bool,
    /// What else than edits, deletions and creations may happen.
    pub disturbances: &'static [Disturbance],
    /// How much of all that may happen.
    pub changes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All run the first content and are settled.
    Settled,
    /// All are held at their creation.
    New,
    /// All are settled, and held with the last content: a form was edited.
    Edited,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// A metadata write.
    Stray,
    Force,
    /// The workloads stop being ready.
    Unready,
    /// The status says settled and is wrong: the node loop looked at a stale cache.
    Misreport,
}

impl Disturbance {
    const EACH: [Self; 4] = [Self::Stray, Self::Force, Self::Unready, Self::Misreport];
}

pub const EDITS: Bounds = Bounds {
    name: "edits",
    nodes: 2,
    windows: &[1],
    contents: 3,
    last_is_bad: false,
    start: Start::Settled,
    lives: false,
    disturbances: &Disturbance::EACH,
    changes: 4,
};

pub const WINDOWS: Bounds = Bounds {
    name: "windows",
    windows: &[1, 2, 1, 0, 1],
    changes: 2,
    contents: 2,
    ..EDITS
};

pub const BROKEN: Bounds = Bounds {
    name: "broken",
    windows: &[2, 1],
    last_is_bad: true,
    changes: 3,
    contents: 2,
    ..EDITS
};

pub const LIVES: Bounds = Bounds {
    name: "lives",
    start: Start::New,
    lives: true,
    changes: 3,
    contents: 2,
    ..EDITS
};

pub const THREE: Bounds = Bounds {
    name: "three nodes",
    nodes: 3,
    start: Start::Edited,
    windows: &[2],
    changes: 1,
    contents: 2,
    ..EDITS
};

/// What `make model` explores.
pub const ALL: [Bounds; 5] = [EDITS, WINDOWS, BROKEN, LIVES, THREE];

/// What the tests explore, in seconds and without optimisation.
#[cfg(test)]
pub const SMALL: [Bounds; 5] = [
    Bounds {
        changes: 2,
        ..EDITS
    },
    Bounds {
        changes: 1,
        ..WINDOWS
    },
    Bounds {
        changes: 2,
        ..BROKEN
    },
    Bounds {
        changes: 1,
        ..LIVES
    },
    Bounds {
        changes: 0,
        ..THREE
    },
];

// The smallest worlds in which the mutants show.

pub const ONLY_EDITS: Bounds = Bounds {
    disturbances: &[],
    changes: 3,
    contents: 2,
    ..EDITS
};

pub const STRAYS: Bounds = Bounds {
    disturbances: &[Disturbance::Stray],
    changes: 3,
    contents: 2,
    ..EDITS
};

pub const UNREADY: Bounds = Bounds {
    disturbances: &[Disturbance::Unready],
    contents: 2,
    ..EDITS
};

pub const MISREPORTS: Bounds = Bounds {
    disturbances: &[Disturbance::Misreport],
    changes: 3,
    contents: 2,
    ..EDITS
};

pub const REMADE: Bounds = Bounds {
    disturbances: &[],
    changes: 2,
    ..LIVES
};

pub const SHRINKING: Bounds = Bounds {
    windows: &[2, 1],
    changes: 2,
    ..ONLY_EDITS
};

pub const SHRINKING_WHILE_BROKEN: Bounds = Bounds {
    last_is_bad: true,
    start: Start::Edited,
    changes: 2,
    ..SHRINKING
};

pub const SHRINKING_AT_CREATION: Bounds = Bounds {
    start: Start::New,
    changes: 0,
    ..SHRINKING
};

//! The state of the world, in ticks of 30 s, and what the product's step makes of a view of it.

use jiff::{SignedDuration, Timestamp};
use lynqgate::decide::maintenance::{
    Effect, KubernetesNode, Lease, LeaseWrite, NodeChange, Observed, Policy, Request, Status, step,
};

pub const TICK: SignedDuration = SignedDuration::from_secs(30);
/// The window that the person asks for. With the padding the Lease lasts 2 ticks.
const INTERVAL: i32 = 30;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeState {
    pub version: u8,
    pub asks: bool,
    pub status: Option<&'static str>,
    pub told_by: Option<u8>,
    pub cordoned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseState {
    pub version: u8,
    /// Which operator's name it has.
    pub holder: u8,
    pub seconds: i32,
    pub acquired: u8,
    pub renewed: u8,
    pub was_schedulable: bool,
    /// This holder has written the Kubernetes node.
    pub acted: bool,
}

impl LeaseState {
    /// The first tick at which it is not valid any more.
    pub fn end(&self) -> u8 {
        self.acquired + (self.seconds / 30) as u8
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum First {
    Lease(Option<LeaseState>),
    Node(NodeState),
}

/// What an operator has decided, and not done yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pending {
    pub node: NodeState,
    /// The version of the Lease that it goes by; 0: there is none.
    pub lease: u8,
    pub to_do: Vec<ToDo>,
    /// The Lease was read again: the write of the Kubernetes node is on its way.
    pub sent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ToDo {
    Lease(LeaseState, bool),
    Node(Change, &'static str, u8),
    Tell(Option<&'static str>),
    Evict(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Status,
    Cordon,
    Uncordon,
    TakeRequestOff,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: u8,
    pub edits: u8,
    pub node: NodeState,
    pub lease: Option<LeaseState>,
    /// What each operator read first: the Lease, or, with a bug, the Kubernetes node.
    pub read: [Option<First>; 2],
    pub pending: [Option<Pending>; 2],
    /// What must never be, once it is.
    pub broken: Option<&'static str>,
    pub ended: bool,
}

fn at(tick: u8) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1) + TICK * i32::from(tick)
}

fn tick(at_time: Timestamp) -> u8 {
    let since = at_time.duration_since(at(0)).as_secs();
    // A time between two ticks is over at the second one.
    since.div_euclid(30).try_into().unwrap_or(u8::MAX)
}

fn name_of(holder: u8) -> String {
    format!("operator-{holder}")
}

fn status_of(status: Status) -> &'static str {
    status.as_str()
}

/// The product's step, at this tick, for the operator of this name.
pub fn decide(holder: u8, node: &NodeState, lease: Option<&LeaseState>, now: u8) -> Vec<ToDo> {
    let observed = Observed {
        node: Some(KubernetesNode {
            name: "k8s-3".to_owned(),
            uid: "u".to_owned(),
            request: match node.asks {
                true => Request::Window(INTERVAL),
                false => Request::None,
            },
            status: node.status.map(str::to_owned),
            told_by: node.told_by.map(name_of),
            unschedulable: node.cordoned,
            ..KubernetesNode::default()
        }),
        lease: lease.map(|lease| Lease {
            resource_version: lease.version.to_string(),
            holder: name_of(lease.holder),
            duration_seconds: lease.seconds,
            acquired: Some(at(lease.acquired)),
            renewed: Some(at(lease.renewed)),
            transitions: 0,
            was_schedulable: lease.was_schedulable,
            owner: Some("u".to_owned()),
            tenants: Default::default(),
        }),
        ..Observed::default()
    };
    let policy = Policy {
        holder: name_of(holder),
        nodes_max: 1,
    };
    let step = step(&policy, &observed, at(now));
    let each = step.effects.into_iter().map(|effect| to_do(holder, effect));
    each.collect()
}

fn to_do(holder: u8, effect: Effect) -> ToDo {
    match effect {
        Effect::Lease(write) => {
            let creates = write.over.is_none();
            ToDo::Lease(lease_of(holder, &write), creates)
        }
        Effect::Node(write) => {
            let change = match write.change {
                NodeChange::Status => Change::Status,
                NodeChange::Cordon => Change::Cordon,
                NodeChange::Uncordon => Change::Uncordon,
                NodeChange::TakeRequestOff => Change::TakeRequestOff,
            };
            ToDo::Node(change, status_of(write.status), tick(write.until))
        }
        Effect::Tell(status) => ToDo::Tell(status.map(status_of)),
        Effect::Drain { until } => ToDo::Evict(tick(until)),
    }
}

fn lease_of(holder: u8, write: &LeaseWrite) -> LeaseState {
    let version = write.over.as_ref().and_then(|over| over.parse().ok());
    LeaseState {
        version: version.unwrap_or_default(),
        holder,
        seconds: write.times.duration_seconds,
        acquired: tick(write.times.acquired),
        renewed: tick(write.times.renewed),
        was_schedulable: write.was_schedulable,
        acted: false,
    }
}

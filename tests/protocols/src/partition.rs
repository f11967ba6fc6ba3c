//! Two operators, one StatefulSet with its controller, and users who edit it: the steps are the product's own
//! (`decide::partition::walk::step`), the shell is its rules. It says whether they hold, and must not decide what they are.

use jiff::{SignedDuration, Timestamp};
use lynqgate::decide::partition::HELD;
use lynqgate::decide::partition::walk::{self, Around, Effect, Pod, Set};
use stateright::{Model, Property};

use crate::{Told, tell};

/// Pods of the StatefulSet.
const PODS: usize = 3;
const EDITS_MAX: u8 = 2;
const BREAKS_MAX: u8 = 1;
const VERSIONS_MAX: u8 = 9;
const ENDS: &str = "all pods have the newest revision";

/// One departure from the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// A step is written whatever became of the StatefulSet since.
    IgnoresVersion,
    /// The status of an older generation is believed.
    IgnoresGeneration,
    /// The pods are read before the StatefulSet.
    ReadsPodsFirst,
    /// An edit leaves the partition as it was.
    LeavesThePartition,
}

impl Bug {
    const ALL: [Bug; 4] = [
        Bug::IgnoresVersion,
        Bug::IgnoresGeneration,
        Bug::ReadsPodsFirst,
        Bug::LeavesThePartition,
    ];

    fn name(self) -> &'static str {
        match self {
            Bug::IgnoresVersion => "ignores-version",
            Bug::IgnoresGeneration => "ignores-generation",
            Bug::ReadsPodsFirst => "reads-pods-first",
            Bug::LeavesThePartition => "leaves-the-partition",
        }
    }
}

/// Whether all holds, and each bug is found.
pub fn check() -> bool {
    let told = |bug| Told {
        world: "partition",
        bug,
        reached: ENDS,
    };
    let mut good = tell(&told("none"), Walk { bug: None }).is_none();
    for bug in Bug::ALL {
        good &= tell(&told(bug.name()), Walk { bug: Some(bug) }).is_some();
    }
    good
}

struct Walk {
    bug: Option<Bug>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PodState {
    revision: u8,
    ready: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SetState {
    version: u8,
    partition: i64,
    /// What its template says.
    revision: u8,
    /// What its controller has seen of that, and tells in the status.
    observed: u8,
}

type Pods = [PodState; PODS];

/// What an operator has read so far, or wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operator {
    Idle,
    HasSet(SetState),
    HasPods(Pods),
    Lowers { version: u8, to: i64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    set: SetState,
    pods: Pods,
    operators: [Operator; 2],
    edits: u8,
    breaks: u8,
    /// What must never be.
    broken: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Edit,
    Observe,
    /// Its controller replaces the highest pod that is released and old.
    Replace,
    /// It breaks by itself, or is mended.
    Break(usize),
    Start(usize),
    Read(usize),
    Decide(usize),
    Write(usize),
}

impl State {
    fn released(&self) -> impl DoubleEndedIterator<Item = usize> {
        let pods = self.pods;
        let (partition, revision) = (self.set.partition, self.set.observed);
        let is_released =
            move |index: &usize| i64::try_from(*index).is_ok_and(|index| index >= partition);
        (0..PODS)
            .filter(is_released)
            .filter(move |index| pods[*index].revision != revision)
    }

    /// Nobody has decided on what the pods were before.
    fn is_quiet(&self) -> bool {
        let decides = |operator: &Operator| matches!(operator, Operator::Lowers { .. });
        !self.operators.iter().any(decides) && self.released().next().is_none()
    }
}

impl Model for Walk {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let pod = PodState {
            revision: 0,
            ready: true,
        };
        let set = SetState {
            version: 1,
            partition: 0,
            revision: 0,
            observed: 0,
        };
        vec![State {
            set,
            pods: [pod; PODS],
            operators: [Operator::Idle; 2],
            edits: 0,
            breaks: 0,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.edits < EDITS_MAX {
            actions.push(Action::Edit);
        }
        actions.extend([Action::Observe, Action::Replace]);
        for index in 0..PODS {
            match state.pods[index].ready {
                true if state.breaks < BREAKS_MAX && state.is_quiet() => {
                    actions.push(Action::Break(index))
                }
                true => {}
                false => actions.push(Action::Start(index)),
            }
        }
        for operator in [0, 1] {
            actions.push(match state.operators[operator] {
                Operator::Idle => Action::Read(operator),
                Operator::HasSet(_) | Operator::HasPods(_) => Action::Decide(operator),
                Operator::Lowers { .. } => Action::Write(operator),
            });
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Edit => {
                state.edits += 1;
                state.set.version += 1;
                state.set.revision = state.edits;
                if self.bug != Some(Bug::LeavesThePartition) {
                    state.set.partition = HELD;
                }
            }
            Action::Observe => state.set.observed = state.set.revision,
            Action::Replace => {
                let index = state.released().next_back()?;
                let others = (0..PODS).filter(|other| *other != index);
                if others.into_iter().any(|other| !state.pods[other].ready) {
                    state.broken = Some("a pod goes while another one is not ready");
                }
                state.pods[index] = PodState {
                    revision: state.set.observed,
                    ready: false,
                };
            }
            Action::Break(index) => {
                state.breaks += 1;
                state.pods[index].ready = false;
            }
            Action::Start(index) => state.pods[index].ready = true,
            Action::Read(operator) => {
                state.operators[operator] = match self.bug {
                    Some(Bug::ReadsPodsFirst) => Operator::HasPods(state.pods),
                    _ => Operator::HasSet(state.set),
                };
            }
            Action::Decide(operator) => {
                let (set, pods) = match state.operators[operator] {
                    Operator::HasSet(set) => (set, state.pods),
                    Operator::HasPods(pods) => (state.set, pods),
                    Operator::Idle | Operator::Lowers { .. } => return None,
                };
                state.operators[operator] = match self.decide(&set, &pods) {
                    Some(to) => Operator::Lowers {
                        version: set.version,
                        to,
                    },
                    None => Operator::Idle,
                };
            }
            Action::Write(operator) => {
                let Operator::Lowers { version, to } = state.operators[operator] else {
                    return None;
                };
                state.operators[operator] = Operator::Idle;
                if version == state.set.version || self.bug == Some(Bug::IgnoresVersion) {
                    (state.set.partition, state.set.version) = (to, state.set.version + 1);
                }
            }
        }
        if state.released().nth(1).is_some() {
            state.broken = Some("two pods are released at a time");
        }
        (state != *last).then_some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.set.version < VERSIONS_MAX
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no second pod goes", |_, state: &State| {
                state.broken.is_none()
            }),
            Property::sometimes(ENDS, |_, state: &State| {
                state.edits == EDITS_MAX
                    && state
                        .pods
                        .iter()
                        .all(|pod| pod.revision == EDITS_MAX && pod.ready)
            }),
        ]
    }
}

impl Walk {
    /// The partition that the product lowers to.
    fn decide(&self, set: &SetState, pods: &Pods) -> Option<i64> {
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
        let of_pod = |(index, pod): (usize, &PodState)| Pod {
            index: index.try_into().expect("a few"),
            name: format!("db-{index}"),
            uid: String::new(),
            revision: pod.revision.to_string(),
            ready_since: pod.ready.then_some(Timestamp::UNIX_EPOCH),
            terminating: false,
        };
        let pods: Vec<Pod> = pods.iter().enumerate().map(of_pod).collect();
        let observed = set.observed == set.revision || self.bug == Some(Bug::IgnoresGeneration);
        let set = Set {
            name: "db".to_owned(),
            gated: true,
            deleting: false,
            observed,
            replicas: PODS.try_into().expect("a few"),
            start: 0,
            partition: Some(set.partition),
            ordered: false,
            update_revision: set.observed.to_string(),
            current_revision: "0".to_owned(),
            settles_within: SignedDuration::ZERO,
            paused_by: None,
            forced: false,
            interval: Ok(None),
            stepped_at: None,
        };
        match walk::step(&set, &pods, &Around::default(), now).effect? {
            Effect::Lower { to, .. } => Some(to),
            Effect::DeletePod { .. } => None,
        }
    }
}

//! Tells the steps to a broken property, one line each.

use lynqgate_plants::Plant;

use crate::check::Rollout;
use crate::rules::Rules;
use crate::state::{NONE, Object, Slot, State};
use crate::steps::{Step, World};

/// Takes the steps again, with every version as it really is.
pub fn told<const N: usize>(model: &Rollout<N>, steps: &[Step], property: &str) -> Vec<String> {
    let world = World::<N> {
        bounds: model.world.bounds,
        rules: model.world.rules,
    };
    let mut state = world.start();
    let mut lines = vec![format!("start: {}", fleet(&state))];
    for (i, step) in steps.iter().enumerate() {
        let after = world
            .take(&state, *step)
            .expect("the steps that were found can be taken");
        lines.push(format!(
            "{:>2}. {}",
            i + 1,
            line(*step, &state, &after, &world.rules)
        ));
        state = after;
    }
    lines.push(format!("{property} broken: {}", fleet(&state)));
    lines
}

fn fleet<const N: usize>(state: &State<N>) -> String {
    let node = |n: usize| {
        let node = &state.nodes[n];
        let flight = match node.flight {
            0 => String::new(),
            width => format!(", in flight (reserved under a window of {width})"),
        };
        let slot = state.ledger.slots[n].map_or(String::new(), |slot| {
            format!(", slot at version {}", slot.version)
        });
        format!("{} {}{flight}{slot}", name(n), content(&node.object))
    };
    (0..N).map(node).collect::<Vec<_>>().join("; ")
}

fn content(object: &Object) -> String {
    if !object.exists {
        return "does not exist".to_owned();
    }
    let live = match object.live {
        NONE => "nothing".to_owned(),
        live => live.to_string(),
    };
    match object.held() {
        true => format!("runs {live}, held: {}", object.desired),
        false => format!("runs {live}"),
    }
}

fn name(n: usize) -> char {
    char::from(b'a' + n as u8)
}

fn line<const N: usize>(step: Step, before: &State<N>, after: &State<N>, rules: &Rules) -> String {
    let who = |leader: usize| format!("leader {}", leader + 1);
    let version = |n: usize| after.nodes[n].object.version;
    let window = |window: u8| match window {
        0 => "no window".to_owned(),
        width => format!("a window of {width}"),
    };
    match step {
        Step::Edit { node, to } => {
            let now = content(&after.nodes[node].object);
            format!(
                "{} is edited to {to}: version {}, {now}",
                name(node),
                version(node)
            )
        }
        Step::Stray { node } => {
            format!(
                "a metadata write on {}: version {}",
                name(node),
                version(node)
            )
        }
        Step::Force { node } => format!("{} is forced", name(node)),
        Step::Unready { node } => format!("the workloads of {} stop being ready", name(node)),
        Step::Misreport { node } => format!("the status of {} wrongly says settled", name(node)),
        Step::Delete { node } => format!("{} is deleted", name(node)),
        Step::Create { node } => format!("{} is made anew: version {}", name(node), version(node)),
        Step::MoveWindow => "maxSkew is changed".to_owned(),
        Step::Lose { release } => {
            let node = usize::from(before.releases[release].node);
            format!("the release of {} is never sent", name(node))
        }
        Step::BecomeReady { node } => format!("the workloads of {} become ready", name(node)),
        Step::Report { node } => {
            let said = if after.nodes[node].object.settled {
                "settled"
            } else {
                "not settled"
            };
            format!(
                "the status of {} says {said}: version {}",
                name(node),
                version(node)
            )
        }
        Step::SeeLedger { leader } => format!("{} reads the ledger", who(leader)),
        Step::SeeNode { leader, node } => {
            format!(
                "{} sees {} at version {}",
                who(leader),
                name(node),
                version(node)
            )
        }
        Step::SeeWindow { leader } => {
            format!(
                "{} sees {}",
                who(leader),
                window(after.leaders[leader].window)
            )
        }
        Step::Reserve { leader, node } => {
            let slot = after.ledger.slots[node].expect("reserved");
            let (name, Slot { hash, version, .. }) = (name(node), slot);
            format!(
                "{} writes the slot of {name} (content {hash}, version {version}) and may release it",
                who(leader)
            )
        }
        Step::Ungate { leader, node } => {
            format!(
                "{} decides to release {}, as no window applies",
                who(leader),
                name(node)
            )
        }
        Step::Confirm { leader, node } => {
            format!(
                "{} finds the workloads of {} ready by a live read",
                who(leader),
                name(node)
            )
        }
        Step::Free { leader, node } => {
            let seen = before.leaders[leader].nodes[node].version;
            format!(
                "{} frees the slot of {}, seen at version {seen}",
                who(leader),
                name(node)
            )
        }
        Step::GiveUp { leader, node } => {
            format!(
                "{} moves {} to version {}",
                who(leader),
                name(node),
                version(node)
            )
        }
        Step::Land { release } => {
            let release = before.releases[release];
            let sent = match rules.is(Plant::BlindRetry) {
                true => "sent again".to_owned(),
                false => format!("made for version {}", release.version),
            };
            let node = usize::from(release.node);
            let now = content(&after.nodes[node].object);
            format!("the release of {}, {sent}, lands: it {now}", name(node))
        }
        Step::ReleaseOnRead { leader, node } => {
            let seen = before.leaders[leader].nodes[node].version;
            format!(
                "{} finds a slot of {} in the ledger and releases it at version {seen}",
                who(leader),
                name(node)
            )
        }
    }
}

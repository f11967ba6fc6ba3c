//! `explain`: why a node or a form is where it is, what must happen, and when. The release planner itself is asked, with
//! what can be read of the cluster, so that the answer cannot differ from what the operator does.

mod answer;
mod next;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, SignedDurationRound, Timestamp, Unit};

use crate::api::conditions::ConditionReason;
use crate::api::form::Phase;
use crate::api::hub::Slot;
use crate::api::{names, stamp};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::index::Index;
use crate::decide::rollout::reason::{NEXT, Reason};
use crate::decide::rollout::status::FormState;
use crate::decide::rollout::{Live, Plan, Snapshot};
use crate::decide::rollout::{failure, order};
pub use answer::Explanation;

/// Whether anybody carries out what the planner says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    Leads,
    /// `lease`: its name. `since`: when it was renewed last, where there is one.
    Missing {
        lease: String,
        since: Option<Timestamp>,
    },
}

/// Where the planner was asked.
pub struct Asked<'a> {
    pub namespace: &'a str,
    pub snapshot: &'a Snapshot,
    pub plan: &'a Plan,
    pub leader: &'a Leader,
    /// The condition Held of each form, where it is true: the reason and the message that its operator wrote.
    pub told: &'a BTreeMap<String, (String, String)>,
    /// The condition Valid of each form, where it is false: the reason and the message that its operator wrote.
    pub invalid: &'a BTreeMap<String, (String, String)>,
    /// Why the hub has not read its rows, as its condition Ready says.
    pub unread: Option<String>,
    /// Why it could not write nodes, of whatever form, as its condition WriteFailed says.
    pub unwritten: Option<&'a str>,
    /// Forms of which a node has a resource that was refused, or was not ready in its time: to wait mends neither.
    pub failed: &'a BTreeSet<String>,
    pub now: Timestamp,
}

/// Of a node that names no hub, and that nobody looks after.
pub fn of_nobody(node: &NodeDigest) -> Explanation {
    let subject = subject(node);
    let state = "nobody looks after it, and what runs stays as it is".to_owned();
    let mut explanation = Explanation::of(subject, state);
    explanation.why = Some(format!(
        "it belongs to no hub: it has neither spec.hubId nor the label {}",
        names::LABEL_HUB
    ));
    explanation.next = Some(format!(
        "give it the label {}=NAME with the name of its hub, which then takes it over; or delete it",
        names::LABEL_HUB
    ));
    explanation
}

impl Asked<'_> {
    pub fn node(&self, node: &NodeDigest) -> Explanation {
        self.led(self.of_node(node))
    }

    /// None where the planner has not seen the form.
    pub fn form(&self, name: &str) -> Option<Explanation> {
        Some(self.led(self.of_form(name)?))
    }

    /// Where nobody leads, nothing else is to be waited for, and what was told may be old.
    fn led(&self, mut explanation: Explanation) -> Explanation {
        if let Leader::Missing { lease, since } = self.leader {
            let reason = Reason::NoLeader {
                lease: lease.clone(),
                since: *since,
            };
            explanation.reason = Some(reason.code().to_owned());
            explanation.why = Some(reason.to_string());
            explanation.next = Some(reason.next().to_owned());
            (explanation.expected, explanation.estimated_completion) = (None, None);
            explanation.waits_behind = None;
        }
        explanation
    }

    fn of_node(&self, node: &NodeDigest) -> Explanation {
        if node.deleting {
            let state = "is being deleted".to_owned();
            let mut explanation = Explanation::of(subject(node), state).within(node);
            let mut told = node.status.conditions.iter();
            let told =
                told.find(|c| c.type_ == "Ready" && c.reason == ConditionReason::Deleting.as_str());
            explanation.why = told.map(|told| told.message.to_string());
            explanation.next = Some(next::GOING.to_owned());
            return explanation;
        }
        match node.held() {
            true => self.of_held_node(node),
            false => self.of_live_node(node),
        }
    }

    fn of_live_node(&self, node: &NodeDigest) -> Explanation {
        let ready = node.status.conditions.iter().find(|c| c.type_ == "Ready");
        let state = match ready.filter(|_| node.status_is_current()) {
            Some(ready) if ready.status == "True" => "live and ready".to_owned(),
            Some(ready) => format!("live, and not ready: {}", ready.message),
            None => "live; the operator has not reported on it yet".to_owned(),
        };
        let state = match self.ago(node.start.as_deref()) {
            ago if ago.is_empty() => state,
            ago => format!("{state}; live{}", ago),
        };
        let state = match (self.is_behind(node), self.invalid.get(&node.form)) {
            (true, Some((_, why))) => format!("{state}; nothing is rendered for it: {why}"),
            (true, None) => format!(
                "{state}; the form's newest content may not have been written to it: see lynqgate explain form {}",
                node.form
            ),
            (false, _) => state,
        };
        let force = match node.forced {
            true => Some(format!("{}={} is on it", names::FORCE_ROLLOUT, names::TRUE)),
            false => self
                .state_of(&node.form)
                .and_then(|state| Some(state.force?.to_string())),
        };
        let state = match force {
            Some(force) => format!("{state}; no window applies to it: {force}"),
            None => state,
        };
        let state = match node.is_edited() {
            Some(true) => {
                format!(
                    "{state}; its content was changed since the hub wrote it (condition Edited)"
                )
            }
            _ => state,
        };
        let mut explanation = Explanation::of(subject(node), state).within(node);
        let broken = ready.is_some_and(|ready| ready.status == "False");
        let edited = || (node.is_edited() == Some(true)).then(|| next::TAKE_BACK.to_owned());
        let mut slots = self.snapshot.slots.iter();
        let slot = slots.find(|slot| *slot.node == *node.key.name && broken);
        explanation.deadline = slot.and_then(|slot| self.deadline(slot));
        explanation.expected = explanation.deadline.map(|at| self.before(at));
        let late = explanation.deadline.is_some_and(|at| at <= self.now);
        let formless = !self.snapshot.forms.contains_key(&node.form);
        explanation.next = match broken {
            true if formless => Some(next::MEND_FORMLESS.to_owned()),
            true if late || node.has_failed() => Some(next::MEND_NODE.to_owned()),
            true => Some(format!(
                "nothing, if it becomes ready soon; else {}",
                next::MEND_NODE
            )),
            false => edited(),
        };
        if let Some(until) = self
            .state_of(&node.form)
            .and_then(|f| f.watched.get(&*node.key.name))
        {
            self.watch(&mut explanation, *until, &node.form);
        }
        explanation
    }

    fn of_held_node(&self, node: &NodeDigest) -> Explanation {
        let reason = self.plan.waiting.get(&node.key.name);
        let what = match node.live {
            Live::None => {
                "nothing of it was let go yet: none of it runs, unless an earlier node left it behind"
            }
            Live::Unknown if node.past_gate => {
                "its content was written past the gate; what runs stays as it is until the release"
            }
            Live::Unknown => {
                "what runs is not known for sure any more, and stays as it is until the release"
            }
            Live::Hash(_) if node.status_is_current() && !node.is_ready() => {
                "what was live before runs on, and is not ready"
            }
            Live::Hash(_) => "what was live before runs on",
        };
        let ago = self.ago(node.held_since.as_deref());
        let state = format!("held{}; {what}", ago);
        let mut explanation = Explanation::of(subject(node), state).within(node);
        explanation.held_since = node.held_since.as_deref().and_then(stamp::parse);
        if let Some(reason) = reason {
            let held = node.status.conditions.iter().find(|c| c.type_ == "Held");
            let told = held.filter(|c| c.status == "True");
            let told = told.map(|c| (c.reason.as_str(), c.message.as_str()));
            self.wait(&mut explanation, reason, told, &node.form);
        }
        let waiting = self.plan.waiting.iter().filter(|(name, reason)| {
            let same_form = self
                .snapshot
                .nodes
                .get(*name)
                .is_some_and(|n| *n.form == *node.form);
            same_form && **name != node.key.name && ***reason == Reason::Releasing
        });
        // If it waits for something else than the planner knows of, so may the others.
        let as_planned = reason.filter(|r| explanation.reason.as_deref() == Some(r.code()));
        explanation.waits_behind = as_planned.map(|_| waiting.count());
        self.estimated(explanation, &node.form)
    }

    fn of_form(&self, name: &str) -> Option<Explanation> {
        let state = self.plan.forms.get(name)?;
        let rollout = &state.rollout;
        // It alone knows of content that it could not write.
        let told = self.snapshot.forms.get(name)?.previous.as_ref();
        let over = matches!(rollout.phase, Phase::Complete | Phase::Idle);
        let unwritten = told.is_some_and(|told| told.unwritten_nodes > 0);
        let told = told.filter(|told| match told.phase {
            Phase::InProgress => over || unwritten,
            Phase::Failed => unwritten,
            Phase::Complete | Phase::Idle => false,
        });
        let text = match told.map_or(rollout.phase, |told| told.phase) {
            Phase::Idle => "idle",
            Phase::InProgress => "in progress",
            Phase::Failed => "failed",
            Phase::Complete => "complete",
        };
        let edited = match state.edited.is_empty() {
            true => String::new(),
            false => format!("; changed since the hub wrote it: {}", state.edited),
        };
        let form = self.snapshot.forms.get(name)?;
        let empty = order::without_nodes(name, form, &Index::new(self.snapshot));
        let counted = told.unwrap_or(rollout);
        let lacks = match form.previous.as_ref().map_or(0, |p| p.unwritten_nodes) {
            0 => String::new(),
            lacks => format!(", {lacks} not written"),
        };
        let mut explanation = Explanation::of(
            format!("lynqform {}/{name}", self.namespace),
            format!(
                "{text}: {} nodes, {} updated and ready, {} updated and not ready, {} held{lacks}; {}{edited}{empty}",
                counted.total_nodes,
                counted.ready_updated_nodes,
                counted.updating_nodes,
                counted.held_nodes,
                state.windows()
            ),
        );
        explanation.why = told.map(|told| told.message.to_string());
        if unwritten && state.blocked.is_none() {
            let next = match told.is_some_and(|told| told.phase == Phase::Failed) {
                true => format!("{}{}", next::MEND_FAILED, next::ALSO_UNWRITTEN),
                false => next::UNWRITTEN.to_owned(),
            };
            explanation.next = Some(next);
            return Some(self.estimated(explanation, name));
        }
        // What goes on by itself says less than what stops the rest.
        let goes = (rollout.held_nodes > 0).then_some(&Reason::Releasing);
        if let Some(reason) = state.blocked.as_ref().or(goes) {
            let told = self.told.get(name);
            let told = told.map(|(code, text)| (code.as_str(), text.as_str()));
            self.wait(&mut explanation, reason, told, name);
            if let Some(next) = explanation.next.as_mut().filter(|_| unwritten) {
                next.push_str(next::ALSO_UNWRITTEN);
            }
        } else if let Some((code, why)) = self.invalid.get(name) {
            explanation.reason = Some(code.clone());
            explanation.why = Some(why.clone());
            explanation.next = Some(next::correction(code).to_owned());
        } else if rollout.total_nodes == 0 {
            let why = explanation.why.take();
            explanation.why = Some(why.unwrap_or_else(|| rollout.message.clone()));
            explanation.next = Some(next::NO_NODES.to_owned());
        } else if matches!(rollout.phase, Phase::InProgress | Phase::Failed)
            && explanation.why.is_none()
        {
            explanation.why = Some(rollout.message.clone());
            let mends = match state.unrendered {
                true => next::UNRENDERED,
                false if self.failed.contains(name) => next::without_waiting(next::MEND),
                false => next::MEND,
            };
            explanation.next = (rollout.updating_nodes > 0).then(|| mends.to_owned());
            if let Some((why, next)) = state.stalled.as_ref().and_then(|s| s.split_once(NEXT)) {
                explanation.why = Some(why.to_owned());
                explanation.next = Some(next.to_owned());
            }
            explanation.expected = self.first_failure(name);
            if self.snapshot.forms.get(name)?.outdated {
                let not_rendered = Reason::NotRendered { form: name.into() };
                explanation.next = Some(not_rendered.next().to_owned());
                self.add_unread(&mut explanation, name);
            }
        }
        explanation.in_flight = self
            .snapshot
            .slots
            .iter()
            .filter(|slot| slot.form == name)
            .map(|slot| slot.node.clone())
            .collect();
        Some(self.estimated(explanation, name))
    }

    /// `told`: what the operator itself wrote, code and message.
    fn wait(
        &self,
        explanation: &mut Explanation,
        reason: &Reason,
        told: Option<(&str, &str)>,
        form: &str,
    ) {
        let of_form = self.told.get(form);
        let of_form = of_form.map(|(code, text)| (code.as_str(), text.as_str()));
        // A node's own condition does not tell that apart.
        let unknown = |said: &(&str, &str)| {
            matches!(reason, Reason::ReadinessUnknown { .. }) && said.0 == reason.code()
        };
        let told = of_form.filter(unknown).or(told);
        // Whether a row asks for it, only who has read the rows knows.
        let goes = |code: &str| {
            let held = ConditionReason::DeletionsHeld.as_str();
            self.snapshot.deletions_held
                && code == held
                && matches!(reason, Reason::NotRendered { .. })
        };
        if let Some((code, text)) = told
            && (only_the_operator_knows(code, reason)
                || self.waits_for_absent(code, reason, form)
                || goes(code))
        {
            // The form's condition has the whole story, a node's only a summary; but it may be another node's.
            let of_one = matches!(
                ConditionReason::named(code),
                Some(ConditionReason::ReleaseRefused | ConditionReason::LiveContentUnknown)
            );
            let of_form = self.told.get(form).filter(|(whole, _)| whole == code);
            let of_form = of_form.filter(|_| !goes(code));
            let of_form = of_form.map(|(_, text)| text.split_once(NEXT).unwrap_or((text, "")));
            let node = explanation.subject.rsplit('/').next().unwrap_or_default();
            let names_it = |why: &str| !of_one || node == form || why.contains(&format!(" {node}"));
            let (why, next) = match of_form {
                Some((why, next)) if names_it(why) => (why.to_owned(), next),
                // Another one meets the same, as a rule.
                Some((why, next)) => (format!("{text}: {why}"), next),
                None => {
                    let (why, next) = text.split_once(NEXT).unwrap_or((text, ""));
                    (why.to_owned(), next)
                }
            };
            explanation.reason = Some(code.to_owned());
            explanation.why = Some(why);
            explanation.next = Some(next.to_owned()).filter(|next| !next.is_empty());
            if goes(code) {
                explanation.next = Some(next::CONFIRM.to_owned());
            }
            if ConditionReason::named(code) == Some(ConditionReason::NotRendered) {
                self.add_unread(explanation, form);
            }
            return;
        }
        if let (Reason::NotRendered { .. }, Some((code, text))) = (reason, self.invalid.get(form)) {
            explanation.reason = Some(reason.code().to_owned());
            explanation.why = Some(format!("{reason}: {text}"));
            explanation.next = Some(next::correction(code).to_owned());
            return;
        }
        explanation.reason = Some(reason.code().to_owned());
        explanation.why = Some(reason.to_string());
        explanation.next = Some(match self.failed.contains(form) {
            true => next::without_waiting(reason.next()).to_owned(),
            false => reason.next().to_owned(),
        });
        if let Reason::Soaking { holders, .. } = reason {
            let free = holders.free_at.map(|at| self.at(at));
            explanation.expected = free.map(|at| format!("the next slot is free {at}"));
        }
        if matches!(reason, Reason::NotRendered { .. }) {
            self.add_unread(explanation, form);
        }
        if let Reason::WindowFull { .. }
        | Reason::HubWindowFull { .. }
        | Reason::DomainFull { .. }
        | Reason::GroupNotDone { .. } = reason
        {
            explanation.expected = self.first_failure(form);
        }
        let stalled = || {
            let state = self.state_of(form)?;
            let of_this = state.blocked.as_ref()?.code() == reason.code();
            state.stalled.as_ref().filter(|_| of_this)?.split_once(NEXT)
        };
        if let Some((why, next)) = stalled() {
            explanation.why = Some(why.to_owned());
            explanation.next = Some(next.to_owned());
        }
    }

    /// Which nodes are not there that the rows ask for, the operator knows, who has read the rows.
    fn waits_for_absent(&self, code: &str, reason: &Reason, form: &str) -> bool {
        let form = self.snapshot.forms.get(form);
        let told = form.and_then(|form| form.previous.as_ref());
        let lacks = told.is_some_and(|told| told.unwritten_nodes > 0);
        lacks && code == ConditionReason::GroupNotDone.as_str() && *reason == Reason::Releasing
    }

    /// Of a node that is ready and keeps its slot.
    fn watch(&self, explanation: &mut Explanation, until: Timestamp, form: &str) {
        let held = self
            .state_of(form)
            .map_or(0, |state| state.rollout.held_nodes);
        let others = match held {
            0 => String::new(),
            1 => ", and one held node of the form may wait for that".to_owned(),
            _ => format!(", and {held} held nodes of the form may wait for that"),
        };
        explanation.why = Some(format!(
            "it is watched for rollout.minReadySeconds, until {}: as long as that it keeps its slot{others}",
            until.strftime("%H:%M:%S UTC")
        ));
        explanation.next = Some(next::STAYS_READY.to_owned());
        let free = self.at(until);
        explanation.expected = Some(format!("its slot is free {free}"));
    }

    /// Its form's newest content has not been rendered for every row, or could not be written to some nodes, and it was written
    /// last from an older version of the form.
    fn is_behind(&self, node: &NodeDigest) -> bool {
        let Some(form) = self.snapshot.forms.get(&node.form) else {
            return false;
        };
        let told = form.previous.as_ref();
        let unwritten = told.is_some_and(|told| {
            told.unwritten_nodes > 0 && node.written_from != Some(told.target_generation)
        });
        form.outdated || unwritten
    }

    fn state_of(&self, form: &str) -> Option<&FormState> {
        self.plan.forms.get(form)
    }

    /// With what is expected of the whole rollout.
    fn estimated(&self, mut explanation: Explanation, form: &str) -> Explanation {
        let Some(at) = self
            .state_of(form)
            .and_then(|state| state.rollout.estimated_completion)
        else {
            return explanation;
        };
        let whole = match at > self.now {
            true => format!(
                "the rollout is complete {}, if it goes on as it went so far",
                self.at(at)
            ),
            false => format!(
                "late: as it went before, the rollout would be complete since {}",
                at.strftime("%H:%M:%S UTC")
            ),
        };
        let told: Vec<String> = explanation.expected.into_iter().chain([whole]).collect();
        explanation.expected = Some(told.join("; "));
        explanation.estimated_completion = Some(at);
        explanation
    }

    /// Why the newest templates of the form have not reached its nodes, as far as its hub says.
    fn not_reached(&self, form: &str) -> Option<&str> {
        let told = self.snapshot.forms.get(form)?.previous.as_ref();
        let is_unwritten = told.is_some_and(|told| told.unwritten_nodes > 0);
        let unwritten = self.unwritten.filter(|_| is_unwritten);
        self.unread.as_deref().or(unwritten)
    }

    fn add_unread(&self, explanation: &mut Explanation, form: &str) {
        if let (Some(why), Some(unread)) = (&mut explanation.why, self.not_reached(form)) {
            *why = format!("{why}: {unread}");
        }
        if self.unread.is_some() {
            explanation.next = Some(next::UNREAD.to_owned());
        }
    }

    /// When its node counts as failed.
    fn deadline(&self, slot: &Slot) -> Option<Timestamp> {
        let form = self.snapshot.forms.get(&slot.form)?;
        let deadline = failure::deadline(form, slot, self.snapshot)?;
        let node = self.snapshot.nodes.get(&slot.node)?;
        failure::may_fail(form, slot, node, self.now).then_some(deadline)
    }

    /// When the first of the form's nodes in flight will have failed, if it does not get ready.
    fn first_failure(&self, form: &str) -> Option<String> {
        let slots = self.snapshot.slots.iter().filter(|s| s.form == form);
        let deadlines = slots.filter_map(|slot| self.deadline(slot));
        let at = deadlines.min().filter(|first| *first > self.now)?;
        let at = at.strftime("%H:%M:%S UTC");
        Some(format!(
            "a node that went and is not ready before {at} counts as failed (rollout.progressDeadlineSeconds)"
        ))
    }

    fn before(&self, deadline: Timestamp) -> String {
        let at = deadline.strftime("%H:%M:%S UTC");
        match deadline > self.now {
            true => format!(
                "ready before {at}; after that it counts as failed (rollout.progressDeadlineSeconds)"
            ),
            false => format!(
                "late: it counts as failed since {at} (rollout.progressDeadlineSeconds, rollout.maxFailures)"
            ),
        }
    }

    fn at(&self, at: Timestamp) -> String {
        let left = at.duration_since(self.now);
        match left.is_positive() {
            true => format!("in {} (at {})", short(left), at.strftime("%H:%M:%S UTC")),
            false => format!("any moment (since {})", at.strftime("%H:%M:%S UTC")),
        }
    }

    fn ago(&self, stamp: Option<&str>) -> String {
        let since = stamp.and_then(stamp::parse);
        since.map_or(String::new(), |since| {
            format!(" for {}", short(self.now.duration_since(since)))
        })
    }
}

/// Whether the operator's own word counts for more than what the planner makes of what everybody can read: of the answers
/// to its requests, and of what it has not looked at since its start, it alone knows.
fn only_the_operator_knows(code: &str, reason: &Reason) -> bool {
    match reason {
        Reason::NotRendered { .. }
        | Reason::Paused { .. }
        | Reason::DeletionsHeld { .. }
        | Reason::NoForm { .. }
        | Reason::NoLeader { .. }
        | Reason::ReleaseRefused { .. }
        | Reason::LedgerRefused { .. } => false,
        // Why it cannot look.
        Reason::ReadinessUnknown { .. } if code == reason.code() => true,
        Reason::Releasing
        | Reason::Starting { .. }
        | Reason::LiveContentUnknown { .. }
        | Reason::SlotReserved { .. }
        | Reason::WindowFull { .. }
        | Reason::Soaking { .. }
        | Reason::ReadinessUnknown { .. }
        | Reason::BrokenBefore { .. }
        | Reason::HubWindowFull { .. }
        | Reason::DomainFull { .. }
        | Reason::BudgetSpent { .. }
        | Reason::GroupNotDone { .. } => matches!(
            ConditionReason::named(code),
            Some(
                ConditionReason::ReleaseRefused
                    | ConditionReason::LedgerRefused
                    | ConditionReason::Starting
                    | ConditionReason::LiveContentUnknown
                    | ConditionReason::NotRendered
            )
        ),
    }
}

fn short(duration: SignedDuration) -> String {
    let seconds = SignedDurationRound::new().smallest(Unit::Second);
    let rounded = duration.abs().round(seconds).unwrap_or(duration);
    format!("{rounded:#}")
}

fn subject(node: &NodeDigest) -> String {
    format!("lynqnode {}", node.key)
}

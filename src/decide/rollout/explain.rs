//! `explain`: why a node or a form is where it is, what must happen, and when. It shows what the operator wrote into the statuses,
//! and plans nothing itself, so that two answers cannot differ.

mod answer;
pub mod hub;
pub mod next;

use jiff::{SignedDuration, SignedDurationRound, Timestamp, Unit};

use crate::api::conditions::{self, Condition, ConditionReason, kstatus};
use crate::api::form::{FormRolloutStatus, FormStatus, Phase, WaitingNodes};
use crate::api::hub::{HubStatus, Slot};
use crate::api::policy::Rollout;
use crate::api::{names, stamp};
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::Live;
use crate::decide::rollout::formless::Formless;
use crate::decide::rollout::reason::{Advice, Reason, word_of_nodes};
use crate::decide::rollout::status::Force;
pub use answer::Explanation;

/// Whether anybody carries out what the statuses say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leader {
    Leads,
    /// `lease`: its namespace and name. `since`: when it was renewed last, where there is one.
    Missing {
        lease: String,
        since: Option<Timestamp>,
    },
}

/// A form, as its operator reports on it.
#[derive(Clone, Copy)]
pub struct FormTold<'a> {
    pub name: &'a str,
    pub generation: i64,
    pub status: &'a FormStatus,
}

/// What there is to read around a node or a form.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub namespace: &'a str,
    /// None where it is gone, or another hub's.
    pub form: Option<FormTold<'a>>,
    /// Why nobody releases the node: its hub does not have its form, or lynqgate cannot use it.
    pub formless: Option<&'a Formless>,
    pub hub: Option<&'a HubStatus>,
    /// The form's policy, where it can be read.
    pub policy: Option<&'a Rollout>,
    pub force: Option<Force>,
    pub leader: &'a Leader,
    pub now: Timestamp,
}

/// Of a node that names no hub, and that nobody looks after.
pub fn of_nobody(node: &NodeDigest) -> Explanation {
    let state = "no hub manages it, and what runs stays as it is".to_owned();
    let mut explanation = Explanation::of(subject(node), state);
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
        let mut explanation = match () {
            () if node.deleting => going(node),
            () if node.held() => self.of_held_node(node),
            () => self.of_live_node(node),
        };
        let group = self.policy.and_then(|policy| {
            let number = policy.group_of(&node.labels, node.group_of_row);
            policy.order.get(number)
        });
        explanation.group = group.map(|group| group.name.clone());
        self.led(explanation)
    }

    pub fn form(&self, form: FormTold) -> Explanation {
        self.led(self.of_form(form))
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
            explanation.next = Some(reason.next().into_owned());
            (explanation.expected, explanation.estimated_completion) = (None, None);
            explanation.waiting.clear();
        }
        explanation
    }

    fn of_live_node(&self, node: &NodeDigest) -> Explanation {
        let ready = node.ready_told();
        let mut state = match ready {
            Some(ready) if ready.status == "True" => "live and ready".to_owned(),
            Some(ready) => format!("live, and not ready: {}", ready.message),
            None => "live; no status update since its release".to_owned(),
        };
        if let Some(since) = node.start.as_deref().and_then(stamp::parse) {
            state = format!("{state}; live for {}", self.since(since));
        }
        if let Some(why) = self.formless {
            state = format!("{state}; its form {:?} {why}", node.form);
        } else if let Some(form) = self.form {
            state.push_str(&self.behind(node, form));
        }
        if node.forced {
            let (name, value) = (names::FORCE_ROLLOUT, names::TRUE);
            state = format!("{state}; no window applies to it: {name}={value} is on it");
        } else if let Some(force) = self.force {
            state = format!("{state}; no window applies to it: {force}");
        }
        let is_edited = node.is_edited() == Some(true);
        if is_edited {
            state.push_str("; its content was changed since the hub wrote it (condition Edited)");
        }
        let mut explanation = Explanation::of(subject(node), state).within(node);
        let is_broken = ready.is_some_and(|ready| ready.status == "False");
        explanation.next = match (is_broken, self.formless) {
            (true, Some(_)) => Some(next::MEND_FORMLESS.to_owned()),
            (true, None) if node.has_failed() || self.has_halted() => {
                Some(next::MEND_NODE.to_owned())
            }
            (true, None) => Some(format!(
                "nothing, if it becomes ready soon; else {}",
                next::MEND_NODE
            )),
            (false, _) if is_edited => Some(next::TAKE_BACK.to_owned()),
            (false, _) => ready.is_none().then(|| next::UNTOLD.to_owned()),
        };
        if is_broken
            && self.formless.is_none()
            && let Some(halted) = self.halted_by()
        {
            explanation.wait(halted);
        }
        let kept = self.kept().filter(|_| self.form.is_none() && !is_broken);
        if let Some(kept) = kept {
            explanation.reason = Some(kept.reason.to_string());
            explanation.why = Some(kept.message.to_string());
            explanation.next = Some(next::CONFIRM.to_owned());
        }
        let is_ready = ready.is_some() && !is_broken;
        if let Some(slot) = self.slot_of(node).filter(|_| is_ready) {
            explanation.why = Some(match slot.min_ready_seconds {
                0 => "it keeps its slot until lynqgate has checked it once more".to_owned(),
                n => {
                    let left = node.settled_since().and_then(|since| {
                        let until = since
                            .checked_add(SignedDuration::from_secs(n.into()))
                            .ok()?;
                        (until > self.now)
                            .then(|| format!(", {} more", short(until.duration_since(self.now))))
                    });
                    format!(
                        "it keeps its slot until it has been ready for rollout.minReadySeconds ({n} s){}",
                        left.unwrap_or_default()
                    )
                }
            });
            explanation.next = Some(next::STAYS_READY.to_owned());
        }
        explanation
    }

    /// What its form's status says of the halt, while nodes wait for its end.
    fn halted_by(&self) -> Option<&WaitingNodes> {
        let mut waiting = self.form?.status.rollout.as_ref()?.waiting.iter();
        waiting.find(|nodes| nodes.reason == *ConditionReason::RolloutFailed.as_str())
    }

    fn has_halted(&self) -> bool {
        let rollout = self.form.and_then(|form| form.status.rollout.as_ref());
        rollout.is_some_and(|rollout| rollout.phase == Phase::Failed)
    }

    fn of_held_node(&self, node: &NodeDigest) -> Explanation {
        let what = match node.live {
            Live::None => {
                "none of its content is released yet: lynqgate has created nothing for it"
            }
            Live::Unknown => {
                "lynqgate is not sure what runs, and leaves it as it is until the release"
            }
            Live::Hash(_) if node.status_is_current() && !node.is_ready() => {
                "what was live before runs on, and is not ready"
            }
            Live::Hash(_) => "what was live before runs on",
        };
        let since = node.held_since.as_deref().and_then(stamp::parse);
        let state = match since {
            Some(since) => format!("held for {}; {what}", self.since(since)),
            None => format!("held; {what}"),
        };
        let mut explanation = Explanation::of(subject(node), state).within(node);
        explanation.held_since = since;
        let told =
            conditions::find(&node.status.conditions, "Held").filter(|told| told.status == "True");
        if let Some(why) = self.formless {
            let reason = Reason::NoForm {
                form: node.form.clone(),
                why: why.clone(),
            };
            let Advice { why, next } = reason.advice();
            explanation.reason = Some(reason.code().to_owned());
            (explanation.why, explanation.next) = (Some(why), Some(next));
        } else if let Some(nodes) = self.waiting_of(node, told) {
            explanation.wait(nodes);
        } else if let Some(told) = told {
            explanation.reason = Some(told.reason.to_string());
            explanation.why = Some(told.message.to_string());
        } else {
            explanation.why = Some("the operator has not reported yet why it waits".to_owned());
            explanation.next = Some(next::UNTOLD.to_owned());
        }
        let rollout = self.form.and_then(|form| form.status.rollout.as_ref());
        self.estimated(explanation, rollout)
    }

    /// The entry of its form's status that the node is one of. A node's own reason may be a minute old, and does not tell apart
    /// who fills a window.
    fn waiting_of(&self, node: &NodeDigest, told: Option<&Condition>) -> Option<&WaitingNodes> {
        let waiting = &self.form.as_ref()?.status.rollout.as_ref()?.waiting;
        let is_named = |nodes: &&WaitingNodes| nodes.nodes.iter().any(|n| *n == *node.key.name);
        let is_told = |nodes: &&WaitingNodes| {
            told.is_some_and(|told| told.reason == *word_of_nodes(&nodes.reason))
        };
        let named = waiting.iter().find(is_named);
        let told = || waiting.iter().find(is_told);
        named.or_else(told).or_else(|| waiting.first())
    }

    fn of_form(&self, form: FormTold) -> Explanation {
        let subject = format!("lynqform {}/{}", self.namespace, form.name);
        let FormStatus {
            rollout,
            conditions,
            ..
        } = form.status;
        let invalid = conditions::find(conditions, "Valid").filter(|valid| valid.status == "False");
        let Some(rollout) = rollout else {
            let state = match form.status.total_nodes {
                Some(total) => format!(
                    "no window applies, and every change goes live at once: {total} nodes, {} ready",
                    form.status.ready_nodes.unwrap_or_default()
                ),
                None => "the operator has not reported on it yet".to_owned(),
            };
            return Explanation::of(subject, state).invalid(invalid);
        };
        let mut explanation = Explanation::of(subject, self.state(form, rollout));
        if let Some((first, others)) = rollout.waiting.split_first() {
            explanation.wait(first);
            explanation.waiting = others.to_vec();
        } else if invalid.is_some() {
            explanation = explanation.invalid(invalid);
        } else if rollout.phase == Phase::Complete
            && let Some(told) = conditions::find(conditions, kstatus::REVERTED)
        {
            explanation.reason = Some(told.reason.to_string());
            explanation.why = Some(told.message.to_string());
        } else {
            explanation.why = Some(rollout.message.clone());
            let stalled = conditions::find(conditions, "RolloutComplete")
                .is_some_and(|told| told.reason == *ConditionReason::Stalled.as_str());
            let next = match rollout.phase {
                // Its message ends with it.
                _ if stalled => None,
                _ if rollout.unwritten_nodes > 0 => Some(next::UNWRITTEN),
                Phase::Failed => Some(next::MEND_FAILED),
                _ if rollout.total_nodes == 0 => Some(next::NO_NODES),
                _ if rollout.updating_nodes == 0 => None,
                _ if self.has_render_errors() => Some(next::UNRENDERED),
                _ => Some(next::MEND),
            };
            explanation.next = next.map(str::to_owned);
        }
        if let Some(next) = &mut explanation.next
            && rollout.unwritten_nodes > 0
            && !rollout.waiting.is_empty()
        {
            next.push_str(next::ALSO_UNWRITTEN);
        }
        if rollout.unwritten_nodes > 0
            && invalid.is_none()
            && let Some(why) = &mut explanation.why
            && let Some(told) = self.unwritten(why)
        {
            why.push_str("; the hub says ");
            why.push_str(&told);
        }
        let slots = self.slots().filter(|slot| slot.form == form.name);
        explanation.in_flight = slots.map(|slot| slot.node.clone()).collect();
        self.estimated(explanation, Some(rollout))
    }

    fn state(&self, form: FormTold, rollout: &FormRolloutStatus) -> String {
        let phase = match rollout.phase {
            Phase::Idle => "idle",
            Phase::InProgress => "in progress",
            Phase::Paused => "paused",
            Phase::Failed => "failed",
            Phase::Complete => "complete",
        };
        let lacks = match rollout.unwritten_nodes {
            0 => String::new(),
            lacks => format!(", {lacks} not written"),
        };
        let window = match (self.force, rollout.window) {
            (Some(force), _) => format!("no window applies: {force}"),
            (None, Some(window)) => format!("window {window}"),
            (None, None) => "no window".to_owned(),
        };
        let newer = match rollout.target_generation < form.generation {
            true => "; lynqgate has not observed the form's newest change yet",
            false => "",
        };
        format!(
            "{phase}: {} nodes, {} updated and ready, {} updated and not ready, {} held{lacks}; {window}{newer}",
            rollout.total_nodes,
            rollout.ready_updated_nodes,
            rollout.updating_nodes,
            rollout.held_nodes,
        )
    }

    /// Its form's newest content has not reached all nodes, and it was written last from an older version of the form.
    fn behind(&self, node: &NodeDigest, form: FormTold) -> String {
        let is_behind =
            !form.status.all_written(form.generation) && node.written_from != Some(form.generation);
        let invalid =
            conditions::find(&form.status.conditions, "Valid").filter(|c| c.status == "False");
        match invalid {
            _ if !is_behind => String::new(),
            Some(invalid) => format!("; nothing is rendered for it: {}", invalid.message),
            None => format!(
                "; the form's newest content may not have been written to it: see lynqgate explain form {}",
                node.form
            ),
        }
    }

    /// Why nodes are not written, in the hub's words; without those that were `said` already.
    fn unwritten(&self, said: &str) -> Option<String> {
        const TYPES: [&str; 5] = [
            "RenderFailed",
            "RowsSkipped",
            "WriteFailed",
            "DeletionsHeld",
            "CreationsHeld",
        ];
        let all = &self.hub?.conditions;
        let told = TYPES
            .iter()
            .filter_map(|type_| conditions::find(all, type_));
        let told = told.filter(|told| told.status == "True" && !said.contains(&*told.message));
        let told = told.map(|told| format!("{}: {}", told.type_, told.message));
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    fn has_render_errors(&self) -> bool {
        let hub = self.hub.map(|hub| &hub.conditions);
        hub.is_some_and(|all| conditions::is_true(all, "RenderFailed"))
    }

    /// What says that deletions of the hub wait for the user.
    fn kept(&self) -> Option<&Condition> {
        let held = conditions::find(&self.hub?.conditions, "DeletionsHeld");
        held.filter(|held| held.status == "True")
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        let ledger = self.hub.and_then(|hub| hub.rollout.as_ref());
        ledger.into_iter().flat_map(|ledger| &ledger.slots)
    }

    fn slot_of(&self, node: &NodeDigest) -> Option<&Slot> {
        self.slots()
            .find(|slot| *slot.node == *node.key.name && slot.uid == node.uid)
    }

    /// With what is expected of the whole rollout.
    fn estimated(
        &self,
        mut explanation: Explanation,
        rollout: Option<&FormRolloutStatus>,
    ) -> Explanation {
        let Some(rollout) = rollout else {
            return explanation;
        };
        let fails = rollout.deadline.filter(|at| *at > self.now).map(|at| {
            format!(
                "{} the first of the released nodes fails, unless it is ready (rollout.progressDeadlineSeconds); rollout.maxFailures of them halt the rollout",
                self.at(at)
            )
        });
        let whole = rollout.estimated_completion.map(|at| match at > self.now {
            true => format!("estimated completion {} at the current pace", self.at(at)),
            false => {
                "later than estimated: the last nodes take longer than the earlier ones".to_owned()
            }
        });
        explanation.estimated_completion = rollout.estimated_completion;
        let told: Vec<String> = fails.into_iter().chain(whole).collect();
        explanation.expected = (!told.is_empty()).then(|| told.join("; "));
        explanation
    }

    fn at(&self, at: Timestamp) -> String {
        let left = short(at.duration_since(self.now));
        format!("in {left} (at {})", at.strftime("%H:%M:%S UTC"))
    }

    fn since(&self, since: Timestamp) -> String {
        short(self.now.duration_since(since))
    }
}

fn going(node: &NodeDigest) -> Explanation {
    let mut explanation =
        Explanation::of(subject(node), "is being deleted".to_owned()).within(node);
    let told = conditions::find(&node.status.conditions, "Ready");
    let told = told.filter(|told| told.reason == *ConditionReason::Deleting.as_str());
    explanation.why = told.map(|told| told.message.to_string());
    explanation.next = Some(next::GOING.to_owned());
    explanation
}

pub fn short(duration: SignedDuration) -> String {
    let seconds = SignedDurationRound::new().smallest(Unit::Second);
    let rounded = duration.abs().round(seconds).unwrap_or(duration);
    format!("{rounded:#}")
}

fn subject(node: &NodeDigest) -> String {
    format!("lynqnode {}", node.key)
}

//! A form tried on the rows there are, before it is stored: for whom it does not render, and how much it changes.

pub mod deletions;
pub mod live;
mod objects;
pub mod refused;
mod rendered;
pub mod restarts;
pub mod sample;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::names;
use crate::api::policy::{Creation, Rollout, Skew};
use crate::decide::admission::Verdict;
use crate::decide::admission::form::Change;
use crate::decide::admission::review::{MESSAGE_MAX, WARNING_MAX};
use crate::decide::admission::trial::deletions::{Confirmation, Deletions, TakenAway};
use crate::decide::admission::trial::live::{LiveNode, LiveNodes};
use crate::decide::admission::trial::objects::{Claims, Objects, Rendering};
use crate::decide::admission::trial::refused::Findings;
use crate::decide::admission::trial::rendered::{FormTrial, RowContext, TriedRow};
use crate::decide::admission::trial::restarts::Restarts;
use crate::decide::admission::trial::sample::{Offer, Sample, Samples};
use crate::decide::hub::rows::guard::{self, guard};
use crate::decide::hub::rows::{Row, Rows};
use crate::decide::shared::parallel;

/// How many rows an answer names.
const ROWS_SHOWN: usize = 5;
/// Above so many nodes somebody who sets no window is told that nothing protects them.
const UNPROTECTED_MAX: usize = 10;

/// What the trial found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    /// Rows there are, and rows tried: it may have taken too long.
    pub rows: usize,
    pub tried: usize,
    /// The rows that it does not render for, and did before or was not there; and why.
    broken: Vec<(String, String)>,
    /// Those of them whose nodes cannot be written at all.
    unwritten: usize,
    /// Rows that did not render before either.
    broken_before: usize,
    /// Nodes whose content changes, those that are made included.
    changed: usize,
    /// The nodes that there are were compared with.
    nodes_known: bool,
    /// Rows that have no node yet, as far as the nodes are known.
    made: usize,
    /// Held nodes that run already what the change makes of them.
    kept: usize,
    /// Whether there was something to compare with.
    compared: bool,
    /// The groups of the order in which there is a row, by their conditions.
    groups: BTreeSet<usize>,
    /// A row for which a condition of the order is neither true nor false, and which.
    odd: Option<(String, String)>,
    pub restarts: Restarts,
    objects: Objects,
    pub deletions: Deletions,
    /// What it takes away by its templates.
    taken_away: Vec<TakenAway>,
    /// Nodes of the form for which what it takes away could not be tried: they lose it later.
    later: usize,
    /// Nodes of the hub; of the form alone where they were not listed.
    nodes: usize,
    pub hub: HubSays,
    /// What the API server is to be asked about.
    pub samples: Vec<Sample>,
    /// What it said.
    pub findings: Findings,
    /// Why it is compared with what the form was, and not with what runs.
    pub unlisted: Option<String>,
}

/// What the hub says of all of its forms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HubSays {
    pub skew: Skew,
    pub forced: bool,
    /// Its `spec.guard.maxCreations`.
    pub max_creations: Option<u64>,
}

/// What the form says beside its resources.
#[derive(Clone, Copy, Debug)]
pub struct FormSays<'a> {
    pub policy: &'a Rollout,
    /// It may break rows.
    pub allows_errors: bool,
    pub is_forced: bool,
    pub confirmation: Confirmation<'a>,
}

impl<'a> FormSays<'a> {
    pub fn of(policy: &'a Rollout, old: Option<&'a Value>, new: &'a Value) -> Self {
        let annotation =
            |form: &'a Value, name: &str| form["metadata"]["annotations"][name].as_str();
        let is_on = |name: &str| annotation(new, name) == Some(names::TRUE);
        FormSays {
            policy,
            allows_errors: is_on(names::ALLOW_RENDER_ERRORS),
            is_forced: is_on(names::FORCE_ROLLOUT),
            confirmation: Confirmation {
                before: old.and_then(|old| annotation(old, names::CONFIRM_DELETIONS)),
                now: annotation(new, names::CONFIRM_DELETIONS),
            },
        }
    }
}

/// What a form is tried on.
#[derive(Clone, Copy)]
pub struct On<'a> {
    pub rows: &'a Rows,
    /// What the hub read before, where it is the hub that changes.
    pub before: Option<&'a Rows>,
    /// None where what the form was is what runs, as far as anybody knows.
    pub live: Option<&'a LiveNodes>,
}

impl<'a> On<'a> {
    pub fn rows(rows: &'a Rows) -> Self {
        On {
            rows,
            before: None,
            live: None,
        }
    }
}

/// Rows that the threads try together.
const ROWS_AT_ONCE: usize = 512;

/// `go_on` is asked before each row.
pub fn of(
    change: &Change,
    on: &On,
    (namespace, hub, form): (&str, &str, &str),
    go_on: &(dyn Fn() -> bool + Sync),
) -> Trial {
    let mut trial = Trial {
        rows: on.rows.rows.len(),
        compared: change.old.is_some(),
        nodes_known: on.live.is_some(),
        nodes: on.live.map_or(change.nodes, LiveNodes::count),
        taken_away: change.taken_away.clone(),
        ..Trial::default()
    };
    let form = FormTrial {
        change,
        on,
        namespace,
        hub,
        form,
    };
    let rows: Vec<(usize, &Row)> = on.rows.rows.values().enumerate().collect();
    let mut across = AcrossRows::default();
    'all: for rows in rows.chunks(ROWS_AT_ONCE) {
        let tried = parallel::map(rows, |(number, row)| {
            go_on().then(|| form.try_row(*number, row))
        });
        for row in tried {
            let Some(row) = row else { break 'all };
            trial.add(&form, row, &mut across);
        }
    }
    if let Some(live) = on.live.filter(|_| !change.taken_away.is_empty()) {
        let of_form = live.of_form(form.form);
        trial.later = of_form.filter(|uid| !across.decided.contains(uid)).count();
    }
    trial.samples = across.samples.finish();
    trial
}

/// What the rows tried so far have to do with each other.
#[derive(Default)]
struct AcrossRows<'a> {
    /// The rows of which it is known what the change takes away from them.
    decided: BTreeSet<&'a str>,
    claims: Claims<'a>,
    samples: Samples,
}

impl Trial {
    fn add<'a>(&mut self, form: &FormTrial<'a>, tried: TriedRow<'a>, across: &mut AcrossRows<'a>) {
        let (row, new, old) = (tried.row, &tried.new, &tried.old);
        let RowContext { home, node, inputs } = &tried.context;
        self.tried += 1;
        let is_old_broken = old.as_ref().is_some_and(|old| !old.errors.is_empty());
        self.broken_before += usize::from(is_old_broken);
        let was_broken = |id: &String| old.as_ref().is_some_and(|old| old.has_error(id));
        let fails = |id: &String| new.has_error(id) || was_broken(id);
        if tried.loses_data || !form.change.taken_away.iter().any(|taken| fails(&taken.id)) {
            across.decided.insert(&row.uid);
        }
        let resource = new.errors.iter().find(|(id, _)| !was_broken(id));
        let resource = resource.map(|(id, cause)| format!("resource '{id}': {cause}"));
        if let Ok((group, odd)) = &tried.placed {
            self.groups.extend(*group);
            let odd = || Some((row.uid.clone(), odd.clone()?));
            self.odd = self.odd.take().or_else(odd);
        }
        let unwritten = tried.placed.as_ref().err().or(tried.too_large.as_ref());
        self.unwritten += usize::from(unwritten.is_some());
        let cause = resource.or(unwritten.cloned());
        let broken = cause.map(|cause| (row.uid.clone(), cause));
        self.broken.extend(broken);
        self.changed += usize::from(tried.changes);
        self.made += usize::from(tried.is_made);
        let is_kept = |node: &LiveNode| node.is_held && new.runs(node);
        self.kept += usize::from(node.is_some_and(is_kept));
        self.restarts.merge(tried.restarts);
        self.deletions.merge(tried.deletions);
        if unwritten.is_none() {
            let content = || form.content(row);
            let of_new = Rendering {
                form: &form.change.new,
                inputs: *inputs,
                home,
            };
            let object = |number: usize| of_new.described(&objects::named(content(), home)[number]);
            let claims = &mut across.claims;
            self.objects.claim(row, &tried.objects, claims, object);
            across.samples.offer(Offer {
                row: &row.uid,
                node: home,
                has_node: !tried.is_made,
                shapes: tried.shapes,
                content: &content,
            });
        }
    }
}

fn resources(content: &Value) -> impl Iterator<Item = &Value> {
    let arrays = content.as_object().into_iter().flat_map(|all| all.values());
    arrays.filter_map(Value::as_array).flatten()
}

impl Trial {
    pub fn verdict(&self, form: &FormSays) -> Verdict {
        let allowed = form.allows_errors;
        let stays = self.stays();
        let warned = |broken: String| format!("{stays}, for {broken}");
        let all_fail = self.broken.len() == self.tried;
        let refused = |broken: String| match all_fail {
            true => format!("{broken}. Correct the template, or the rows"),
            false => format!(
                "{broken}. Correct the template, or the rows; or annotate the form with {}=\"{}\": then {stays}",
                names::ALLOW_RENDER_ERRORS,
                names::TRUE
            ),
        };
        let (warned, denied) = match allowed {
            true => (self.told(warned, WARNING_MAX), None),
            false => {
                let unrendered = self.told(refused, MESSAGE_MAX);
                (None, unrendered.or_else(|| self.findings.refused()))
            }
        };
        let denied = denied.or_else(|| self.unconfirmed(&form.confirmation));
        let nodes = self.changed.saturating_sub(self.made);
        // An answer has room for a few: what fails comes first.
        let mut warnings = self.reached(form.policy, form.is_forced);
        let findings = self.findings.warnings(allowed, nodes);
        let fails = warned.into_iter().chain(findings);
        let first = warnings.len().min(1);
        warnings.splice(first..first, fails.collect::<Vec<_>>());
        Verdict { denied, warnings }
    }

    /// Why it would delete too much: neither force nor allowed errors lift that.
    fn unconfirmed(&self, confirmation: &Confirmation) -> Option<String> {
        let untried = self.untried().filter(|_| deletions::is_asked(self.rows));
        let untried = untried.or_else(|| self.unlisted.clone());
        let denied = untried.and_then(|why| deletions::untried(&self.taken_away, &why));
        let later = (self.later, self.taken_away.as_slice());
        denied.or_else(|| self.deletions.unconfirmed(later, confirmation))
    }

    /// What the hub says of the nodes that a new form makes, where it would not make them unasked.
    fn uncreated(&self) -> Option<String> {
        let asked = guard::Asked {
            direction: guard::Direction::Creations,
            existing: self.nodes as u64,
            count: self.made as u64,
            max: self.hub.max_creations,
            confirmation: None,
        };
        match guard(&asked) {
            guard::Verdict::Held(held) if !self.compared => Some(held.to_string()),
            _ => None,
        }
    }

    /// There is nothing yet that the form could change: neither rows nor nodes.
    pub fn is_first(&self) -> bool {
        self.rows == 0 && self.nodes == 0 && self.unlisted.is_none()
    }

    /// How far it got, where it did not try every row.
    pub fn untried(&self) -> Option<String> {
        if self.rows == 0 {
            return Some("not tried on the rows: the hub has no active rows".to_owned());
        }
        (self.tried < self.rows).then(|| {
            format!(
                "tried on {} of {} rows, there was no time for more: that it renders for the others is not known",
                self.tried, self.rows
            )
        })
    }

    /// What becomes of the nodes that it does not render for.
    fn stays(&self) -> String {
        let whole = self.unwritten;
        let and = match whole {
            0 => String::new(),
            _ if whole == self.broken.len() => return "those nodes stay as they are".to_owned(),
            _ => format!(" (and {} as a whole)", counted(whole, "node")),
        };
        format!(
            "the resources that do not render stay as they are{and}, the others of those nodes change"
        )
    }

    /// What becomes of the form's nodes with the rows that its changed hub gives: which data goes, and what does not render.
    pub fn of_hub(&self, form: &str) -> Vec<String> {
        let said = |what: String| format!("of form {form}, {what}");
        let all = self.tried == self.rows;
        let deleted = self.deletions.warnings(all, true).into_iter().map(said);
        deleted.chain(self.told(said, WARNING_MAX)).collect()
    }

    /// What is broken, in such words; where that has no room, without the names that are like the first.
    fn told(&self, words: impl Fn(String) -> String, chars_max: usize) -> Option<String> {
        let whole = self.broken(ROWS_SHOWN).map(&words);
        let whole = whole.filter(|told| told.chars().count() <= chars_max);
        whole.or_else(|| self.broken(1).map(&words))
    }

    /// The rows that do not render any more, or not at all: so many by name, or only the first.
    fn broken(&self, names_max: usize) -> Option<String> {
        let total = self.broken.len();
        let (first, rest) = self.broken.split_first()?;
        let (row, cause) = first;
        let others = rest.iter().take(names_max - 1);
        let others = Vec::from_iter(others.map(|(row, _)| row.as_str()));
        let others = match others.is_empty() {
            true => String::new(),
            false => format!("; likewise {}", others.join(", ")),
        };
        let more = match total.saturating_sub(ROWS_SHOWN) {
            more if more > 0 && !others.is_empty() => format!(" and {more} more"),
            _ => String::new(),
        };
        Some(format!(
            "it does not render for {total} of {}: row {row}: {cause}{others}{more}",
            counted(self.tried, "row")
        ))
    }

    /// What the change does, for whoever makes it.
    fn reached(&self, policy: &Rollout, forced: bool) -> Vec<String> {
        let mut warnings = vec![];
        if self.tried > 0 {
            warnings.push(self.reach(policy, forced));
        }
        let all = self.tried == self.rows;
        warnings.extend(self.uncreated());
        warnings.extend(self.deletions.warnings(all, false));
        warnings.extend(self.objects.warning(all));
        warnings.extend(self.untried());
        warnings.extend(self.unlisted.as_ref().map(|why| {
            format!("compared with what the form was, not with what its nodes run: {why}")
        }));
        for (number, group) in policy.order.iter().enumerate() {
            if group.when.is_some() && !self.groups.contains(&number) && all && self.tried > 0 {
                let name = &group.name;
                warnings.push(format!("rollout.order: no row is in the group {name:?}"));
            }
        }
        if let Some((row, when)) = &self.odd {
            warnings.push(format!(
                "rollout.{when} gives neither true nor false for row {row}, which counts as false"
            ));
        }
        if self.broken_before > 0 {
            warnings.push(format!(
                "{} did not render before this change; see the conditions of the hub",
                counted(self.broken_before, "row")
            ));
        }
        warnings
    }

    fn reach(&self, policy: &Rollout, forced: bool) -> String {
        let changed = self.changed;
        let mut said = vec![self.what()];
        let at_once = !self.compared && policy.creation == Creation::Immediate;
        // How many nodes a percentage of the hub's is, its other forms know.
        let of_hub = match self.hub.skew {
            Skew::Count(0) => None,
            Skew::Count(_) => Some((self.hub.skew.of(self.rows), "the hub's maxSkew")),
            Skew::Percent(_) => Some((self.rows, "the hub's maxSkew")),
        };
        let own = policy.max_skew.of(self.rows);
        let own = (own > 0).then_some((own, "maxSkew"));
        match own
            .into_iter()
            .chain(of_hub)
            .min_by_key(|(window, _)| *window)
        {
            _ if changed == 0 => {}
            _ if forced => said.push(format!(
                "{} is on the form: all at once",
                names::FORCE_ROLLOUT
            )),
            _ if self.hub.forced => {
                said.push(format!(
                    "{} is on the hub: all at once",
                    names::FORCE_ROLLOUT
                ));
            }
            _ if policy.paused => said.push("paused: they wait".to_owned()),
            None if !policy.order.is_empty() => {
                said.push("no maxSkew: a group of rollout.order at a time".to_owned());
            }
            None if !policy.domains.is_empty() => {
                said.push("no maxSkew: as many at a time as rollout.domains allows".to_owned());
            }
            None if self.rows > UNPROTECTED_MAX => said.push(
                "no maxSkew: all at once, and nothing protects them from a bad change; set rollout.maxSkew"
                    .to_owned(),
            ),
            None => said.push("no maxSkew: all at once".to_owned()),
            _ if at_once && policy.order.is_empty() => {
                said.push("creation Immediate: all at once".to_owned())
            }
            Some((window, whose)) => {
                let skew = if whose == "maxSkew" {
                    policy.max_skew
                } else {
                    self.hub.skew
                };
                let waves = counted(changed.div_ceil(window), "wave");
                said.push(format!("{whose} {skew}: at least {waves}"));
            }
        }
        said.extend(self.restarts.told());
        said.join("; ")
    }

    /// What becomes of the nodes.
    fn what(&self) -> String {
        let there = self.tried - self.made;
        let changed = self.changed - self.made;
        let made = match self.made {
            0 => String::new(),
            made => format!(", makes {made}"),
        };
        let nodes = |count: usize| match self.tried < self.rows {
            true => format!("the {} tried", counted(count, "node")),
            false => counted(count, "node"),
        };
        match (self.compared, self.kept) {
            _ if there == 0 => format!("makes {}", nodes(self.tried)),
            (true, kept) if kept > 0 => {
                let keep = if kept == 1 { "keeps" } else { "keep" };
                let change = if changed == 1 { "changes" } else { "change" };
                format!(
                    "takes the change back: {} {keep} what runs, {changed} {change}{made}",
                    counted(kept, "held tenant")
                )
            }
            (true, _) => format!(
                "changes {changed} of {} ({} identical){made}",
                nodes(there),
                there - changed
            ),
            (false, _) if !self.nodes_known => format!("makes {}", nodes(self.tried)),
            (false, _) => {
                let change = match changed {
                    0 => String::new(),
                    1 => " (1 changes)".to_owned(),
                    changed => format!(" ({changed} change)"),
                };
                format!("adopts {}{change}{made}", counted(there, "existing node"))
            }
        }
    }
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {}", plural(n, what))
}

fn plural(n: usize, what: &str) -> String {
    let before_y = what.strip_suffix('y');
    match before_y.filter(|before| !before.ends_with(['a', 'e', 'o', 'u'])) {
        _ if n == 1 => what.to_owned(),
        Some(before) => format!("{before}ies"),
        None if what.ends_with(['s', 'h', 'x']) => format!("{what}es"),
        None => format!("{what}s"),
    }
}

#[cfg(test)]
mod tests;

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

/// The most rows that a response names.
const ROWS_SHOWN: usize = 5;
/// With more nodes than this and no window, the author is warned that nothing protects them.
const UNPROTECTED_MAX: usize = 10;

/// The result of the trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    /// The number of rows, and of the rows tried in the available time.
    pub rows: usize,
    pub tried: usize,
    /// The rows for which the form no longer renders, or for a new form does not render; each with the reason.
    broken: Vec<(String, String)>,
    /// How many of their nodes cannot be written at all.
    unwritten: usize,
    /// Rows that did not render before either.
    broken_before: usize,
    /// The number of nodes that are created, or whose content changes.
    changed: usize,
    /// If the hub is changed: the rows that the form renders to another content than before.
    changed_rows: BTreeSet<String>,
    /// Whether the change was compared with the existing nodes.
    nodes_known: bool,
    /// The number of rows without a node, as far as the nodes are known.
    made: usize,
    /// The number of held nodes that already run the content of the change.
    kept: usize,
    /// Whether there was something to compare with.
    compared: bool,
    /// The groups of the order that have a row, by their conditions.
    groups: BTreeSet<usize>,
    /// A row for which a condition of the order is neither true nor false, and which.
    odd: Option<(String, String)>,
    pub restarts: Restarts,
    objects: Objects,
    pub deletions: Deletions,
    /// The resources that the templates no longer have.
    taken_away: Vec<TakenAway>,
    /// Nodes of the form for which what it takes away could not be tried: they lose it later.
    later: usize,
    /// The number of nodes of the hub, or only of the form if the nodes were not listed.
    nodes: usize,
    pub hub: HubSays,
    /// The resources to try on the API server.
    pub samples: Vec<Sample>,
    /// The API server's results.
    pub findings: Findings,
    /// Why the change is compared with the earlier form, not with the live content.
    pub unlisted: Option<String>,
}

/// The hub's settings for all its forms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HubSays {
    pub skew: Skew,
    pub forced: bool,
    /// `spec.guard.maxCreations` of the hub.
    pub max_creations: Option<u64>,
}

/// The form's settings besides its resources.
#[derive(Clone, Copy, Debug)]
pub struct FormSays<'a> {
    pub policy: &'a Rollout,
    /// The annotation allows rows to break.
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

/// The data on which a form is tried.
#[derive(Clone, Copy)]
pub struct On<'a> {
    pub rows: &'a Rows,
    /// The rows that the hub read before, if the hub is changed.
    pub before: Option<&'a Rows>,
    /// None if the earlier form is live, as far as is known.
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

/// State that spans the rows tried so far.
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
        if tried.changes && form.on.before.is_some() {
            self.changed_rows.insert(row.uid.clone());
        }
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
        // A response has room for a few warnings: failures come first.
        let mut warnings = self.reached(form.policy, form.is_forced);
        let findings = self.findings.warnings(allowed, nodes);
        let fails = warned.into_iter().chain(findings);
        let first = warnings.len().min(1);
        warnings.splice(first..first, fails.collect::<Vec<_>>());
        Verdict { denied, warnings }
    }

    /// Why the change would delete too much; neither a forced rollout nor allowed errors override this.
    fn unconfirmed(&self, confirmation: &Confirmation) -> Option<String> {
        let untried = self.untried().filter(|_| deletions::is_asked(self.rows));
        let untried = untried.or_else(|| self.unlisted.clone());
        let denied = untried.and_then(|why| deletions::untried(&self.taken_away, &why));
        let later = (self.later, self.taken_away.as_slice());
        denied.or_else(|| self.deletions.unconfirmed(later, confirmation))
    }

    /// Why the hub would hold the nodes that a new form creates, if it would.
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

    /// The form has neither rows nor nodes yet that it could change.
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
                "tried on {} of {} rows, then timed out",
                self.tried, self.rows
            )
        })
    }

    /// What happens to the nodes for which the form does not render.
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

    /// The effect of a changed hub's rows on the form's nodes: the data that is deleted, and the rows that do not render.
    pub fn of_hub(&self, form: &str) -> Vec<String> {
        let said = |what: String| format!("of form {form}, {what}");
        let all = self.tried == self.rows;
        let deleted = self.deletions.warnings(all, true).into_iter().map(said);
        deleted.chain(self.told(said, WARNING_MAX)).collect()
    }

    /// The rows that the form renders to another content with a changed hub; None if not all rows were tried.
    pub fn into_changed_rows(self) -> Option<BTreeSet<String>> {
        (self.tried == self.rows).then_some(self.changed_rows)
    }

    /// The broken rows, formatted by `words`; with fewer names if the text would be too long.
    fn told(&self, words: impl Fn(String) -> String, chars_max: usize) -> Option<String> {
        let whole = self.broken(ROWS_SHOWN).map(&words);
        let whole = whole.filter(|told| told.chars().count() <= chars_max);
        whole.or_else(|| self.broken(1).map(&words))
    }

    /// The rows for which the form does not render: up to `names_max` names, each beyond the first without its reason.
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

    /// Describes the change for its author.
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
        // A percentage of the hub's nodes cannot be computed from one form: it depends on the other forms.
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

    /// The effect on the nodes.
    fn what(&self) -> String {
        let there = self.tried - self.made;
        let changed = self.changed - self.made;
        let made = match self.made {
            0 => String::new(),
            made => format!(", creates {made}"),
        };
        let nodes = |count: usize| match self.tried < self.rows {
            true => format!("the {} tried", counted(count, "node")),
            false => counted(count, "node"),
        };
        match (self.compared, self.kept) {
            _ if there == 0 => format!("creates {}", nodes(self.tried)),
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
            (false, _) if !self.nodes_known => format!("creates {}", nodes(self.tried)),
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
    const HISSING: [&str; 6] = ["ss", "us", "is", "sh", "ch", "x"];
    let hisses = HISSING.iter().any(|end| what.ends_with(*end));
    let before_y = what.strip_suffix('y');
    match before_y.filter(|before| !before.ends_with(['a', 'e', 'o', 'u'])) {
        _ if n == 1 => what.to_owned(),
        Some(before) => format!("{before}ies"),
        None if hisses => format!("{what}es"),
        // The kind is a plural itself.
        None if what.ends_with('s') => what.to_owned(),
        None => format!("{what}s"),
    }
}

#[cfg(test)]
mod tests;

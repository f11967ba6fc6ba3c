//! The objects that a change of a form deletes. To delete what holds data of many tenants takes a confirmation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use crate::api::form::FormSpec;
use crate::api::names;
use crate::api::resource::{DeletionPolicy, Resource};
use crate::decide::admission::trial::counted;
use crate::decide::admission::trial::objects::{Rendering, identity, scope};
use crate::decide::child::{
    Kind, NodeKey, ObjectKey, deletes_claims, kind_of, object_key, sheds_claims,
};
use crate::decide::hub::rows::guard;

/// The most tenants whose data a change may delete without a confirmation.
const TENANTS_UNASKED: usize = guard::ALWAYS_ALLOWED as usize;
/// The most live objects of a kind to read.
const LOOKS_MAX: usize = 6;
/// How many objects of a kind are named, and in how many characters. The API server cuts a warning off after 256, and what keeps
/// the objects stands at its end.
const WARNED: Room = Room {
    names: 2,
    chars: 80,
};
const DENIED: Room = Room {
    names: 4,
    chars: 100,
};
/// The most kinds that a rejection names.
const KINDS_DENIED: usize = 3;

/// The metadata of live objects; None if the object does not exist.
pub type LiveMetadata = BTreeMap<ObjectKey, Option<Value>>;

/// The objects of the rows tried so far that a change deletes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deletions(BTreeMap<Of, Deleted>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Of {
    kind: String,
    group: String,
    /// Not the objects are deleted, but the claims of their surplus replicas.
    sheds: bool,
    /// The nodes run other content than the old form's: only the objects themselves show whether they exist and are retained.
    in_doubt: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Deleted {
    count: usize,
    /// The first few names.
    names: Vec<String>,
    /// The numbers of their rows.
    tenants: BTreeSet<usize>,
    looks: Vec<ObjectKey>,
    holds_data: bool,
    sheds: bool,
}

/// A row's node before the change.
pub struct Tenant<'a> {
    pub number: usize,
    pub old: Rendering<'a>,
    pub runs_old: bool,
}

/// The annotation `lynq.sh/confirm-deletions` of a form, and what it was before the change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Confirmation<'a> {
    pub before: Option<&'a str>,
    pub now: Option<&'a str>,
}

struct Room {
    names: usize,
    chars: usize,
}

impl Deletions {
    /// Adds the objects that the new rendering no longer names; returns whether data is deleted. `unrendered`: ids of the
    /// resources whose new names are not known.
    pub fn add(
        &mut self,
        tenant: &Tenant,
        before: &[(ObjectKey, Resource)],
        now: &[(ObjectKey, Resource)],
        unrendered: &BTreeSet<String>,
    ) -> bool {
        let stays = now.iter().map(|(key, resource)| (identity(key), resource));
        let stays = BTreeMap::from_iter(stays);
        let mut any_data = false;
        for (key, resource) in before {
            let next = stays.get(&identity(key));
            let sheds = next.is_some_and(|next| sheds_claims(resource, next));
            let holds_data = sheds || may_hold_data(resource);
            let in_doubt = holds_data && !sheds && !tenant.runs_old;
            let is_kept = resource.deletion_policy == DeletionPolicy::Retain && !in_doubt;
            let goes = next.is_none() && !is_kept && !unrendered.contains(&resource.id);
            if !sheds && !goes {
                continue;
            }
            any_data |= holds_data;
            let of = Of {
                kind: key.kind.kind.clone(),
                group: key.kind.group().to_owned(),
                sheds,
                in_doubt,
            };
            let deleted = self.0.entry(of).or_default();
            deleted.count += 1;
            deleted.sheds = sheds;
            deleted.holds_data |= holds_data;
            if deleted.names.len() < DENIED.names {
                deleted.names.push(tenant.shown(key, resource));
            }
            if holds_data {
                deleted.tenants.insert(tenant.number);
            }
            let asks = in_doubt || key.kind.is_custom();
            if asks && deleted.looks.len() < LOOKS_MAX {
                deleted.looks.push(key.clone());
            }
        }
        any_data
    }

    /// Adds those of another row.
    pub fn merge(&mut self, row: Deletions) {
        for (of, mut deleted) in row.0 {
            let all = self.0.entry(of).or_default();
            all.count += deleted.count;
            all.sheds = deleted.sheds;
            all.holds_data |= deleted.holds_data;
            all.tenants.append(&mut deleted.tenants);
            let room = |most: usize, taken: usize| most.saturating_sub(taken);
            let names = room(DENIED.names, all.names.len());
            all.names.extend(deleted.names.into_iter().take(names));
            let looks = room(LOOKS_MAX, all.looks.len());
            all.looks.extend(deleted.looks.into_iter().take(looks));
        }
    }

    /// The live objects that show whether data is deleted. Until they are read, assume that it is.
    pub fn looks(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.values().flat_map(|deleted| &deleted.looks)
    }

    /// Applies what the objects show. A custom resource holds data only if it has a finalizer; an object whose own annotation
    /// retains it is not deleted. An object that was not read counts as deleted with its data.
    pub fn settle(&mut self, seen: &LiveMetadata) {
        self.0.retain(|of, deleted| {
            if deleted.looks.is_empty() {
                return true;
            }
            let live = |key: &ObjectKey| seen.get(key).map(Option::as_ref);
            let goes = |key: &&ObjectKey| match live(key) {
                None => true,
                Some(None) => false,
                Some(Some(metadata)) => metadata["annotations"][names::DELETION_POLICY] != "Retain",
            };
            let has_data = |key: &ObjectKey| {
                let metadata = live(key).flatten();
                let finalizers = metadata.map(|metadata| metadata["finalizers"].as_array());
                !key.kind.is_custom()
                    || finalizers.is_none_or(|all| all.is_some_and(|all| !all.is_empty()))
            };
            let mut going = deleted.looks.iter().filter(goes).peekable();
            let any_goes = going.peek().is_some();
            deleted.holds_data = going.any(has_data);
            any_goes || !of.in_doubt
        });
    }

    /// Why the change is rejected; None if it may go on. `later`: the number of nodes whose rows cannot be tried now, which get
    /// the change once the rows are usable again, and the resources that they then lose.
    pub fn unconfirmed(
        &self,
        (later, taken_away): (usize, &[TakenAway]),
        confirmation: &Confirmation,
    ) -> Option<String> {
        let by_kind = self.by_kind();
        let with_data = by_kind.iter().filter(|(_, deleted)| deleted.holds_data);
        let tenants: BTreeSet<usize> = with_data
            .clone()
            .flat_map(|(_, d)| d.tenants.iter().copied())
            .collect();
        // If the objects that were read hold no data, assume the same of the later ones.
        let is_harmless = tenants.is_empty() && self.0.values().any(|d| !d.tenants.is_empty());
        let later = if is_harmless { 0 } else { later };
        let count = tenants.len() + later;
        if !is_asked(count) {
            return None;
        }
        let why = confirmation.lacks(count as u64)?;
        let mut what: Vec<String> = with_data
            .clone()
            .take(KINDS_DENIED)
            .map(|(kind, deleted)| deleted.told(kind, "", &DENIED))
            .collect();
        let keep = match with_data.clone().all(|(_, deleted)| deleted.sheds) && later == 0 {
            true => "set whenScaled: Retain",
            false => "first set deletionPolicy: Retain and let that roll out",
        };
        let more = with_data.count() - what.len();
        what.extend((more > 0).then(|| counted(more, "more kind")));
        what.extend((later > 0).then(|| {
            let nodes = counted(later, "node");
            let taken = listed(taken_away);
            format!(
                "later {taken} of {nodes} whose rows are gone, undecided or do not render now (see the hub's conditions)"
            )
        }));
        Some(format!(
            "this change deletes data of {count} tenants: {}{why}. To keep it, {keep}; to delete it, apply the change together with the \
             annotation {}: \"{count}\" on the form",
            what.join("; "),
            names::CONFIRM_DELETIONS
        ))
    }

    /// `all`: no row was left out. `only_data`: only the kinds that hold data.
    pub fn warnings(&self, all: bool, only_data: bool) -> Vec<String> {
        let least = if all { "" } else { "at least " };
        let by_kind = self.by_kind();
        let told = by_kind
            .iter()
            .filter(|(_, deleted)| deleted.holds_data || !only_data);
        let told = told.map(|(kind, deleted)| {
            let them = if deleted.count == 1 { "it" } else { "them" };
            let what = deleted.told(kind, least, &WARNED);
            if deleted.sheds {
                return format!("deletes {what}; to keep them, set whenScaled: Retain");
            }
            let cause = match kind.is_namespace() {
                true => String::new(),
                false => format!(", as the form does not name {them} any more"),
            };
            format!("deletes {what}{cause}; to keep {them}, set deletionPolicy: Retain first and let that roll out")
        });
        told.collect()
    }

    /// Merges the objects in doubt with the others of their kind.
    fn by_kind(&self) -> Vec<(Kind, Deleted)> {
        let mut all: Vec<(Kind, Deleted)> = vec![];
        for (of, deleted) in &self.0 {
            let kind = Kind {
                api_version: format!("{}/", of.group),
                kind: of.kind.clone(),
            };
            let is_same = |(last, d): &&mut (Kind, Deleted)| *last == kind && d.sheds == of.sheds;
            match all.last_mut().filter(is_same) {
                Some((_, same)) => {
                    same.count += deleted.count;
                    same.holds_data |= deleted.holds_data;
                    same.names.extend(deleted.names.iter().cloned());
                    same.tenants.extend(&deleted.tenants);
                }
                None => all.push((kind, deleted.clone())),
            }
        }
        all
    }
}

impl Deleted {
    /// The number of objects of the kind, and the first names.
    fn told(&self, kind: &Kind, least: &str, room: &Room) -> String {
        let mut chars = 0;
        let names = self.names.iter().cloned();
        let fit = names.take(room.names).take_while(|name| {
            chars += name.chars().count();
            chars <= room.chars
        });
        let fit: Vec<String> = fit.collect();
        let named = match (fit.as_slice(), self.count - fit.len()) {
            ([], _) => String::new(),
            ([one, other], 0) => format!(" ({one} and {other})"),
            (some, 0) => format!(" ({})", some.join(", ")),
            (some, more) => format!(" ({} and {more} more)", some.join(", ")),
        };
        let (of, scaled) = match self.sheds {
            true => ("the PersistentVolumeClaims of ", " that scale down"),
            false => ("", ""),
        };
        let inside = match self.count {
            _ if self.sheds => "",
            _ if kind.is_stateful_set() && self.holds_data => " with their PersistentVolumeClaims",
            _ if !kind.is_namespace() => "",
            1 => " and everything in it",
            _ => " and everything in them",
        };
        let count = counted(self.count, &kind.kind);
        format!("{of}{least}{count}{scaled}{inside}{named}")
    }
}

impl Tenant<'_> {
    /// The object's name, with its namespace if that is not the form's own. If a value of the row in it must not be shown, names
    /// the row instead.
    fn shown(&self, key: &ObjectKey, resource: &Resource) -> String {
        let path = match &*key.namespace {
            namespace if namespace.is_empty() || *namespace == *self.old.home.namespace => {
                key.name.clone()
            }
            namespace => format!("{namespace}/{}", key.name),
        };
        let shown = self.old.shown(resource, &path);
        shown.unwrap_or_else(|| format!("one of row {}", self.old.inputs.row.uid))
    }
}

impl Confirmation<'_> {
    /// What the confirmation lacks; None if it confirms the count. An annotation from an earlier change confirms nothing: this
    /// change may delete other objects of as many tenants.
    fn lacks(&self, count: u64) -> Option<String> {
        let name = names::CONFIRM_DELETIONS;
        let text = match (self.now, self.now.and_then(guard::count)) {
            (None, _) => String::new(),
            _ if self.now == self.before => {
                format!(
                    " ({name} was on the form before this change, and does not confirm it: take it off first)"
                )
            }
            (_, Some(confirmed)) if confirmed == count => return None,
            (_, Some(other)) => format!(" ({name} confirms {other})"),
            (_, None) => format!(" ({name} is not a number)"),
        };
        Some(text)
    }
}

/// A resource of a form that may hold data, and which a change takes away, or away from some replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenAway {
    pub id: String,
    pub kind: String,
}

impl fmt::Display for TakenAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resource '{}' ({})", self.id, self.kind)
    }
}

fn listed(taken_away: &[TakenAway]) -> String {
    let all = taken_away.iter().map(ToString::to_string);
    Vec::from_iter(all).join(", ")
}

/// The resources of a form that may hold data and that the new form no longer names, names by another template, or scales down
/// with their claims. `runs_old`: all nodes run the old form, so the objects that it retains are kept.
pub fn taken_away(old: &FormSpec, new: &FormSpec, runs_old: bool) -> Vec<TakenAway> {
    let home = NodeKey::new("", "");
    let key = |resource: &Resource| object_key(resource, &home, scope(resource));
    let now = new.content.iter().map(|resource| (key(resource), resource));
    let now: Vec<(ObjectKey, &Resource)> = now.collect();
    let same_language = old.template_engine == new.template_engine;
    let loses = |resource: &&Resource| {
        let key = key(resource);
        let mut next = now
            .iter()
            .filter(|(other, _)| identity(other) == identity(&key));
        let is_kept = resource.deletion_policy == DeletionPolicy::Retain && runs_old;
        match next.next().filter(|_| same_language) {
            Some((_, next)) => sheds_claims(resource, next),
            None => !is_kept && may_hold_data(resource),
        }
    };
    let taken = old.content.iter().filter(loses);
    taken
        .map(|resource| TakenAway {
            id: resource.id.clone(),
            kind: kind_of(&resource.spec).kind,
        })
        .collect()
}

/// Why a change is denied that takes these away and was not tried on all rows.
pub fn untried(taken_away: &[TakenAway], why: &str) -> Option<String> {
    (!taken_away.is_empty()).then(|| {
        format!(
            "this change takes away {}, which may hold data, and how many tenants would lose it is not known: {why}. Apply it again when \
             the rows can be read and rendered in time, or first set deletionPolicy: Retain and let that roll out",
            listed(taken_away)
        )
    })
}

/// Whether deleting the data of these tenants takes a confirmation.
pub fn is_asked(tenants: usize) -> bool {
    tenants > TENANTS_UNASKED
}

fn may_hold_data(resource: &Resource) -> bool {
    let kind = kind_of(&resource.spec);
    kind.holds().is_some() || kind.is_custom() || deletes_claims(&resource.spec)
}

#[cfg(test)]
mod tests;

//! How content went live: through a slot of the ledger, by force, ungated, by a takeover, or in no legal way.
//!
//! The ledger that counts is the one at the revision of the release: a slot is written before it, and freed after.

use super::Audit;
use super::finding::Rule;
use super::nodes::Node;
use super::view::{Live, NodeView, Slot};
use crate::kinds::{Key, Kind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    Slot {
        repair: bool,
    },
    Forced,
    Ungated,
    /// Nothing of it changes any object.
    TakenOver,
    /// In no legal way. The window counts it.
    Unexplained,
}

impl Class {
    pub fn is_gated(&self) -> bool {
        matches!(self, Class::Slot { .. } | Class::Unexplained)
    }
}

/// A release marker: the content and the node's version that it was decided on.
pub struct Marker<'a> {
    pub hash: &'a str,
    version: &'a str,
}

impl Audit {
    /// `old`: the node before, and its revision; None for a creation.
    pub(super) fn live_changed(&mut self, key: &Key, revision: u64, old: Option<(&Node, u64)>) {
        let Some(node) = self.nodes.get(key).map(|stored| &stored.it) else {
            return;
        };
        let view = node.view.clone();
        let (form, hub) = (node.form.clone(), node.hub.clone());
        let hash = match &view.live {
            Live::Hash(hash) => hash.clone(),
            Live::Unknown => {
                if old.is_some_and(|(old, _)| old.view.live != Live::Absent) {
                    self.findings
                        .note("the gate no longer knew what was live, and held it", || {
                            format!("{key} at revision {revision}")
                        });
                }
                return;
            }
            Live::Nothing | Live::Absent => {
                if let Some((old, _)) =
                    old.filter(|(old, _)| matches!(old.view.live, Live::Hash(_)))
                {
                    let what = format!("its live hash {} was taken away", old.view.live.text());
                    let evidence = self.node_evidence(key);
                    self.violation(Rule::Exact, revision, key, what, evidence);
                }
                return;
            }
        };
        if old.is_none() && view.desired.is_empty() {
            return;
        }
        if let Some((old, _)) = old.filter(|(old, _)| is_rebased(old, node, &hash)) {
            let from = old.view.live.text().to_owned();
            self.findings
                .note("a hash was written anew in another version", || {
                    format!("{key}: {from} to {hash}")
                });
            return;
        }
        let since = self.now - self.options.lag_ms;
        let forced = view.forced
            || [&form, &hub]
                .iter()
                .any(|scope| self.scope(scope).was_forced_since(since));
        let class = if forced {
            Class::Forced
        } else if marked_ungated(&view, old.map(|(old, _)| old), &hash) {
            let unknown =
                old.filter(|(old, _)| matches!(old.view.live, Live::Unknown | Live::Absent));
            let apart = unknown.map(|_| self.apart(key));
            if apart.as_deref() == Some("") {
                Class::TakenOver
            } else {
                let old = old.map(|(old, _)| &old.view.live);
                self.check_ungated(key, revision, (&form, &hub), old, apart);
                Class::Ungated
            }
        } else {
            self.gated_class(key, revision, &view, &hash, &hub, old)
        };
        self.count(&[form.clone(), hub.clone()], &class);
        if class != Class::Forced {
            self.check_paused(key, revision, &form, &class);
        }
        if class.is_gated() {
            for scope in [&form, &hub] {
                self.check_window(key, revision, scope, &class);
            }
            self.check_domains(key, revision, &form, &class);
        }
        self.take_off(key, class, revision);
    }

    /// Through a slot, which must name the node, the content, and the version that the release was decided on.
    fn gated_class(
        &mut self,
        key: &Key,
        revision: u64,
        view: &NodeView,
        hash: &str,
        hub: &Key,
        old: Option<(&Node, u64)>,
    ) -> Class {
        let problem = self.problem_with_release(key, view, hash, hub, old);
        let problem = match problem {
            Ok(slot) => {
                return Class::Slot {
                    repair: slot.repair,
                };
            }
            Err(problem) => problem,
        };
        let mut evidence = self.node_evidence(key);
        evidence.extend(self.hub_evidence(hub));
        let what = format!("{hash} went live, and {problem}");
        self.violation(Rule::Exact, revision, key, what, evidence);
        Class::Unexplained
    }

    fn problem_with_release(
        &self,
        key: &Key,
        view: &NodeView,
        hash: &str,
        hub: &Key,
        old: Option<(&Node, u64)>,
    ) -> Result<Slot, String> {
        let Some((old, old_revision)) = old else {
            return Err("it was created so, not forced and not ungated".to_owned());
        };
        let marker = view
            .release
            .as_deref()
            .filter(|_| view.release != old.view.release);
        let Some(Marker {
            hash: named,
            version,
        }) = marker.and_then(Marker::of)
        else {
            return Err(
                "no release marker, ungated marker or force annotation says why".to_owned(),
            );
        };
        if named != hash || view.desired_hash.as_deref() != Some(hash) {
            return Err(format!("the release names {named}"));
        }
        if self.options.every_revision && version != old_revision.to_string() {
            return Err(format!(
                "the release names version {version}, but it was made on {old_revision}"
            ));
        }
        let slot = self.hubs.get(hub).and_then(|stored| {
            let it = &stored.it;
            // A release that was on its way when the ledger was lost had its slot.
            it.slots.get(&view.uid).or_else(|| it.lost.get(&view.uid))
        });
        let Some(slot) = slot else {
            return Err(format!(
                "the ledger of {hub} had no slot for it at that revision"
            ));
        };
        if slot.node != key.name || slot.hash != hash {
            return Err(format!(
                "its slot names {} of node {}",
                slot.hash, slot.node
            ));
        }
        if slot.resource_version != version {
            return Err(format!(
                "its slot names version {}, and the release {version}",
                slot.resource_version
            ));
        }
        Ok(slot.clone())
    }

    /// Only where no window applies, or for what is new and need not wait. `apart`: what keeps it from being a takeover.
    fn check_ungated(
        &mut self,
        key: &Key,
        revision: u64,
        (form, hub): (&Key, &Key),
        old: Option<&Live>,
        apart: Option<String>,
    ) {
        let since = self.now - self.options.lag_ms;
        let is_new = old.is_none_or(|live| *live == Live::Nothing);
        if is_new && self.scope(form).was_immediate_since(since) {
            return;
        }
        for scope in [form, hub] {
            if self.scope(scope).is_limited_since(since) {
                let evidence = [self.node_evidence(key), self.width_evidence(scope)].concat();
                let apart = apart.map_or_else(String::new, |apart| format!(", and {apart}"));
                let what = format!("it went live ungated although {scope} has a window{apart}");
                return self.violation(Rule::Ungated, revision, key, what, evidence);
            }
        }
    }

    fn check_paused(&mut self, key: &Key, revision: u64, form: &Key, class: &Class) {
        let since = self.now - self.options.lag_ms;
        if self.scope(form).is_paused_since(since) && *class != Class::Unexplained {
            let evidence = self.node_evidence(key);
            let what = format!("it was released although {form} is paused");
            self.violation(Rule::Paused, revision, key, what, evidence);
        }
    }

    /// One more in flight than before must fit into the widest window that was in force since its slot was taken. What
    /// is in flight already may stay when the window is narrowed.
    fn check_window(&mut self, key: &Key, revision: u64, scope: &Key, class: &Class) {
        let Some(node) = self.nodes.get(key).map(|stored| &stored.it) else {
            return;
        };
        let (uid, hub) = (node.view.uid.clone(), node.hub.clone());
        let reserved = self
            .hubs
            .get(&hub)
            .and_then(|stored| stored.it.reserved.get(&uid));
        let since = reserved.map_or(self.now, |(_, at)| *at) - self.options.lag_ms;
        let repair = *class == Class::Slot { repair: true };
        // Repairs have a window of their own in a form that says so, never in a hub.
        let it = self.scope(scope);
        let only_released = scope.kind == Kind::Form
            && it
                .policy
                .as_ref()
                .is_some_and(|policy| policy.only_released);
        let Some(widest) = it.widest_since(since) else {
            return;
        };
        if it.flight().contains_key(&uid) {
            return;
        }
        let others: Vec<String> = it
            .flight()
            .values()
            .filter(|member| !only_released || member.repair == repair)
            .map(|member| format!("{} since revision {}", member.name, member.revision))
            .collect();
        let count = others.len() + 1;
        if count <= widest {
            return;
        }
        let mut evidence = vec![format!("in flight: {}", others.join(", "))];
        evidence.extend(self.width_evidence(scope));
        evidence.extend(self.hub_evidence(&hub));
        evidence.extend(self.node_evidence(key));
        let what =
            format!("released as number {count} in flight, where {scope} has a window of {widest}");
        self.violation(Rule::Window, revision, key, what, evidence);
    }

    /// Reports a release into a domain whose window was full.
    fn check_domains(&mut self, key: &Key, revision: u64, form: &Key, class: &Class) {
        let since = self.now - self.options.lag_ms;
        let (Some(node), Some(scope)) = (self.nodes.get(key), self.scopes.get(form)) else {
            return;
        };
        let Some(policy) = &scope.policy else { return };
        let view = &node.it.view;
        if scope.domains_since > since || scope.flight().contains_key(&view.uid) {
            return;
        }
        let repair = *class == Class::Slot { repair: true };
        let mut found = vec![];
        for (domain, skew) in &policy.domains {
            let Some(value) = view.domain(domain) else {
                continue;
            };
            let of_form = self.nodes.values().map(|stored| &stored.it);
            let all = of_form.filter(|other| other.form == *form && !other.view.deleting);
            let all = all.filter(|other| other.view.domain(domain) == Some(value));
            let total = all.clone().count();
            let flies = |other: &&Node| {
                let member = scope.flight().get(&other.view.uid);
                member.is_some_and(|it| !policy.only_released || it.repair == repair)
            };
            let in_flight = all
                .filter(flies)
                .filter_map(|other| scope.flight().get(&other.view.uid));
            let others: Vec<&str> = in_flight.map(|member| member.name.as_str()).collect();
            let count = others.len() + 1;
            if let Some(width) = skew.width(total).filter(|width| count > *width) {
                let name = domain.name();
                let what = format!(
                    "released as number {count} in flight, where the domain {name}={value} of {form} has a window of {width}"
                );
                found.push((what, format!("in flight: {}", others.join(", "))));
            }
        }
        for (what, others) in found {
            let evidence = [vec![others], self.node_evidence(key)].concat();
            self.violation(Rule::Window, revision, key, what, evidence);
        }
    }

    fn count(&mut self, scopes: &[Key], class: &Class) {
        for scope in scopes {
            let times = &mut self.scope(scope).times;
            match class {
                Class::Slot { repair: true } => times.repaired += 1,
                Class::Slot { .. } | Class::Unexplained => times.released += 1,
                Class::Forced => times.forced += 1,
                Class::Ungated => times.ungated += 1,
                Class::TakenOver => times.taken_over += 1,
            }
        }
    }

    pub(super) fn node_evidence(&self, key: &Key) -> Vec<String> {
        let node = self.nodes.get(key);
        node.map(|stored| stored.it.evidence()).unwrap_or_default()
    }
}

impl Marker<'_> {
    pub fn of(text: &str) -> Option<Marker<'_>> {
        // Words may follow that say what the slot is for.
        let mut parts = text.split('/');
        let (hash, version) = (parts.next()?, parts.next()?);
        Some(Marker { hash, version })
    }
}

/// The marker is the hash; what may stand behind it makes it another marker than the last one.
fn marked_ungated(view: &NodeView, old: Option<&Node>, hash: &str) -> bool {
    let before = old.and_then(|old| old.view.ungated.as_deref());
    let marker = view
        .ungated
        .as_deref()
        .filter(|marker| Some(*marker) != before);
    marker.is_some_and(|marker| marker.split('/').next() == Some(hash))
}

/// The same live content under a hash of another version.
fn is_rebased(old: &Node, new: &Node, hash: &str) -> bool {
    let version = |hash: &str| hash.split_once(':').map(|(version, _)| version.to_owned());
    let digest = |node: &Node| node.live.as_ref().map(|content| content.digest);
    let before = old.view.live.text();
    version(before).is_some()
        && version(before) != version(hash)
        && digest(old).is_some()
        && digest(old) == digest(new)
}

//! What an apply of a form would change: compares what the form renders for each row with what the row's LynqNode runs, and reports
//! the changes for `lynqgate diff -f`. The caller reads the rows and the LynqNodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::names;
use crate::api::resource::ResourceArrays;
use crate::decide::child::NodeKey;
use crate::decide::gate::annotation;
use crate::decide::hub::findings::{Findings, Subject};
use crate::decide::hub::sync::{NodeWrite, Plan, RenderSource, taken};
use crate::decide::hub::tested::line;
use crate::decide::node::diff;
use crate::decide::node::diff::alike::{Groups, first_of};
use crate::decide::node::digest::{NodeDigest, arrays, live_content};
use crate::decide::rollout::Live;
use crate::decide::shared::content;

/// A comparison that goes on while the hub's LynqNodes are read. It keeps the content of none of them.
pub struct Preview<'a> {
    form: &'a str,
    source: &'a RenderSource,
    /// What the rows require, without the LynqNodes that were seen.
    unseen: BTreeMap<&'a str, &'a NodeWrite>,
    /// LynqNodes that do not render, or not completely.
    unrendered: BTreeSet<&'a str>,
    changes: Changes,
}

impl<'a> Preview<'a> {
    /// `plan`: the plan of a hub that has no node yet, and only this form.
    pub fn of(form: &'a str, source: &'a RenderSource, plan: &'a Plan) -> Self {
        let writes = plan.writes.iter();
        let unrendered = plan.render_errors.names();
        Preview {
            form,
            source,
            unseen: writes.map(|write| (&*write.name, write)).collect(),
            changes: Changes {
                form: form.to_owned(),
                unrendered: unrendered.len(),
                why_unrendered: plan.render_errors.clone(),
                why_skipped: plan.skipped.clone(),
                ..Changes::default()
            },
            unrendered,
        }
    }

    /// `object`: a LynqNode of the hub, of whatever form.
    pub fn see(&mut self, object: &Value) {
        let node = Arc::new(NodeDigest::of(object, None));
        let name = &*node.key.name;
        let rows = &self.source.rows;
        if node.form == self.form && rows.is_gone(&node.row_uid) {
            self.changes.going.push(name.to_owned());
        }
        // A node that is being deleted is created again if a row requires it.
        if node.deleting {
            return;
        }
        let Some(write) = self.unseen.remove(name) else {
            return;
        };
        let row = &rows.rows[&write.uid];
        if let Some(cause) = taken(&self.source.hub, None, self.form, row, Some(&node)) {
            let skipped = &mut self.changes.why_skipped;
            skipped.add(Subject::Node, name, cause);
            return;
        }
        if self.unrendered.contains(name) {
            return;
        }
        let changes = &mut self.changes;
        match (&node.live, live_content(object, &node.live)) {
            (Live::None, _) => changes.new.push(name.to_owned()),
            (Live::Hash(hash), Some(live)) => {
                let wanted = wanted(self.source, write, object, &node);
                match difference(&node.key, (hash.as_str(), &live), &wanted) {
                    None => changes.unchanged += 1,
                    Some(diff) => {
                        let values = row.variables.iter().map(|(_, value)| value);
                        let values: Vec<&str> = values.collect();
                        let of_row = (row.uid.as_str(), values.as_slice());
                        changes.changed.add_row(name, of_row, diff);
                    }
                }
            }
            _ => changes.unknown.push(name.to_owned()),
        }
    }

    /// After all LynqNodes of the hub were seen.
    pub fn finish(self) -> Changes {
        let Preview {
            unseen,
            unrendered,
            mut changes,
            ..
        } = self;
        let new = unseen.into_keys().filter(|name| !unrendered.contains(name));
        changes.new.extend(new.map(str::to_owned));
        changes.new.sort();
        changes
    }
}

/// The spec that the node would have.
fn wanted(source: &RenderSource, write: &NodeWrite, object: &Value, node: &NodeDigest) -> Value {
    let mut rendered = source.object(&write.of_existing(node));
    let hash = annotation(&rendered, names::RENDERED_HASH);
    let is_written = hash == node.rendered_hash.as_deref() && !node.discards_edit();
    match is_written {
        // The hub does not write it again, so that an edit by hand stays.
        true => object["spec"].clone(),
        false => rendered["spec"].take(),
    }
}

/// None if the node runs this already. `live`: what it runs, with its hash.
fn difference(
    node: &NodeKey,
    (hash, live): (&str, &ResourceArrays),
    spec: &Value,
) -> Option<String> {
    if content::hash(Some(spec)).as_str() == hash {
        return None;
    }
    let wanted = arrays(spec).map_or_else(|| spec.clone(), |arrays| json!(arrays));
    let diff = diff::of_release(node, ("live", &json!(live)), ("form", &wanted));
    Some(diff).filter(|diff| !diff.is_empty())
}

/// What an apply of a form would change, by tenants that change alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    form: String,
    changed: Groups,
    unchanged: usize,
    /// LynqNodes that do not exist, or run nothing yet.
    new: Vec<String>,
    /// LynqNodes without a row.
    going: Vec<String>,
    /// LynqNodes of which lynqgate does not know what they run.
    unknown: Vec<String>,
    unrendered: usize,
    why_unrendered: Findings,
    why_skipped: Findings,
}

impl Changes {
    /// Whether anything changes, or does not render.
    pub fn is_any(&self) -> bool {
        self.tenants() > self.unchanged
    }

    fn tenants(&self) -> usize {
        let names = [&self.new, &self.going, &self.unknown];
        let named: usize = names.iter().map(|names| names.len()).sum();
        self.changed.nodes() + self.unchanged + named + self.unrendered
    }

    /// How many tenants change alike, how many otherwise, and what becomes of the rest.
    fn counts(&self) -> Vec<String> {
        let changed = self.changed.nodes();
        let largest = self.changed.largest_first().first().copied();
        let alike = largest.map_or(0, |largest| largest.names.len());
        let others = changed - alike;
        let mut counts = match (alike, others) {
            (0, _) => vec![],
            (1, 0) => vec!["1 changes".to_owned()],
            (_, 0) => vec![format!("{alike} change alike")],
            _ if alike > others => {
                let others = counted(others, ["differs", "differ"]);
                vec![format!("{alike} change alike"), others]
            }
            _ => vec![format!("{changed} change {}", self.changed.ways())],
        };
        let rest = [
            (self.new.len(), ["new"; 2]),
            (self.going.len(), ["goes", "go"]),
            (self.unchanged, ["unchanged"; 2]),
            (self.unrendered, ["does not render", "do not render"]),
            (self.unknown.len(), ["unknown"; 2]),
        ];
        let rest = rest.into_iter().filter(|(count, _)| *count > 0);
        counts.extend(rest.map(|(count, words)| counted(count, words)));
        counts
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let groups = self.changed.largest_first().into_iter();
        let groups = groups.map(|alike| json!({"nodes": alike.names, "diff": alike.diff}));
        json!({
            "form": self.form,
            "tenants": self.tenants(),
            "changed": groups.collect::<Vec<Value>>(),
            "unchanged": self.unchanged,
            "new": self.new,
            "going": self.going,
            "unknown": self.unknown,
            "unrendered": self.unrendered,
            "whyUnrendered": self.why_unrendered.json(),
            "whySkipped": self.why_skipped.json(),
        })
    }
}

fn counted(count: usize, [one, many]: [&str; 2]) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenants = counted(self.tenants(), ["tenant", "tenants"]);
        let counts = match self.counts() {
            none if none.is_empty() => "no row is active".to_owned(),
            counts => counts.join(", "),
        };
        writeln!(f, "form {}: {tenants}; {counts}", self.form)?;
        for (label, names, why) in [
            ("new", &self.new, "nothing runs yet"),
            ("going", &self.going, "no active row"),
            (
                "unknown",
                &self.unknown,
                "what runs is not known: lynqgate explain node NAME",
            ),
        ] {
            if !names.is_empty() {
                line(f, label, &format!("{}: {why}", first_of(names)))?;
            }
        }
        for (label, findings) in [
            ("failed", &self.why_unrendered),
            ("skipped", &self.why_skipped),
        ] {
            for text in findings.lines() {
                line(f, label, &text)?;
            }
        }
        write!(f, "{}", self.changed)?;
        match self.changed.left_out() {
            0 => Ok(()),
            more => writeln!(f, "\nand {more} more ways: -o json shows all"),
        }
    }
}

#[cfg(test)]
mod tests;

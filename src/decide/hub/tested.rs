//! What `lynqgate test` reports: for how many rows a form rendered, why it did not for the others, whether the rendered manifests
//! fit the schemas of their kinds, and how the rendered nodes compare with their golden files.

pub mod validation;

use std::fmt;

use serde_json::{Value, json};

use crate::decide::hub::findings::Findings;
use crate::decide::hub::rows::Rows;
use crate::decide::hub::sync::Plan;
use crate::decide::hub::tested::validation::Validation;
use crate::decide::node::diff::alike::{Groups, first_of};
use crate::decide::node::golden::Compared;

/// Without schemas, a test that passes says nothing of unknown fields.
const NOT_VALIDATED: &str =
    "none given: the manifests were not validated. Give --schemas cluster, or --schemas PATH";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tested {
    form: String,
    rows: u64,
    rendered: usize,
    failed: usize,
    skipped: u64,
    inactive: u64,
    why_failed: Findings,
    why_skipped: Findings,
    /// None without schemas.
    pub validation: Option<Validation>,
    /// None without golden files.
    pub comparison: Option<Comparison>,
}

/// How the rendered nodes compare with their golden files, or how these were updated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    directory: String,
    /// Nodes whose files are as they must be.
    same: usize,
    differ: Groups,
    /// Nodes without a file.
    missing: Vec<String>,
    /// Nodes that have a file and no active row.
    pub left_over: Vec<String>,
    /// None if the files were only compared.
    pub updated: Option<Updated>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Updated {
    pub written: usize,
    pub deleted: usize,
    /// Nodes whose files differ, and were not written by lynqgate for the form.
    pub refused: Vec<String>,
}

impl Tested {
    /// `plan`: the plan of a hub that has no node yet, and only this form.
    pub fn of(form: &str, rows: &Rows, plan: &Plan) -> Self {
        let nodes = plan.desired.get(form).map_or(0, |desired| desired.count());
        let failed = plan.render_errors.names().len();
        let not_inactive = rows.read.0.saturating_sub(rows.inactive);
        Tested {
            form: form.to_owned(),
            rows: rows.read.0,
            rendered: nodes.saturating_sub(failed),
            failed,
            skipped: not_inactive.saturating_sub(nodes as u64),
            inactive: rows.inactive,
            why_failed: plan.render_errors.clone(),
            why_skipped: plan.skipped.clone(),
            validation: None,
            comparison: None,
        }
    }

    /// Whether there is anything to validate, and to compare with golden files. Otherwise the rows are probably wrong.
    pub fn has_rendered(&self) -> bool {
        self.rendered > 0
    }

    /// Why the test fails, in a sentence.
    pub fn failure(&self) -> Option<String> {
        let form = &self.form;
        if self.rows == self.inactive {
            return Some(format!(
                "form {form}: nothing was rendered: no row is active. Check the column that says whether a row is active"
            ));
        }
        let mut counts = vec![(self.failed, "failed"), (self.skipped as usize, "skipped")];
        let invalid = self.validation.as_ref().map_or(0, Validation::invalid);
        counts.push((invalid, "with an invalid manifest"));
        let mut next = "";
        if let Some(comparison) = &self.comparison {
            let of_files = comparison.complaints();
            if of_files.iter().any(|(count, _)| *count > 0) && comparison.updated.is_none() {
                next = ". If this is intended, repeat the command with --update";
            }
            counts.extend(of_files);
        }
        let counts = counts.into_iter().filter(|(count, _)| *count > 0);
        let said: Vec<String> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let said = said.join(", ");
        (!said.is_empty()).then(|| format!("form {form}: {said}{next}"))
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        json!({
            "form": self.form,
            "rows": self.rows,
            "rendered": self.rendered,
            "failed": self.failed,
            "skipped": self.skipped,
            "inactive": self.inactive,
            "whyFailed": self.why_failed.json(),
            "whySkipped": self.why_skipped.json(),
            "schemas": self.validation.as_ref().map(Validation::json),
            "golden": self.comparison.as_ref().map(Comparison::json),
        })
    }
}

impl fmt::Display for Tested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, rows) = (&self.form, self.rows);
        let noun = if rows == 1 { "row" } else { "rows" };
        writeln!(
            f,
            "form {form}: {rows} {noun}: {} rendered, {} failed, {} skipped, {} inactive",
            self.rendered, self.failed, self.skipped, self.inactive
        )?;
        for (label, findings) in [("failed", &self.why_failed), ("skipped", &self.why_skipped)] {
            for text in findings.lines() {
                line(f, label, &text)?;
            }
        }
        match &self.validation {
            Some(validation) => write!(f, "{validation}")?,
            None if self.has_rendered() => line(f, "schemas", NOT_VALIDATED)?,
            None => {}
        }
        match &self.comparison {
            Some(comparison) => write!(f, "{comparison}"),
            None => Ok(()),
        }
    }
}

impl Comparison {
    pub fn with(directory: &str) -> Self {
        Comparison {
            directory: directory.to_owned(),
            ..Comparison::default()
        }
    }

    /// `uid`: the id of the node's row.
    pub fn add(&mut self, node: &str, uid: &str, compared: Compared) {
        match compared {
            Compared::Same => self.same += 1,
            Compared::Missing => self.missing.push(node.to_owned()),
            Compared::Different(diff) => self.differ.add(node, uid, diff),
        }
    }

    /// What makes a test fail, with its number.
    fn complaints(&self) -> Vec<(usize, &'static str)> {
        match &self.updated {
            Some(updated) => vec![(
                updated.refused.len(),
                "with a golden file that lynqgate did not write",
            )],
            None => vec![
                (self.differ.nodes(), "not as in the golden file"),
                (self.missing.len(), "without a golden file"),
                (
                    self.left_over.len(),
                    "with a golden file, but without a row",
                ),
            ],
        }
    }

    fn json(&self) -> Value {
        let groups = self.differ.largest_first().into_iter();
        let groups = groups.map(|alike| json!({"nodes": alike.names, "diff": alike.diff}));
        json!({
            "directory": self.directory,
            "same": self.same,
            "differ": groups.collect::<Vec<Value>>(),
            "withoutFile": self.missing,
            "withoutRow": self.left_over,
            "updated": self.updated.as_ref().map(|updated| json!({
                "written": updated.written,
                "deleted": updated.deleted,
                "refused": updated.refused,
            })),
        })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (directory, same) = (&self.directory, self.same);
        if let Some(updated) = &self.updated {
            let (written, deleted) = (updated.written, updated.deleted);
            let counts = format!("{written} written, {deleted} deleted, {same} unchanged");
            line(f, "golden", &format!("{directory}: {counts}"))?;
            if !updated.refused.is_empty() {
                let names = first_of(&updated.refused);
                let why = "lynqgate did not write the file. Delete it, or give another directory";
                line(f, "refused", &format!("{names}: {why}"))?;
            }
            return Ok(());
        }
        let differ = match self.differ.nodes() {
            0 => String::new(),
            1 => ", 1 node differs".to_owned(),
            nodes => format!(", {nodes} nodes differ {}", self.differ.ways()),
        };
        let counts = format!("{directory}: {same} as expected{differ}");
        line(f, "golden", &counts)?;
        for (label, names) in [("no file", &self.missing), ("no row", &self.left_over)] {
            if !names.is_empty() {
                let (count, names) = (names.len(), first_of(names));
                line(f, label, &format!("{count}: {names}"))?;
            }
        }
        write!(f, "{}", self.differ)?;
        match self.differ.left_out() {
            0 => Ok(()),
            more => writeln!(f, "\nand {more} more ways: -o json shows all"),
        }
    }
}

/// A line of a report, under its head.
pub(super) fn line(f: &mut fmt::Formatter<'_>, label: &str, text: &str) -> fmt::Result {
    writeln!(f, "  {label:<10} {text}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::api::resource::ResourceArrays;
    use crate::decide::child::{Kind, NodeKey};
    use crate::decide::hub::findings::Subject;
    use crate::decide::hub::tested::validation::Schema;

    fn all_good() -> Tested {
        Tested {
            form: "web".to_owned(),
            rows: 3,
            rendered: 2,
            inactive: 1,
            ..Tested::default()
        }
    }

    /// One node of each kind.
    fn compared() -> Comparison {
        let mut comparison = Comparison::with("golden");
        comparison.add("a-web", "a", Compared::Same);
        comparison.add("b-web", "b", Compared::Missing);
        comparison.add("x1-web", "x1", Compared::Different("+x1\n".to_owned()));
        comparison.add("x2-web", "x2", Compared::Different("+x2\n".to_owned()));
        comparison.left_over.push("gone-web".to_owned());
        comparison
    }

    /// One node, whose only kind cannot be applied.
    fn invalid() -> Validation {
        let manifest = json!({"apiVersion": "example.com/v1", "kind": "Queue"});
        let resources = json!({"manifests": [{"id": "queue", "spec": manifest}]});
        let resources: ResourceArrays = serde_json::from_value(resources).unwrap();
        let kind = Kind::new("example.com/v1", "Queue");
        let schemas = BTreeMap::from([(kind, Schema::Refused("no such kind".to_owned()))]);
        let mut validation = Validation::with("schemas");
        validation.add(&NodeKey::new("tenants", "a-web"), &resources, &schemas);
        validation
    }

    fn updated(refused: &[&str]) -> Tested {
        let updated = Updated {
            written: 2,
            deleted: 1,
            refused: refused.iter().map(|name| (*name).to_owned()).collect(),
        };
        Tested {
            comparison: Some(Comparison {
                updated: Some(updated),
                ..Comparison::with("golden")
            }),
            ..all_good()
        }
    }

    fn failed() -> Tested {
        let mut tested = Tested {
            rows: 6,
            failed: 2,
            skipped: 1,
            ..all_good()
        };
        for node in ["a-web", "b-web"] {
            tested
                .why_failed
                .add(Subject::Node, node, "resource \"map\": no plan");
        }
        tested
            .why_skipped
            .add(Subject::Row, "\"A\"", "the uid is bad");
        tested
    }

    #[test]
    fn the_report_says_what_fails_and_why() {
        for (name, tested, failure, lines) in [
            (
                "all good",
                all_good(),
                None,
                "form web: 3 rows: 2 rendered, 0 failed, 0 skipped, 1 inactive\n\
                 \x20 schemas    none given: the manifests were not validated. Give --schemas cluster, or --schemas PATH\n",
            ),
            (
                "a manifest that is invalid",
                Tested {
                    validation: Some(invalid()),
                    ..all_good()
                },
                Some("form web: 1 with an invalid manifest"),
                "form web: 3 rows: 2 rendered, 0 failed, 0 skipped, 1 inactive\n\
                 \x20 schemas    schemas: 0 of 1 node valid\n\
                 \x20 invalid    LynqNode a-web: resource \"queue\" (Queue.example.com): no such kind\n",
            ),
            (
                "no row is active",
                Tested {
                    rows: 1,
                    rendered: 0,
                    ..all_good()
                },
                Some(
                    "form web: nothing was rendered: no row is active. Check the column that says whether a row is active",
                ),
                "form web: 1 row: 0 rendered, 0 failed, 0 skipped, 1 inactive\n",
            ),
            (
                "rows that fail and rows that are skipped",
                failed(),
                Some("form web: 2 failed, 1 skipped"),
                "form web: 6 rows: 2 rendered, 2 failed, 1 skipped, 1 inactive\n\
                 \x20 failed     LynqNodes a-web, b-web: resource \"map\": no plan\n\
                 \x20 skipped    Row \"A\": the uid is bad\n\
                 \x20 schemas    none given: the manifests were not validated. Give --schemas cluster, or --schemas PATH\n",
            ),
            (
                "golden files that differ",
                Tested {
                    validation: Some(Validation::with("schemas")),
                    comparison: Some(compared()),
                    ..all_good()
                },
                Some(
                    "form web: 2 not as in the golden file, 1 without a golden file, 1 with a golden file, but without a row. \
                     If this is intended, repeat the command with --update",
                ),
                "form web: 3 rows: 2 rendered, 0 failed, 0 skipped, 1 inactive\n\
                 \x20 schemas    schemas: 0 of 0 nodes valid\n\
                 \x20 golden     golden: 1 as expected, 2 nodes differ alike\n\
                 \x20 no file    1: b-web\n\
                 \x20 no row     1: gone-web\n\
                 \n2 nodes (x1-web, x2-web):\n+x1\n",
            ),
            (
                "golden files that were updated",
                updated(&[]),
                None,
                "form web: 3 rows: 2 rendered, 0 failed, 0 skipped, 1 inactive\n\
                 \x20 schemas    none given: the manifests were not validated. Give --schemas cluster, or --schemas PATH\n\
                 \x20 golden     golden: 2 written, 1 deleted, 0 unchanged\n",
            ),
            (
                "a golden file of somebody else",
                updated(&["a-web"]),
                Some("form web: 1 with a golden file that lynqgate did not write"),
                "form web: 3 rows: 2 rendered, 0 failed, 0 skipped, 1 inactive\n\
                 \x20 schemas    none given: the manifests were not validated. Give --schemas cluster, or --schemas PATH\n\
                 \x20 golden     golden: 2 written, 1 deleted, 0 unchanged\n\
                 \x20 refused    a-web: lynqgate did not write the file. Delete it, or give another directory\n",
            ),
        ] {
            assert_eq!(tested.failure().as_deref(), failure, "{name}");
            assert_eq!(tested.to_string(), lines, "{name}");
        }
    }

    #[test]
    fn programs_get_every_name() {
        let tested = Tested {
            comparison: Some(compared()),
            ..failed()
        };
        let expected = json!({
            "form": "web", "rows": 6, "rendered": 2, "failed": 2, "skipped": 1, "inactive": 1,
            "whyFailed": [{"cause": "resource \"map\": no plan", "names": ["a-web", "b-web"]}],
            "whySkipped": [{"cause": "the uid is bad", "names": ["\"A\""]}],
            "schemas": null,
            "golden": {
                "directory": "golden", "same": 1,
                "differ": [{"nodes": ["x1-web", "x2-web"], "diff": "+x1\n"}],
                "withoutFile": ["b-web"], "withoutRow": ["gone-web"], "updated": null,
            },
        });
        assert_eq!(tested.json(), expected);
        assert_eq!(all_good().json()["golden"], Value::Null);
        let tested = Tested {
            validation: Some(invalid()),
            ..all_good()
        };
        assert_eq!(tested.json()["schemas"], invalid().json());
    }
}

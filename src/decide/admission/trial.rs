//! A form tried on the rows there are, before it is stored: for whom it does not render, and how much it changes.

mod objects;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::api::names;
use crate::api::policy::{Creation, Rollout, Skew};
use crate::decide::admission::Verdict;
use crate::decide::admission::form::Change;
use crate::decide::admission::trial::objects::{Claims, Objects, Rendering};
use crate::decide::child::{NodeKey, kind_of};
use crate::decide::content;
use crate::decide::render::{CompiledForm, RowInputs};
use crate::decide::review::{MESSAGE_MAX, WARNING_MAX};
use crate::decide::rows::names::node_name;
use crate::decide::rows::{Row, Rows};

/// How many rows an answer names.
const ROWS_SHOWN: usize = 5;

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
    /// Nodes whose content changes.
    changed: usize,
    /// Whether there was something to compare with.
    compared: bool,
    /// The groups of the order in which there is a row, by their conditions.
    groups: BTreeSet<usize>,
    /// A row for which a condition of the order is neither true nor false, and which.
    odd: Option<(String, String)>,
    /// Workloads by kind whose pods are made anew.
    restarts: BTreeMap<String, usize>,
    objects: Objects,
    pub hub: HubSays,
    /// Nodes that still run older content: perhaps what this goes back to.
    pub held: u64,
}

/// What the hub says of all of its forms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HubSays {
    pub skew: Skew,
    pub forced: bool,
}

/// `go_on` is asked before each row.
pub fn of(
    change: &Change,
    rows: &Rows,
    (namespace, hub, form): (&str, &str, &str),
    go_on: &dyn Fn() -> bool,
) -> Trial {
    let mut trial = Trial {
        rows: rows.rows.len(),
        compared: change.old.is_some(),
        ..Trial::default()
    };
    let mut claims = Claims::default();
    for row in rows.rows.values() {
        if !go_on() {
            break;
        }
        trial.tried += 1;
        let inputs = inputs(row, hub, form);
        let render = |form: &CompiledForm| form.render(&inputs);
        let (new, errors) = render(&change.new);
        let old = change.old.as_ref().map(|old| render(old));
        let (old, old_errors) = old.unzip();
        let old_errors = old_errors.unwrap_or_default();
        trial.broken_before += usize::from(!old_errors.is_empty());
        let renders = errors.is_empty();
        let was_broken = |id: &String| old_errors.iter().any(|(old, _)| old == id);
        let resource = errors.into_iter().find(|(id, _)| !was_broken(id));
        let resource = resource.map(|(id, cause)| format!("resource '{id}': {cause}"));
        let unwritten = match change.new.group(&inputs) {
            Ok((group, odd)) => {
                trial.groups.extend(group);
                trial.odd = trial.odd.take().or_else(|| Some((row.uid.clone(), odd?)));
                let fits = content::check_size(Some(&new));
                fits.err().map(|error| error.to_string())
            }
            Err(cause) => Some(cause),
        };
        let written = unwritten.is_none();
        trial.unwritten += usize::from(!written);
        let cause = resource.or(unwritten);
        trial
            .broken
            .extend(cause.map(|cause| (row.uid.clone(), cause)));
        let changed = old
            .as_ref()
            .is_none_or(|old| content::hash(Some(old)) != content::hash(Some(&new)));
        trial.changed += usize::from(changed);
        if written {
            let home = NodeKey {
                namespace: namespace.to_owned(),
                name: node_name(&row.uid, form),
            };
            let of = |form| Rendering {
                form,
                inputs: &inputs,
                home: &home,
            };
            let named = of(&change.new).objects(&new);
            trial
                .objects
                .claim(row, &of(&change.new), &named, &mut claims);
            // While something of a node does not render, nothing of it is deleted.
            if let (Some(old), Some(content), true) = (&change.old, &old, renders && changed) {
                let before = of(old).objects(content);
                trial.objects.compare(&of(old), &before, &named);
            }
        }
        if let Some(old) = old {
            trial.count_restarts(&old, &new);
        }
    }
    trial
}

/// The same for both renderings: random values and times do not differ between them.
fn inputs<'a>(row: &'a Row, hub: &'a str, form: &'a str) -> RowInputs<'a> {
    RowInputs {
        hub,
        form,
        row,
        first_seen: Timestamp::UNIX_EPOCH,
        seed: [0; 32],
    }
}

fn resources(content: &Value) -> impl Iterator<Item = &Value> {
    let arrays = content.as_object().into_iter().flat_map(|all| all.values());
    arrays.filter_map(Value::as_array).flatten()
}

impl Trial {
    fn count_restarts(&mut self, old: &Value, new: &Value) {
        let template = |resource: &Value| resource["spec"]["spec"]["template"].clone();
        for resource in resources(new) {
            let kind = kind_of(&resource["spec"]).kind;
            if !["Deployment", "StatefulSet", "DaemonSet"].contains(&kind.as_str()) {
                continue;
            }
            let before = resources(old).find(|other| other["id"] == resource["id"]);
            if before.is_some_and(|before| template(before) != template(resource)) {
                *self.restarts.entry(kind).or_default() += 1;
            }
        }
    }

    /// `allowed`: whether the form may break rows. `forced`: whether it is forced itself.
    pub fn verdict(&self, allowed: bool, policy: &Rollout, forced: bool) -> Verdict {
        let stays = self.stays();
        let warned = |broken: String| format!("{stays}, for {broken}");
        let refused = |broken: String| {
            format!(
                "{broken}. Correct the template, or the rows; or annotate the form with {}=\"{}\": then {stays}",
                names::ALLOW_RENDER_ERRORS,
                names::TRUE
            )
        };
        let (warned, denied) = match allowed {
            true => (self.told(warned, WARNING_MAX), None),
            false => (None, self.told(refused, MESSAGE_MAX)),
        };
        Verdict {
            denied,
            warnings: self
                .reached(policy, forced)
                .into_iter()
                .chain(warned)
                .collect(),
        }
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
        warnings.extend(self.objects.warnings(self.tried == self.rows));
        if self.tried < self.rows {
            warnings.push(format!(
                "tried on {} of {} rows, there was no time for more: that it renders for the others is not known",
                self.tried, self.rows
            ));
        }
        for (number, group) in policy.order.iter().enumerate() {
            let all = self.tried == self.rows && self.tried > 0;
            if group.when.is_some() && !self.groups.contains(&number) && all {
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
        let (changed, tried) = (self.changed, self.tried);
        let nodes = match tried < self.rows {
            true => format!("the {} tried", counted(tried, "node")),
            false => counted(tried, "node"),
        };
        let what = match self.compared {
            false => format!("makes {nodes}"),
            true => format!(
                "changes {changed} of {nodes} ({} identical)",
                tried - changed
            ),
        };
        let mut said = vec![what];
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
        let restarts = self.restarts.iter();
        said.extend(restarts.map(|(kind, n)| format!("up to {} restart", counted(*n, kind))));
        if self.held > 0 && changed > 0 {
            said.push(match self.held {
                1 => "1 is held, and is left alone if it runs this already".to_owned(),
                held => {
                    format!("{held} are held, and whoever of them runs this already is left alone")
                }
            });
        }
        said.join("; ")
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
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::json;

    use super::*;
    use crate::decide::admission::form;
    use crate::decide::rows::RowCount;

    pub fn rows(all: &[(&str, &str)]) -> Rows {
        let row = |(uid, plan): &(&str, &str)| {
            let variables = BTreeMap::from([("plan".to_owned(), plan.to_string())]);
            let row = Row {
                uid: uid.to_string(),
                variables,
            };
            (uid.to_string(), row)
        };
        Rows {
            read: RowCount(all.len() as u64),
            rows: all.iter().map(row).collect(),
            inactive: 0,
            skipped: vec![],
            protected: BTreeSet::new(),
            unidentified: 0,
        }
    }

    fn form(plan: &str, namespace: &str) -> Value {
        json!({"metadata": {"name": "web"}, "spec": {"hubId": "h", "deployments": [{
            "id": "app", "nameTemplate": "{{ .uid }}", "targetNamespace": namespace,
            "spec": {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1, "template": {"x": plan}}},
        }]}})
    }

    pub fn changed(old: Option<&Value>, new: &Value) -> Option<Change> {
        form::judge(old, new, jiff::Timestamp::UNIX_EPOCH).change
    }

    pub fn tried(old: Option<&Value>, new: &Value, rows: &Rows) -> Trial {
        let change = changed(old, new).unwrap();
        of(&change, rows, ("tenants", "h", "web"), &|| true)
    }

    fn window(skew: u32) -> Rollout {
        Rollout {
            max_skew: Skew::Count(skew),
            ..Rollout::default()
        }
    }

    #[test]
    fn a_change_says_how_far_it_reaches() {
        let rows = rows(&[("a", "pro"), ("b", "free"), ("c", "free")]);
        let old = form("{{ .plan }}", "");
        let new = form(
            "{{ if eq .plan \"free\" }}none{{ else }}{{ .plan }}{{ end }}",
            "",
        );
        let trial = tried(Some(&old), &new, &rows);
        assert_eq!(trial.broken(1), None);
        assert_eq!(
            trial.reached(&window(1), false),
            [
                "changes 2 of 3 nodes (1 identical); maxSkew 1: at least 2 waves; up to 2 Deployments restart"
            ]
        );
        assert_eq!(
            trial.reached(&window(0), false),
            [
                "changes 2 of 3 nodes (1 identical); no maxSkew: all at once; up to 2 Deployments restart"
            ]
        );
        let of_hub = |own, hub| {
            let hub = HubSays {
                skew: hub,
                forced: false,
            };
            let trial = Trial {
                hub,
                ..trial.clone()
            };
            trial.reached(&window(own), false)[0]
                .split("; ")
                .nth(1)
                .unwrap()
                .to_owned()
        };
        let hub = "the hub's maxSkew 1: at least 2 waves";
        assert_eq!(of_hub(0, Skew::Count(1)), hub);
        assert_eq!(of_hub(2, Skew::Count(1)), hub);
        assert_eq!(of_hub(1, Skew::Count(2)), "maxSkew 1: at least 2 waves");
        let percent = "the hub's maxSkew 50%: at least 1 wave";
        assert_eq!(of_hub(0, Skew::Percent(50)), percent);
        let back = Trial {
            held: 2,
            ..trial.clone()
        };
        assert_eq!(
            back.reached(&window(1), false),
            [
                "changes 2 of 3 nodes (1 identical); maxSkew 1: at least 2 waves; up to 2 Deployments restart; 2 are held, and \
                 whoever of them runs this already is left alone"
            ]
        );
        let one = Trial {
            held: 1,
            ..trial.clone()
        };
        let told = "; 1 is held, and is left alone if it runs this already";
        assert!(one.reached(&window(1), false)[0].ends_with(told));
        let created = tried(None, &new, &rows);
        assert_eq!(
            created.reached(&window(2), false),
            ["makes 3 nodes; maxSkew 2: at least 2 waves"]
        );
        let second = |said: Vec<String>| said[0].split("; ").nth(1).map(str::to_owned);
        let on = |what| {
            Some(format!(
                "lynq.sh/force-rollout is on the {what}: all at once"
            ))
        };
        assert_eq!(second(trial.reached(&window(1), true)), on("form"));
        let mut of_forced = trial.clone();
        of_forced.hub.forced = true;
        assert_eq!(second(of_forced.reached(&window(1), false)), on("hub"));
        let ordered: Rollout =
            serde_json::from_value(json!({"order": [{"name": "first", "when": "x"}]})).unwrap();
        let groups = "no maxSkew: a group of rollout.order at a time";
        assert_eq!(
            second(trial.reached(&ordered, false)).as_deref(),
            Some(groups)
        );
        let mut same = old.clone();
        same["spec"]["rollout"] = json!({"maxSkew": 5});
        assert!(changed(Some(&old), &same).is_none());
    }

    /// A canary that is none would go with all the others.
    #[test]
    fn a_group_without_rows_is_told_and_so_is_a_condition_that_is_none() {
        let rows = rows(&[("a", "pro"), ("b", "free")]);
        let said = |when: &str| {
            let mut form = form("x", "");
            form["spec"]["rollout"] =
                json!({"maxSkew": 1, "order": [{"name": "first", "when": when}]});
            let change = changed(None, &form).unwrap();
            let policy = change.spec.rollout.clone().unwrap();
            of(&change, &rows, ("tenants", "h", "web"), &|| true).verdict(false, &policy, false)
        };
        assert_eq!(said("{{ eq .plan \"pro\" }}").warnings.len(), 1);
        let nobody = &said("{{ eq .plan \"prod\" }}").warnings[1];
        assert_eq!(nobody, "rollout.order: no row is in the group \"first\"");
        let odd = &said("{{ .plan }}").warnings[2];
        assert_eq!(
            odd,
            "rollout.order[0].when gives neither true nor false for row a, which counts as false"
        );
    }

    #[test]
    fn what_a_change_breaks_is_refused_and_what_was_broken_is_not() {
        let rows = rows(&[
            ("a", "pro"),
            ("b", ""),
            ("c", ""),
            ("d", ""),
            ("e", ""),
            ("f", ""),
            ("g", ""),
        ]);
        let good = form("{{ .plan }}", "");
        let bad = form("{{ if eq .plan \"\" }}{{ fail \"no plan\" }}{{ end }}", "");
        let verdict = |trial: &Trial, allowed| trial.verdict(allowed, &window(1), false);
        let broken = tried(Some(&good), &bad, &rows);
        let refusal = verdict(&broken, false).denied.unwrap();
        assert!(
            refusal.starts_with("it does not render for 6 of 7 rows: row b: resource 'app': ")
                && refusal.ends_with(
                    "no plan; likewise c, d, e, f and 1 more. Correct the template, or the rows; or annotate the form with \
                     lynq.sh/allow-render-errors=\"true\": then the resources that do not render stay as they are, the others of \
                     those nodes change"
                ),
            "{refusal}"
        );
        let allowed = verdict(&broken, true);
        assert_eq!(allowed.denied, None);
        let kept = "the resources that do not render stay as they are, the others of those nodes change, for it does not render for 6 of 7 rows: row b";
        assert!(allowed.warnings[1].starts_with(kept));
        let long = bad.to_string().replace("no plan", &"no plan ".repeat(40));
        let long = tried(Some(&good), &serde_json::from_str(&long).unwrap(), &rows);
        let warning = &verdict(&long, true).warnings[1];
        assert!(
            warning.starts_with(kept) && warning.trim_end().ends_with("no plan"),
            "{warning}"
        );
        assert!(verdict(&tried(None, &bad, &rows), false).denied.is_some());
        // Whose turn is not known, is not written at all.
        let grouped = |mut form: Value, when: &str| {
            form["spec"]["rollout"] = json!({"order": [{"name": "first", "when": when}]});
            verdict(&tried(Some(&good), &form, &rows), true).warnings[1].clone()
        };
        let fails = "{{ if eq .uid \"b\" }}{{ fail \"no\" }}{{ end }}";
        for (form, said) in [
            (
                &good,
                "those nodes stay as they are, for it does not render for 1 of 7 rows: row b: order[0].when: ",
            ),
            (
                &bad,
                "the resources that do not render stay as they are (and 1 node as a whole), the others of those nodes change, for it \
                 does not render for 6 of 7 rows: row b",
            ),
        ] {
            let warned = grouped(form.clone(), fails);
            assert!(warned.starts_with(said), "{warned}");
        }
        let mut again = bad.clone();
        again["spec"]["deployments"][0]["spec"]["spec"]["replicas"] = json!(2);
        let trial = tried(Some(&bad), &again, &rows);
        let verdict = verdict(&trial, false);
        assert_eq!(verdict.denied, None);
        assert!(verdict.warnings[1].starts_with("6 rows did not render before"));
    }

    #[test]
    fn kinds_have_their_plurals() {
        for (kind, plural) in [
            ("Deployment", "2 Deployments"),
            ("NetworkPolicy", "2 NetworkPolicies"),
            ("Gateway", "2 Gateways"),
            ("Ingress", "2 Ingresses"),
        ] {
            assert_eq!(counted(2, kind), plural);
            assert_eq!(counted(1, kind), format!("1 {kind}"));
        }
    }

    #[test]
    fn how_far_it_got_is_said() {
        let rows = rows(&[("a", "x"), ("b", "y")]);
        let change = changed(None, &form("x", "")).unwrap();
        let first = std::cell::Cell::new(true);
        let trial = of(&change, &rows, ("tenants", "h", "web"), &|| {
            first.replace(false)
        });
        assert!(trial.reached(&window(0), false)[1].starts_with("tried on 1 of 2 rows"));
    }
}

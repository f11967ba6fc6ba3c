//! Cases for what a trial counts and says.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::api::texts::Texts;
use crate::decide::admission::form;
use crate::decide::hub::render::RowInputs;
use crate::decide::hub::rows::RowCount;
use crate::decide::hub::rows::names::node_name;
use crate::decide::shared::content;

pub fn rows(all: &[(&str, &str)]) -> Rows {
    let row = |(uid, plan): &(&str, &str)| {
        let variables = Texts::from_iter([("plan".into(), (*plan).into())]);
        let row = Row {
            uid: uid.to_string(),
            variables,
        };
        (uid.to_string(), row)
    };
    Rows {
        read: RowCount(all.len() as u64),
        rows: all.iter().map(row).collect(),
        settled: BTreeSet::new(),
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

pub fn of_resources(resources: Value) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"hubId": "h", "manifests": resources}})
}

pub fn claim(name: &str, more: Value) -> Value {
    let mut claim = json!({
        "id": "data", "nameTemplate": name, "spec": {"apiVersion": "v1", "kind": "PersistentVolumeClaim"},
    });
    let fields = claim.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    claim
}

pub fn map(name: &str, value: &str) -> Value {
    json!({
        "id": "map", "nameTemplate": name, "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value}},
    })
}

pub fn changed(old: Option<&Value>, new: &Value) -> Option<Change> {
    form::judge(old, new, jiff::Timestamp::UNIX_EPOCH).change
}

pub fn tried(old: Option<&Value>, new: &Value, rows: &Rows) -> Trial {
    let change = changed(old, new).unwrap();
    of(&change, &On::rows(rows), ("tenants", "h", "web"), &|| true)
}

fn says(policy: &Rollout, allows_errors: bool) -> FormSays<'_> {
    FormSays {
        policy,
        allows_errors,
        is_forced: false,
        confirmation: Confirmation::default(),
    }
}

fn window(skew: u32) -> Rollout {
    Rollout {
        max_skew: Skew::Count(skew),
        ..Rollout::default()
    }
}

/// A resource that both forms have is rendered once, unless the new form's templates exhaust the budget before it.
#[test]
fn a_resource_that_another_one_leaves_no_budget_did_render_before() {
    let loops = r#"{{ range until 60000 }}{{ end }}x"#;
    let resource = |id: &str| {
        let name = format!("{{{{ .uid }}}}-{id}");
        json!({"id": id, "nameTemplate": name, "spec": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": loops}}})
    };
    let all = |ids: &[&str]| of_resources(ids.iter().map(|id| resource(id)).collect());
    let rows = rows(&[("acme", "pro")]);
    let old = all(&["last"]);
    let before = tried(None, &old, &rows);
    assert_eq!(before.broken(1), None);
    let trial = tried(
        Some(&old),
        &all(&["a", "b", "c", "d", "e", "f", "last"]),
        &rows,
    );
    let broken = trial.broken(1).unwrap_or_default();
    assert!(broken.contains("'last'"), "{broken:?}");
    assert!(broken.contains("steps for one row"), "{broken:?}");
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
    let large = Trial {
        rows: 11,
        ..trial.clone()
    };
    let unprotected =
        "no maxSkew: all at once, and nothing protects them from a bad change; set rollout.maxSkew";
    assert!(large.reached(&window(0), false)[0].contains(unprotected));
    let of_hub = |own, hub| {
        let hub = HubSays {
            skew: hub,
            ..HubSays::default()
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
    let created = tried(None, &new, &rows);
    assert_eq!(
        created.reached(&window(2), false),
        ["creates 3 nodes; maxSkew 2: at least 2 waves"]
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

/// The metadata of a node with this live and this desired content, rendered for the row.
pub fn node(live: Option<&Value>, desired: &Value, row: &Row) -> Value {
    let hash = |form: &Value| {
        let inputs = RowInputs {
            hub: "h",
            form: "web",
            row,
            first_seen: Timestamp::UNIX_EPOCH,
            seed: [7; 32],
        };
        let (content, _) = changed(None, form).unwrap().new.render(&inputs);
        content::hash(Some(&content)).to_string()
    };
    json!({
        "labels": {names::LABEL_UID: row.uid},
        "annotations": {names::LIVE_HASH: live.map(hash), names::DESIRED_HASH: hash(desired)},
    })
}

pub fn tried_live(old: Option<&Value>, new: &Value, rows: &Rows, live: &LiveNodes) -> Trial {
    let change = changed(old, new).unwrap();
    of(
        &change,
        &On {
            live: Some(live),
            ..On::rows(rows)
        },
        ("tenants", "h", "web"),
        &|| true,
    )
}

#[test]
fn a_change_is_compared_with_what_runs() {
    let names: Vec<String> = (0..20).map(|n| format!("t{n:02}")).collect();
    let names: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "pro")).collect();
    let rows = rows(&names);
    let (good, bad) = (form("a{{ randAlpha 4 }}", ""), form("b", ""));
    // A bad edit went live on three of twenty nodes.
    let reached = |until: usize| {
        let mut nodes = LiveNodes::new(Some([7; 32]));
        for (number, row) in rows.rows.values().enumerate() {
            let live = if number < until { &bad } else { &good };
            nodes.add(&node_name(&row.uid, "web"), &node(Some(live), &bad, row));
        }
        nodes
    };
    let said = |trial: &Trial| trial.reached(&window(2), false);
    let back = tried_live(Some(&bad), &good, &rows, &reached(3));
    assert_eq!(
        said(&back),
        [
            "takes the change back: 17 held tenants keep what runs, 3 change; maxSkew 2: at least 2 waves; up to 3 Deployments restart"
        ]
    );
    let none = tried_live(Some(&bad), &good, &rows, &reached(0));
    assert_eq!(
        said(&none),
        ["takes the change back: 20 held tenants keep what runs, 0 change"]
    );
    // Neither version is live anywhere: all workloads may restart.
    let other = tried_live(Some(&bad), &form("c", ""), &rows, &reached(3));
    assert_eq!(
        said(&other),
        [
            "changes 20 of 20 nodes (0 identical); maxSkew 2: at least 10 waves; up to 20 Deployments restart"
        ]
    );
    assert_eq!(other.samples.len(), 1);
    // A new row in addition.
    let mut fewer = LiveNodes::new(Some([7; 32]));
    for row in rows.rows.values().skip(1) {
        fewer.add(&node_name(&row.uid, "web"), &node(Some(&good), &good, row));
    }
    let made = tried_live(Some(&good), &bad, &rows, &fewer);
    assert!(said(&made)[0].starts_with(
        "changes 19 of 19 nodes (0 identical), creates 1; maxSkew 2: at least 10 waves; up to 19"
    ));
}

/// If the node's live content is not the earlier form, only the object shows whether it exists and is retained.
#[test]
fn what_a_node_does_not_run_is_looked_at() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| (name, "pro"));
    let rows = rows(&names);
    let with = |resources: Value| json!({"metadata": {"name": "web"}, "spec": {"hubId": "h", "manifests": resources}});
    let map = json!({"id": "map", "nameTemplate": "{{ .uid }}", "spec": {"apiVersion": "v1", "kind": "ConfigMap"}});
    let namespace = |policy: &str| json!({"id": "ns", "nameTemplate": "team-{{ .uid }}", "deletionPolicy": policy, "spec": {"apiVersion": "v1", "kind": "Namespace"}});
    let deletes = with(json!([map, namespace("Delete")]));
    let (retains, new) = (with(json!([map, namespace("Retain")])), with(json!([map])));
    // Retain is live on two of eight nodes.
    let mut nodes = LiveNodes::new(Some([7; 32]));
    for (number, row) in rows.rows.values().enumerate() {
        let live = if number < 2 { &retains } else { &deletes };
        nodes.add(
            &node_name(&row.uid, "web"),
            &node(Some(live), &retains, row),
        );
    }
    let trial = tried_live(Some(&retains), &new, &rows, &nodes);
    let unseen = trial.verdict(&says(&window(1), true)).denied.unwrap();
    assert!(
        unseen.starts_with(
            "this change deletes data of 6 tenants: 6 Namespaces and everything in them (team-c, "
        ),
        "{unseen}"
    );
    let looked_at = |metadata: Option<Value>| {
        let mut trial = trial.clone();
        let looks: Vec<_> = trial.deletions.looks().cloned().collect();
        assert_eq!(looks.len(), 6);
        trial.deletions.settle(
            &looks
                .into_iter()
                .map(|key| (key, metadata.clone()))
                .collect(),
        );
        trial.verdict(&says(&window(1), false)).denied.is_some()
    };
    assert!(looked_at(Some(json!({}))));
    assert!(!looked_at(Some(
        json!({"annotations": {"lynq.sh/deletion-policy": "Retain"}})
    )));
    assert!(!looked_at(None), "it was never made");
    // Neither allowed errors, nor force, nor a partial trial override this.
    let old = with(json!([map, namespace("Delete")]));
    let change = changed(Some(&old), &new).unwrap();
    let first = AtomicBool::new(true);
    let some = of(&change, &On::rows(&rows), ("tenants", "h", "web"), &|| {
        first.swap(false, Ordering::Relaxed)
    });
    let policy = window(1);
    let mut says = says(&policy, true);
    says.is_forced = true;
    let denied = some.verdict(&says).denied.unwrap();
    assert!(
        denied
            .starts_with("this change takes away resource 'ns' (Namespace), which may hold data, "),
        "{denied}"
    );
}

#[test]
fn a_new_form_says_that_its_nodes_would_wait_for_a_confirmation() {
    let rows = rows(&[("a", "pro"), ("b", "pro"), ("c", "pro")]);
    let mut trial = tried_live(None, &form("x", ""), &rows, &LiveNodes::new(None));
    let said = |trial: &Trial| trial.reached(&window(1), false);
    assert_eq!(said(&trial).len(), 1);
    trial.hub.max_creations = Some(2);
    assert_eq!(
        said(&trial)[1],
        "3 new nodes wait: spec.guard.maxCreations allows 2 at a time. Correct the rows; or, to create these nodes, annotate the hub with \
         lynq.sh/confirm-creations=\"3\""
    );
}

#[test]
fn a_form_whose_nodes_are_there_adopts_them() {
    let rows = rows(&[("a", "pro"), ("b", "pro"), ("c", "pro")]);
    let (same, other) = (form("x", ""), form("y", ""));
    let with = |live: &[&Value]| {
        let mut nodes = LiveNodes::new(Some([7; 32]));
        for (row, live) in rows.rows.values().zip(live) {
            nodes.add(&node_name(&row.uid, "web"), &node(Some(live), live, row));
        }
        nodes
    };
    let said = |nodes: &LiveNodes| {
        let trial = tried_live(None, &same, &rows, nodes);
        trial.reached(&window(2), false)[0].clone()
    };
    assert_eq!(
        said(&with(&[&same, &same, &same])),
        "adopts 3 existing nodes"
    );
    assert_eq!(
        said(&with(&[&same, &other])),
        "adopts 2 existing nodes (1 changes), creates 1; maxSkew 2: at least 1 wave"
    );
    assert_eq!(
        said(&with(&[])),
        "creates 3 nodes; maxSkew 2: at least 2 waves"
    );
}

/// A canary group without rows would be released with all others.
#[test]
fn a_group_without_rows_is_told_and_so_is_a_condition_that_is_none() {
    let rows = rows(&[("a", "pro"), ("b", "free")]);
    let said = |when: &str| {
        let mut form = form("x", "");
        form["spec"]["rollout"] = json!({"maxSkew": 1, "order": [{"name": "first", "when": when}]});
        let change = changed(None, &form).unwrap();
        let policy = change.spec.rollout.clone().unwrap();
        of(&change, &On::rows(&rows), ("tenants", "h", "web"), &|| true)
            .verdict(&says(&policy, false))
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
    let verdict = |trial: &Trial, allowed| trial.verdict(&says(&window(1), allowed));
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
    // A node whose group is not known is not written at all.
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
        ("Prometheus", "2 Prometheuses"),
        ("Endpoints", "2 Endpoints"),
        ("Graph", "2 Graphs"),
    ] {
        assert_eq!(counted(2, kind), plural);
        assert_eq!(counted(1, kind), format!("1 {kind}"));
    }
}

#[test]
fn a_hub_without_active_rows_tries_nothing_and_says_so() {
    let (old, new) = (form("x", ""), form("y", ""));
    let none = LiveNodes::new(None);
    let first = tried_live(None, &new, &rows(&[]), &none);
    let said = "not tried on the rows: the hub has no active rows";
    assert_eq!(first.verdict(&says(&window(1), false)).warnings, [said]);
    assert!(first.is_first());
    let gone = rows(&[("a", "pro")]);
    let mut nodes = LiveNodes::new(None);
    nodes.add("a-web", &node(Some(&old), &old, &gone.rows["a"]));
    let trial = tried_live(Some(&old), &new, &rows(&[]), &nodes);
    assert_eq!(trial.untried().as_deref(), Some(said));
    assert!(!trial.is_first());
}

#[test]
fn how_far_it_got_is_said() {
    let rows = rows(&[("a", "x"), ("b", "y")]);
    let change = changed(None, &form("x", "")).unwrap();
    let first = AtomicBool::new(true);
    let trial = of(&change, &On::rows(&rows), ("tenants", "h", "web"), &|| {
        first.swap(false, Ordering::Relaxed)
    });
    assert!(trial.reached(&window(0), false)[1].starts_with("tried on 1 of 2 rows"));
}

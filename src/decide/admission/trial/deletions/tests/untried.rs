//! Cases for nodes on which a change that deletes objects could not be tried.

use super::*;
use crate::api::texts::Texts;
use crate::decide::admission::trial::live::LiveNodes;
use crate::decide::admission::trial::tests::{node, tried_live};

/// The nodes of all tenants, with this form live.
fn live(form: &Value) -> LiveNodes {
    let mut nodes = LiveNodes::new(Some([7; 32]));
    for row in rows(&TENANTS).rows.values() {
        nodes.add(&format!("{}-web", row.uid), &node(Some(form), form, row));
    }
    nodes
}

#[test]
fn nodes_that_could_not_be_tried_lose_the_same_later() {
    let resources = |name: &str, value: &str| {
        form(json!([
            namespace(json!({"nameTemplate": name})),
            map("{{ .uid }}", value)
        ]))
    };
    let old = resources("team-{{ .uid }}", "x");
    let (without, renamed) = (
        form(json!([map("{{ .uid }}", "x")])),
        resources("{{ .uid }}", "x"),
    );
    let fails = resources(
        r#"{{ if eq .plan "pro" }}{{ fail "no" }}{{ end }}{{ .uid }}"#,
        "x",
    );
    let all = rows(&TENANTS);
    let few = rows(&TENANTS[..2]);
    let mut undecided = few.clone();
    undecided.protected = all.rows.keys().cloned().collect();
    let mut failing = all.clone();
    for row in failing.rows.values_mut().take(6) {
        row.variables = Texts::from_iter([("plan".into(), "pro".into())]);
    }
    let later = |n: usize| {
        format!(
            "later resource 'ns' (Namespace) of {n} nodes whose rows are gone, undecided or do not render now (see the hub's conditions)"
        )
    };
    let two = "2 Namespaces and everything in them (team-a and team-b)";
    let last = "2 Namespaces and everything in them (team-g and team-h)";
    for (name, new, rows, expected) in [
        (
            "few rows are there",
            &without,
            &few,
            format!("{two}; {}", later(6)),
        ),
        ("no row is there", &renamed, &self::rows(&[]), later(8)),
        (
            "rows are undecided",
            &renamed,
            &undecided,
            format!("{two}; {}", later(6)),
        ),
        (
            "rows do not render",
            &fails,
            &failing,
            format!("{last}; {}", later(6)),
        ),
    ] {
        let trial = tried_live(Some(&old), new, rows, &live(&old));
        let denied = |now| {
            let confirmation = Confirmation { before: None, now };
            trial.unconfirmed(&confirmation)
        };
        let said = denied(None).unwrap_or_default();
        let begins = format!("this change deletes data of 8 tenants: {expected}. To keep it");
        assert!(said.starts_with(&begins), "{name}: {said}");
        assert_eq!(denied(Some("8")), None, "{name}");
    }
    let more = resources("team-{{ .uid }}", "y");
    let trial = tried_live(Some(&old), &more, &undecided, &live(&old));
    assert_eq!(trial.unconfirmed(&Confirmation::default()), None);
    // Without the nodes, the number is not known.
    let mut unlisted = tried(Some(&old), &renamed, &few);
    unlisted.unlisted = Some("no answer".to_owned());
    let said = unlisted.unconfirmed(&Confirmation::default());
    let known = "this change takes away resource 'ns' (Namespace), which may hold data, and how many tenants would lose it is not known: no answer";
    assert!(said.is_some_and(|said| said.starts_with(known)));
}

#[test]
fn what_was_not_tried_on_the_rows_is_told_by_the_templates() {
    let map = || map("{{ .uid }}", "x");
    let retained = namespace(json!({"deletionPolicy": "Retain"}));
    let status = |generation: i64, nodes: u64| {
        json!({"observedGeneration": generation, "totalNodes": nodes, "rollout":
            {"targetGeneration": generation, "phase": "Complete", "heldNodes": 0}})
    };
    let complete = status(2, 8);
    let ns = "resource 'ns' (Namespace)";
    for (name, old, new, status, expected) in [
        (
            "it is gone",
            json!([namespace(json!({})), map()]),
            json!([map()]),
            &complete,
            vec![ns],
        ),
        (
            "another name",
            json!([namespace(json!({}))]),
            json!([namespace(json!({"nameTemplate": "{{ .uid }}"}))]),
            &complete,
            vec![ns],
        ),
        (
            "another namespace",
            json!([claim("x", json!({}))]),
            json!([claim("x", json!({"targetNamespace": "y"}))]),
            &complete,
            vec!["resource 'data' (PersistentVolumeClaim)"],
        ),
        (
            "a custom resource",
            json!([bucket(), map()]),
            json!([map()]),
            &complete,
            vec!["resource 'bucket' (Bucket)"],
        ),
        (
            "another id",
            json!([namespace(json!({}))]),
            json!([namespace(json!({"id": "other"}))]),
            &complete,
            vec![],
        ),
        (
            "retained",
            json!([retained, map()]),
            json!([map()]),
            &complete,
            vec![],
        ),
        (
            "not retained everywhere yet",
            json!([retained, map()]),
            json!([map()]),
            &status(1, 8),
            vec![ns],
        ),
        (
            "few tenants",
            json!([namespace(json!({})), map()]),
            json!([map()]),
            &status(2, 5),
            vec![],
        ),
        (
            "no data",
            json!([map(), bucket()]),
            json!([bucket()]),
            &complete,
            vec![],
        ),
    ] {
        let (mut old, new) = (form(old), form(new));
        old["metadata"]["generation"] = json!(2);
        old["status"] = status.clone();
        let change = changed(Some(&old), &new).unwrap();
        let taken = change.taken_away.iter().map(ToString::to_string);
        assert_eq!(Vec::from_iter(taken), expected, "{name}");
        let denied = untried(&change.taken_away, "the database is away");
        assert_eq!(denied.is_some(), !expected.is_empty(), "{name}");
    }
}

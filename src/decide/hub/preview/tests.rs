//! What is reported of an apply, for LynqNodes in every state.

use jiff::Timestamp;

use super::*;
use crate::decide::hub::render::CompiledForm;
use crate::decide::hub::rows::activity::Words;
use crate::decide::hub::rows::{Collector, Columns, RawRow, RowCount, Rows};
use crate::decide::hub::sync::{self, Allowance, Form, Hub, Rendered, SyncInputs};

/// The rows of a table with their plans.
fn rows(all: &[(&str, &str)]) -> Rows {
    let mut collector = Collector::new(&Columns {
        uid: "uid".into(),
        activate: "active".into(),
        host_or_url: None,
        extra: BTreeMap::from([("plan".into(), "plan".into())]),
        words: Words::default(),
    });
    for ((uid, plan), number) in all.iter().zip(1..) {
        let values = [*uid, "1", *plan].map(|value| Some(value.as_bytes().to_vec()));
        let values = values.to_vec();
        collector.push(RawRow { number, values });
    }
    let rows = collector.finish(RowCount(all.len() as u64));
    rows.expect("not too many rows")
}

/// A form that says when its row was first seen, over these rows.
fn source(image: &str, password: &str, all: &[(&str, &str)]) -> RenderSource {
    let spec = serde_json::from_value(json!({
        "hubId": "hub",
        "deployments": [{
            "id": "app", "nameTemplate": "{{ .uid }}-app", "labelsTemplate": {"plan": "{{ .plan }}"},
            "spec": {"apiVersion": "apps/v1", "kind": "Deployment", "at": "{{ now }}", "image": image, "label": "{{ .uid }}"},
        }],
        "secrets": [{
            "id": "login", "nameTemplate": "{{ .uid }}-login",
            "spec": {"apiVersion": "v1", "kind": "Secret", "stringData": {"password": password}},
        }],
    }));
    let compiled = CompiledForm::parse("web", &spec.expect("a form's spec")).expect("it parses");
    let form = Form {
        generation: 1,
        policy: Default::default(),
        forced: false,
        all_written: false,
        compiled: Arc::new(compiled),
    };
    RenderSource {
        hub: Hub {
            namespace: "shop".into(),
            name: "hub".into(),
            uid: "uid".into(),
            skew: Default::default(),
            deletions: Allowance::default(),
            creations: Allowance::default(),
            seed: [7; 32],
        },
        forms: BTreeMap::from([("web".to_owned(), form)]),
        rows: rows(all),
    }
}

/// The first sync, at this second.
fn plan(source: &RenderSource, second: i64) -> Plan {
    let seen = SyncInputs {
        source,
        broken_forms: &BTreeSet::new(),
        nodes: &[],
        foreign: &|_| None,
        moved: &|_| None,
        rendered: &Rendered::new(),
    };
    let now = Timestamp::from_second(second).expect("a time");
    sync::plan(&seen, now)
}

/// The stored LynqNodes of all rows, a second after the epoch. Each runs what it holds.
fn stored(source: &RenderSource) -> Vec<Value> {
    let plan = plan(source, 1);
    let writes = plan.writes.iter();
    writes.map(|write| live(source.object(write))).collect()
}

fn live(mut node: Value) -> Value {
    let hash = content::hash(Some(&node["spec"])).to_string();
    for name in [names::DESIRED_HASH, names::LIVE_HASH] {
        node["metadata"]["annotations"][name] = json!(hash);
    }
    node
}

/// What an apply of the form at a later time would change of these LynqNodes.
fn changes(source: &RenderSource, nodes: &[Value]) -> Changes {
    let plan = plan(source, 1_000);
    let mut preview = Preview::of("web", source, &plan);
    nodes.iter().for_each(|node| preview.see(node));
    preview.finish()
}

const TWO: [(&str, &str); 2] = [("t0", "pro"), ("t1", "basic")];

#[test]
fn what_runs_already_changes_nothing() {
    let source = source("web:1", "one", &TWO);
    let same = stored(&source);
    let edited = |mut node: Value| {
        node["spec"]["deployments"][0]["spec"]["image"] = json!("web:by-hand");
        live(node)
    };
    let without_defaults = |mut node: Value| {
        let resource = node["spec"]["deployments"][0].as_object_mut();
        resource.expect("a resource").remove("creationPolicy");
        node
    };
    for (name, nodes) in [
        ("the same", same.clone()),
        ("edited by hand", same.iter().cloned().map(edited).collect()),
        (
            "stored without a default",
            same.iter().cloned().map(without_defaults).collect(),
        ),
    ] {
        let changes = changes(&source, &nodes);
        assert!(!changes.is_any(), "{name}: {changes}");
        let text = changes.to_string();
        assert_eq!(text, "form web: 2 tenants; 2 unchanged\n", "{name}");
    }
    let none = changes(&self::source("web:1", "one", &[]), &[]);
    assert!(!none.is_any());
    assert_eq!(none.to_string(), "form web: 0 tenants; no row is active\n");
}

/// What waits already counts as a change: the comparison is with what runs.
#[test]
fn what_a_node_holds_is_compared_with_what_it_runs() {
    let (old, new) = (source("web:1", "one", &TWO), source("web:2", "one", &TWO));
    let mut held = stored(&new);
    for (node, before) in held.iter_mut().zip(stored(&old)) {
        node["spec"]["released"] = content::of_spec(Some(&before["spec"]));
        let hash = &before["metadata"]["annotations"][names::LIVE_HASH];
        node["metadata"]["annotations"][names::LIVE_HASH] = hash.clone();
    }
    let waits = changes(&new, &held).to_string();
    assert!(
        waits.starts_with("form web: 2 tenants; 2 change alike\n"),
        "{waits}"
    );
    let reverted = changes(&old, &held);
    assert!(!reverted.is_any(), "{reverted}");
}

#[test]
fn every_tenant_is_counted_once_and_named() {
    let before = source(
        "web:1",
        "hunter1",
        &[
            ("alike0", "pro"),
            ("alike1", "basic"),
            ("differs", "pro"),
            ("failed", "pro"),
            ("going", "pro"),
            ("never-live", "pro"),
            ("deleted", "pro"),
            ("unknown", "pro"),
            ("taken", "pro"),
        ],
    );
    let after = source(
        "web:2",
        "hunter2",
        &[
            ("alike0", "pro"),
            ("alike1", "basic"),
            ("differs", "pro"),
            ("failed", "gold!"),
            ("never-live", "pro"),
            ("deleted", "pro"),
            ("unknown", "pro"),
            ("taken", "pro"),
            ("new", "pro"),
            ("no id", "pro"),
        ],
    );
    let mut nodes = stored(&before);
    for node in &mut nodes {
        let uid = node["spec"]["uid"].as_str().unwrap_or_default().to_owned();
        let metadata = &mut node["metadata"];
        match uid.as_str() {
            "differs" => {
                node["spec"]["deployments"][0]["spec"]["image"] = json!("web:0");
                *node = live(node.take());
            }
            "never-live" => metadata["annotations"][names::LIVE_HASH] = json!("none"),
            "deleted" => metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            "unknown" => metadata["annotations"][names::LIVE_HASH] = json!("unknown"),
            "taken" => node["spec"]["templateRef"] = json!("other"),
            _ => {}
        }
    }
    let changes = changes(&after, &nodes);
    assert!(changes.is_any());
    let text = changes.to_string();
    let head = "form web: 9 tenants; 2 change alike, 1 differs, 3 new, 1 goes, 1 does not render, 1 unknown\n  \
                new        deleted-web, never-live-web, new-web: nothing runs yet\n  \
                going      going-web: no active row\n  \
                unknown    unknown-web: what runs is not known: lynqgate explain node NAME\n  \
                failed     LynqNode failed-web: resource \"app\": labelsTemplate[plan]: ";
    assert!(text.starts_with(head), "{text}");
    for part in [
        "\n  skipped    Row \"no id\": ",
        "\n  skipped    LynqNode taken-web: the node of this name is of form \"other\" and another row; ",
        "\n\n2 nodes (alike0-web, alike1-web):\n--- live/deployments/app\n+++ form/deployments/app\n",
        "\n-  image: web:1\n+  image: web:2\n",
        "\n-    password: (redacted)\n+    password: (redacted, another value)\n",
        "\n\n1 node (differs-web):\n--- live/deployments/app\n",
        "\n-  image: web:0\n+  image: web:2\n",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("hunter"), "a Secret is shown:\n{text}");

    let told = changes.json();
    for (field, expected) in [
        ("form", json!("web")),
        ("tenants", json!(9)),
        ("unchanged", json!(0)),
        ("new", json!(["deleted-web", "never-live-web", "new-web"])),
        ("going", json!(["going-web"])),
        ("unknown", json!(["unknown-web"])),
        ("unrendered", json!(1)),
    ] {
        assert_eq!(told[field], expected, "{field}");
    }
    let nodes = &told["changed"][0]["nodes"];
    assert_eq!(*nodes, json!(["alike0-web", "alike1-web"]));
    assert_eq!(told["whyUnrendered"][0]["names"], json!(["failed-web"]));
}

#[test]
fn the_first_line_says_how_many_change_alike() {
    let nodes = |counts: &[usize]| {
        let mut changes = Changes {
            form: "web".to_owned(),
            unchanged: 1,
            ..Changes::default()
        };
        for (way, count) in counts.iter().enumerate() {
            for number in 0..*count {
                let name = format!("{way}-{number}-web");
                changes.changed.add(&name, "", format!("+{way}\n"));
            }
        }
        changes.counts().join(", ")
    };
    for (counts, expected) in [
        (&[][..], "1 unchanged"),
        (&[1], "1 changes, 1 unchanged"),
        (&[312], "312 change alike, 1 unchanged"),
        (&[312, 3], "312 change alike, 3 differ, 1 unchanged"),
        (&[1, 312], "312 change alike, 1 differs, 1 unchanged"),
        (&[1, 1, 1], "3 change in 3 ways, 1 unchanged"),
        (&[5, 5], "10 change in 2 ways, 1 unchanged"),
    ] {
        assert_eq!(nodes(counts), expected);
    }
}

//! Cases for the objects that a change deletes, and for what confirms that.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::decide::admission::trial::tests::{
    changed, claim, map, of_resources as form, rows, tried,
};
use crate::decide::admission::trial::{On, Trial, of};

mod untried;

fn said(trial: &Trial) -> Vec<String> {
    trial.deletions.warnings(trial.tried == trial.rows, false)
}

const GONE: &str = ", as the form does not name them any more; to keep them, set deletionPolicy: Retain first and let that roll out";

#[test]
fn what_a_change_makes_go_is_told_before_it_goes() {
    let three = rows(&[("acme", "pro"), ("globex", "free"), ("initech", "free")]);
    let uid = "{{ .uid }}";
    let data = || claim("{{ .uid }}-data", json!({}));
    let with = |more: Value| claim("{{ .uid }}-data", more);
    let claims = |names: &str| vec![format!("deletes 3 PersistentVolumeClaims{names}{GONE}")];
    let all = "(acme-data, globex-data and 1 more)";
    let fails = r#"{{ if eq .plan "free" }}{{ fail "no" }}{{ end }}"#;
    let of_v2 = json!({"spec": {"apiVersion": "v2", "kind": "PersistentVolumeClaim"}});
    let cases: Vec<(&str, Value, Value, Vec<String>)> = vec![
        (
            "the block is gone",
            json!([data(), map(uid, "x")]),
            json!([map(uid, "x")]),
            claims(&format!(" {all}")),
        ),
        (
            "another name",
            json!([data()]),
            json!([claim("{{ .uid }}-disk", json!({}))]),
            claims(&format!(" {all}")),
        ),
        (
            "another namespace",
            json!([data()]),
            json!([with(json!({"targetNamespace": "elsewhere"}))]),
            claims(&format!(" {all}")),
        ),
        (
            "the same namespace, by its name",
            json!([data()]),
            json!([with(json!({"targetNamespace": "tenants"}))]),
            vec![],
        ),
        (
            "in another namespace than the form's own",
            json!([{"id": "s", "nameTemplate": uid, "targetNamespace": "keys", "spec": {"apiVersion": "v1", "kind": "Secret"}}, map(uid, "x")]),
            json!([map(uid, "x")]),
            vec![format!(
                "deletes 3 Secrets (keys/acme, keys/globex and 1 more){GONE}"
            )],
        ),
        (
            "another id",
            json!([data()]),
            json!([with(json!({"id": "disk"}))]),
            vec![],
        ),
        (
            "another version",
            json!([data()]),
            json!([with(of_v2)]),
            vec![],
        ),
        (
            "another value",
            json!([map(uid, "x")]),
            json!([map(uid, "y")]),
            vec![],
        ),
        (
            "it was to stay",
            json!([with(json!({"deletionPolicy": "Retain"})), map(uid, "x")]),
            json!([map(uid, "x")]),
            vec![],
        ),
        (
            "too late for that",
            json!([data()]),
            json!([claim(
                "{{ .uid }}-disk",
                json!({"deletionPolicy": "Retain"})
            )]),
            claims(&format!(" {all}")),
        ),
        (
            "the one of a row",
            json!([data()]),
            json!([claim(
                r#"{{ .uid }}-{{ if eq .plan "pro" }}disk{{ else }}data{{ end }}"#,
                json!({})
            )]),
            vec![format!(
                "deletes 1 PersistentVolumeClaim (acme-data){}",
                GONE.replace("them", "it")
            )],
        ),
        (
            "by kind",
            json!([data(), map(uid, "x")]),
            json!([{"id": "s", "nameTemplate": uid, "spec": {"apiVersion": "v1", "kind": "Secret"}}]),
            vec![
                format!("deletes 3 ConfigMaps (acme, globex and 1 more){GONE}"),
                format!("deletes 3 PersistentVolumeClaims {all}{GONE}"),
            ],
        ),
        (
            "a row's value is not told",
            json!([claim("{{ .uid }}-{{ .plan | sha1sum }}", json!({}))]),
            json!([data()]),
            claims(" (one of row acme, one of row globex and 1 more)"),
        ),
        (
            "what goes of a node of which something does not render goes later",
            json!([data(), map(uid, "x")]),
            json!([map(uid, fails)]),
            claims(&format!(" {all}")),
        ),
        (
            "what does not render any more is kept as it is",
            json!([data(), map(uid, "x")]),
            json!([claim(fails, json!({})), map(uid, "x")]),
            // An empty name does not render either.
            vec![],
        ),
        (
            "what did not render has made nothing",
            json!([claim(fails, json!({})), map(uid, "x")]),
            json!([map(uid, "x")]),
            vec![],
        ),
    ];
    for (name, old, new, expected) in cases {
        let trial = tried(Some(&form(old)), &form(new), &three);
        assert_eq!(said(&trial), expected, "{name}");
    }
    let created = tried(None, &form(json!([data()])), &three);
    assert_eq!(said(&created), [""; 0], "a new form");

    let (old, new) = (
        form(json!([data(), map(uid, "x")])),
        form(json!([map(uid, "x")])),
    );
    let change = changed(Some(&old), &new).unwrap();
    let asked = AtomicUsize::new(0);
    let go_on = || asked.fetch_add(1, Ordering::Relaxed) < 2;
    let trial = of(&change, &On::rows(&three), ("tenants", "h", "web"), &go_on);
    let least =
        format!("deletes at least 2 PersistentVolumeClaims (acme-data and globex-data){GONE}");
    assert_eq!(said(&trial), [least]);

    // The advice is at the end of the warning, which the API server may cut off.
    let long = "a".repeat(60);
    let far = rows(&[
        (&*format!("{long}1"), "x"),
        (&*format!("{long}2"), "x"),
        ("c", "x"),
    ]);
    let told = said(&tried(Some(&old), &new, &far)).remove(0);
    assert!(told.len() <= 256 && told.ends_with("roll out"), "{told}");
}

const TENANTS: [(&str, &str); 8] = [
    ("a", "x"),
    ("b", "x"),
    ("c", "x"),
    ("d", "x"),
    ("e", "x"),
    ("f", "x"),
    ("g", "x"),
    ("h", "x"),
];

fn namespace(more: Value) -> Value {
    let mut namespace = json!({
        "id": "ns", "nameTemplate": "team-{{ .uid }}", "spec": {"apiVersion": "v1", "kind": "Namespace"},
    });
    let fields = namespace.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    namespace
}

fn bucket() -> Value {
    json!({"id": "bucket", "nameTemplate": "{{ .uid }}", "spec": {"apiVersion": "example.com/v1", "kind": "Bucket"}})
}

fn denied(trial: &Trial, before: Option<&str>, now: Option<&str>) -> Option<String> {
    trial
        .deletions
        .unconfirmed((0, &[]), &Confirmation { before, now })
}

#[test]
fn data_of_many_tenants_goes_only_when_their_count_is_confirmed() {
    let all = json!([
        namespace(json!({})),
        claim("{{ .uid }}-data", json!({})),
        map("{{ .uid }}", "x")
    ]);
    let (old, new) = (form(all), form(json!([map("{{ .uid }}", "x")])));
    let five = tried(Some(&old), &new, &rows(&TENANTS[..5]));
    assert_eq!(denied(&five, None, None), None, "5 tenants are few");
    let trial = tried(Some(&old), &new, &rows(&TENANTS));
    let data = "this change deletes data of 8 tenants: 8 Namespaces and everything in them (team-a, team-b, team-c, team-d and 4 more); \
                8 PersistentVolumeClaims (a-data, b-data, c-data, d-data and 4 more)";
    let way_out = ". To keep it, first set deletionPolicy: Retain and let that roll out; to delete it, apply the change together with the \
                   annotation lynq.sh/confirm-deletions: \"8\" on the form";
    for (before, now, lacks) in [
        (None, None, ""),
        (None, Some("5"), " (lynq.sh/confirm-deletions confirms 5)"),
        (
            None,
            Some("all"),
            " (lynq.sh/confirm-deletions is not a number)",
        ),
        (
            Some("8"),
            Some("8"),
            " (lynq.sh/confirm-deletions was on the form before this change, and does not confirm it: take it off first)",
        ),
    ] {
        let said = denied(&trial, before, now);
        assert_eq!(said, Some(format!("{data}{lacks}{way_out}")), "{now:?}");
    }
    assert_eq!(denied(&trial, Some("7"), Some("8")), None);
    assert_eq!(
        said(&trial)[0],
        "deletes 8 Namespaces and everything in them (team-a, team-b and 6 more); to keep them, set deletionPolicy: Retain first and let \
         that roll out"
    );
}

#[test]
fn claims_that_go_with_their_stateful_set_are_data() {
    let set = |when: &str| {
        let policy = json!({"whenDeleted": when});
        json!({"id": "db", "nameTemplate": "{{ .uid }}-db", "spec": {
            "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"persistentVolumeClaimRetentionPolicy": policy},
        }})
    };
    let said = |when: &str| {
        let (old, new) = (
            form(json!([set(when), map("x", "x")])),
            form(json!([map("x", "x")])),
        );
        denied(&tried(Some(&old), &new, &rows(&TENANTS)), None, None)
    };
    let data = "this change deletes data of 8 tenants: 8 StatefulSets with their PersistentVolumeClaims (a-db, ";
    assert!(said("Delete").is_some_and(|said| said.starts_with(data)));
    assert_eq!(said("Retain"), None);
}

#[test]
fn a_changed_hub_says_which_data_it_deletes() {
    let named = r#"{{ .uid }}{{ if eq .plan "pro" }}-pro{{ end }}"#;
    let web = form(json!([
        namespace(json!({"nameTemplate": named})),
        map(named, "{{ .plan }}")
    ]));
    let mut change = changed(None, &web).unwrap();
    change.old = Some(change.new.clone());
    let (before, after) = (
        rows(&[("a", "x"), ("b", "x"), ("gone", "x")]),
        rows(&[("a", "pro"), ("b", "x"), ("new", "pro")]),
    );
    let said = |before| {
        let on = On {
            before: Some(before),
            ..On::rows(&after)
        };
        of(&change, &on, ("tenants", "h", "web"), &|| true).of_hub("web")
    };
    let told = "of form web, deletes 1 Namespace and everything in it (a); to keep it, set deletionPolicy: Retain first and let that roll out";
    assert_eq!(said(&before), [told]);
    assert_eq!(said(&after), [""; 0]);
}

#[test]
fn claims_of_replicas_that_go_are_data() {
    let set = |replicas: Value, when: &str, more: Value| {
        let policy = json!({"whenScaled": when});
        let mut set = json!({"id": "db", "nameTemplate": "{{ .uid }}-db", "targetNamespace": "dbs", "spec": {
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "spec": {"replicas": replicas, "persistentVolumeClaimRetentionPolicy": policy},
        }});
        let fields = more.as_object().unwrap().clone();
        set.as_object_mut().unwrap().extend(fields);
        form(json!([set]))
    };
    let none = || json!({});
    let ignored = json!({"ignoreFields": ["$.spec.replicas"]});
    for (name, old, new, goes) in [
        (
            "fewer",
            set(json!(3), "Delete", none()),
            set(json!(2), "Delete", none()),
            true,
        ),
        (
            "one by default",
            set(json!(3), "Retain", none()),
            set(Value::Null, "Delete", none()),
            true,
        ),
        (
            "more",
            set(json!(3), "Delete", none()),
            set(json!(4), "Delete", none()),
            false,
        ),
        (
            "the same",
            set(json!(3), "Delete", none()),
            set(json!(3), "Delete", json!({"dependIds": []})),
            false,
        ),
        (
            "kept",
            set(json!(3), "Delete", none()),
            set(json!(2), "Retain", none()),
            false,
        ),
        (
            "others'",
            set(json!(3), "Delete", ignored.clone()),
            set(json!(2), "Delete", ignored),
            false,
        ),
    ] {
        let Some(change) = changed(Some(&old), &new) else {
            assert!(!goes, "{name}");
            continue;
        };
        assert_eq!(!change.taken_away.is_empty(), goes, "{name}");
        let trial = tried(Some(&old), &new, &rows(&TENANTS));
        let denied = denied(&trial, None, None);
        assert_eq!(denied.is_some(), goes, "{name}");
        let data = "this change deletes data of 8 tenants: the PersistentVolumeClaims of 8 StatefulSets that scale down (dbs/a-db, dbs/b-db, \
                    dbs/c-db, dbs/d-db and 4 more). To keep it, set whenScaled: Retain; to delete it, apply";
        assert!(denied.is_none_or(|said| said.starts_with(data)), "{name}");
        let told = "deletes the PersistentVolumeClaims of 8 StatefulSets that scale down (dbs/a-db, dbs/b-db and 6 more); to keep them, set \
                    whenScaled: Retain";
        assert_eq!(
            said(&trial),
            Vec::from_iter(goes.then(|| told.to_owned())),
            "{name}"
        );
    }
}

#[test]
fn an_object_without_data_needs_no_confirmation() {
    let keeps = |old: Value, new: Value| {
        let trial = tried(Some(&form(old)), &form(new), &rows(&TENANTS));
        denied(&trial, None, None)
    };
    let map = || map("{{ .uid }}", "x");
    let retained = namespace(json!({"deletionPolicy": "Retain"}));
    for (name, old, new) in [
        (
            "a ConfigMap",
            json!([map(), namespace(json!({}))]),
            json!([namespace(json!({}))]),
        ),
        ("what is retained", json!([map(), retained]), json!([map()])),
        (
            "a Namespace is in no other",
            json!([namespace(json!({}))]),
            json!([namespace(json!({"targetNamespace": "elsewhere"}))]),
        ),
    ] {
        assert_eq!(keeps(old, new), None, "{name}");
    }
}

#[test]
fn a_custom_resource_holds_data_if_it_has_a_finalizer() {
    let (old, new) = (
        form(json!([bucket(), map("{{ .uid }}", "x")])),
        form(json!([map("{{ .uid }}", "x")])),
    );
    let trial = tried(Some(&old), &new, &rows(&TENANTS));
    let looks: Vec<ObjectKey> = trial.deletions.looks().cloned().collect();
    assert_eq!(looks.len(), LOOKS_MAX);
    let seen = |last: Option<Option<Value>>| {
        let mut seen: LiveMetadata = looks
            .iter()
            .map(|key| (key.clone(), Some(json!({"namespace": "tenants"}))))
            .collect();
        seen.remove(&looks[5]);
        seen.extend(last.map(|last| (looks[5].clone(), last)));
        let mut trial = trial.clone();
        trial.deletions.settle(&seen);
        trial
    };
    let finalizers = json!({"finalizers": ["example.com/data"], "namespace": "tenants"});
    let of_cluster = json!({"finalizers": ["example.com/data"]});
    let retained = json!({"finalizers": ["example.com/data"], "annotations": {"lynq.sh/deletion-policy": "Retain"}});
    for (name, last, expected) in [
        (
            "one has a finalizer",
            Some(Some(finalizers)),
            Some("8 Buckets (a, "),
        ),
        (
            "of the whole cluster",
            Some(Some(of_cluster)),
            Some("8 Buckets (a, "),
        ),
        ("none has one", Some(Some(json!({}))), None),
        ("it is not there", Some(None), None),
        ("it is kept", Some(Some(retained)), None),
        ("nobody knows", None, Some("8 Buckets (a, ")),
    ] {
        let trial = seen(last);
        let denied = denied(&trial, None, None);
        let is_said = |said: &str| denied.as_ref().is_some_and(|denied| denied.contains(said));
        assert!(
            expected.map_or(denied.is_none(), is_said),
            "{name}: {denied:?}"
        );
        assert_eq!(said(&trial).len(), 1, "{name}: they go all the same");
    }
}

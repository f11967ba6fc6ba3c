//! Cases for the record of what was applied: what is not in it is never deleted, and what is in it is never forgotten.

use super::*;
use crate::decide::operator::watched::WatchedNamespaces;

fn key_of(api_version: &str, kind: &str, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        kind: Kind {
            api_version: api_version.into(),
            kind: kind.into(),
        }
        .into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

#[test]
fn what_the_record_names() {
    let status = NodeStatus {
        applied_resources: vec![
            "Role/tenants/a@x@b".into(),
            "Thing/tenants/acme-app@app".into(),
        ],
        applied_kinds: vec!["example.com/v1 Thing".into()],
        ..NodeStatus::default()
    };
    let record = Record::of(&status);
    for (name, key, named) in [
        (
            "itself",
            key_of("example.com/v1", "Thing", "tenants", "acme-app"),
            true,
        ),
        (
            "another version",
            key_of("example.com/v2", "Thing", "tenants", "acme-app"),
            true,
        ),
        (
            "cluster-scoped",
            key_of("example.com/v1", "Thing", "", "acme-app"),
            true,
        ),
        (
            "another group",
            key_of("example.org/v1", "Thing", "tenants", "acme-app"),
            false,
        ),
        (
            "another kind",
            key_of("example.com/v1", "Other", "tenants", "acme-app"),
            false,
        ),
        (
            "a copy",
            key_of("example.com/v1", "Thing", "tenants", "acme-app-copy"),
            false,
        ),
        (
            "another namespace",
            key_of("example.com/v1", "Thing", "other", "acme-app"),
            false,
        ),
        (
            "Lynq's, without a group",
            key_of("example.com/v1", "Role", "tenants", "a@x"),
            true,
        ),
    ] {
        assert_eq!(record.names(&key), named, "{name}");
    }
    let (resources, kinds) = record.texts();
    assert_eq!(
        (resources, kinds),
        (status.applied_resources, status.applied_kinds)
    );
}

/// Labels and owner references can be put on any object.
#[test]
fn what_is_not_in_the_record_is_never_deleted() {
    let node = node(vec![facts("a", &[])]);
    let a = child(&node.facts[0], &node);
    let others = || BTreeMap::from([(key("copy"), a.clone()), (key("old"), a.clone())]);
    let rest = Rest {
        record: recorded(["old"].into_iter()),
        others: others(),
        ..Rest::default()
    };
    let ready = [Some(a.clone())];
    let plan = plan(&node, &seen(&node, &ready), &rest, at(0));
    assert_eq!(plan.take_down, [(key("old"), TakeDown::Delete)]);
    let own_key = |facts: &Facts| Some(key(&facts.name));
    let gone = plan_deletion(&node, &others(), &rest.record, &BTreeMap::new(), own_key);
    assert_eq!(gone.take_down, [(key("old"), TakeDown::Delete)]);
    let copy = BTreeMap::from([(key("copy"), a)]);
    let done = plan_deletion(&node, &copy, &rest.record, &BTreeMap::new(), own_key);
    assert_eq!(done, Deletion::default());
}

/// The record has Lynq's templates, and the live content is not known.
#[test]
fn what_lynq_made_goes_with_a_node_that_was_never_taken_over() {
    let node = NodeDigest {
        live: Live::Unknown,
        ..node(vec![])
    };
    let made = child(&facts("a", &[]), &node);
    let retained = Child {
        retain: true,
        ..made.clone()
    };
    let foreign = Child {
        owner: Owner::Nobody.into(),
        ..made.clone()
    };
    let children = BTreeMap::from([
        (key("copy"), made.clone()),
        (key("foreign"), foreign),
        (key("gone"), made.clone()),
        (key("kept"), made),
        (key("retained"), retained),
    ]);
    let stays = |name: &str| name == "kept";
    let named = ["foreign", "gone", "kept", "retained", "never made"];
    let named = BTreeMap::from(named.map(|name| (key(name), stays(name))));
    let deletion = plan_deletion(&node, &children, &Record::default(), &named, |_| None);
    let expected = [
        (key("gone"), TakeDown::Delete),
        (key("kept"), TakeDown::Orphan),
        (key("retained"), TakeDown::Orphan),
    ];
    assert_eq!(deletion.take_down, expected);
}

/// Else it is neither pruned nor deleted with its node.
#[test]
fn what_is_still_there_stays_in_the_record() {
    let node = node(vec![facts("a", &[]), facts("b", &[])]);
    let (a, b) = (child(&node.facts[0], &node), child(&node.facts[1], &node));
    let older = Child {
        applied_hash: Some("older".into()),
        ..b.clone()
    };
    let going = Child {
        deleting: true,
        ..a.clone()
    };
    let given_away = Child {
        owner: Owner::Nobody.into(),
        ..a.clone()
    };
    let old = |child: &Child| BTreeMap::from([(key("old"), child.clone())]);
    let thing = || BTreeSet::from([Kind::clone(&key("old").kind)]);
    let nothing = BTreeSet::new;
    let (all, no_old, no_b) = (&["a", "b", "old"][..], &["a", "b"][..], &["a", "old"][..]);
    for (name, second, others, unlisted, recorded_before, expected) in [
        ("to be pruned", Some(&b), old(&a), nothing(), all, all),
        ("on its way out", Some(&b), old(&going), nothing(), all, all),
        ("gone", Some(&b), BTreeMap::new(), nothing(), all, no_old),
        (
            "given away",
            Some(&b),
            old(&given_away),
            nothing(),
            all,
            no_old,
        ),
        (
            "not to be seen",
            Some(&b),
            BTreeMap::new(),
            thing(),
            all,
            all,
        ),
        (
            "not ours by the record",
            Some(&b),
            old(&a),
            nothing(),
            no_old,
            no_old,
        ),
        (
            "its newest content not applied",
            Some(&older),
            old(&a),
            nothing(),
            all,
            all,
        ),
        ("never applied", None, old(&a), nothing(), no_b, no_b),
    ] {
        let rest = Rest {
            record: recorded(recorded_before.iter().copied()),
            others,
            unlisted,
        };
        let children = [Some(a.clone()), second.cloned()];
        let plan = plan(&node, &seen(&node, &children), &rest, at(0));
        let expected = recorded(expected.iter().copied());
        assert_eq!(plan.record, expected, "{name}");
    }
}

#[test]
fn what_is_recorded_outside_of_the_watched_namespaces_is_found() {
    let status = NodeStatus {
        applied_resources: vec![
            "Thing/other/acme-app@app".into(),
            "Thing/tenants/acme-app@app".into(),
        ],
        applied_kinds: vec!["example.com/v1 Thing".into()],
        ..NodeStatus::default()
    };
    let record = Record::of(&status);
    let thing = Kind::new("example.com/v1", "Thing");
    let outside = |kind: &Kind, watched: &[&str]| {
        let watched = watched.iter().map(|name| (*name).to_owned());
        let watched = WatchedNamespaces::of(watched);
        record.outside(kind, &watched).map(str::to_owned)
    };
    let found = Some("Thing/other/acme-app".to_owned());
    assert_eq!(outside(&thing, &["tenants"]), found);
    assert_eq!(outside(&thing, &["other", "tenants"]), None);
    assert_eq!(outside(&thing, &[]), None, "all are watched");
    let other = Kind::new("v1", "ConfigMap");
    assert_eq!(outside(&other, &["tenants"]), None);
}

//! What a sync remembers, and which nodes it reports as not written.

use serde_json::Value;

use super::*;
use crate::decide::hub::rows::activity::Words;
use crate::decide::hub::rows::{Collector, Columns, RawRow, RowCount};

fn rows<const N: usize>(uids: [usize; N]) -> Rows {
    rows_of(&uids)
}

pub fn rows_of(uids: &[usize]) -> Rows {
    let mut collector = Collector::new(&Columns {
        uid: "uid".into(),
        activate: "active".into(),
        host_or_url: None,
        extra: BTreeMap::new(),
        words: Words::default(),
    });
    for (uid, number) in uids.iter().zip(1..) {
        let values = [format!("t{uid}"), "1".to_owned()];
        let values = values.map(|value| Some(value.into_bytes())).to_vec();
        collector.push(RawRow { number, values });
    }
    let rows = collector.finish(RowCount(uids.len() as u64));
    rows.expect("not too many rows")
}

pub fn form(generation: i64, image: &str) -> BTreeMap<String, Form> {
    let spec = serde_json::from_value(json!({
        "hubId": "hub",
        "deployments": [{
            "id": "app", "nameTemplate": "{{ .uid }}-app",
            "spec": {"apiVersion": "apps/v1", "kind": "Deployment", "image": image},
        }],
    }));
    let compiled = CompiledForm::parse("web", &spec.unwrap()).unwrap();
    let form = Form {
        generation,
        policy: Rollout::default(),
        forced: false,
        all_written: true,
        compiled: Arc::new(compiled),
    };
    BTreeMap::from([("web".to_owned(), form)])
}

fn sync(
    forms: &BTreeMap<String, Form>,
    rows: &Rows,
    nodes: &[Arc<NodeDigest>],
    rendered: &Rendered,
) -> Plan {
    let source = source(forms, rows);
    plan(&seen(&source, nodes, rendered), Timestamp::UNIX_EPOCH)
}

fn hub() -> Hub {
    Hub {
        namespace: "shop".into(),
        name: "hub".into(),
        uid: "uid".into(),
        skew: Skew::default(),
        deletions: Allowance::default(),
        creations: Allowance::default(),
        seed: [7; 32],
    }
}

pub fn source(forms: &BTreeMap<String, Form>, rows: &Rows) -> RenderSource {
    RenderSource {
        hub: hub(),
        forms: forms.clone(),
        rows: rows.clone(),
    }
}

pub fn seen<'a>(
    source: &'a RenderSource,
    nodes: &'a [Arc<NodeDigest>],
    rendered: &'a Rendered,
) -> SyncInputs<'a> {
    static NONE: BTreeSet<String> = BTreeSet::new();
    SyncInputs {
        source,
        broken_forms: &NONE,
        nodes,
        foreign: &|_| None,
        moved: &|_| None,
        rendered,
    }
}

/// `of`: the hub of every other form and node.
fn beside(of: &str, forms: &BTreeMap<String, Form>, nodes: &[Arc<NodeDigest>]) -> Plan {
    let (source, rendered) = (source(forms, &rows([0, 1])), Rendered::new());
    let seen = SyncInputs {
        foreign: &|_| Some(of.to_owned()),
        moved: &|_| Some(of.to_owned()),
        ..seen(&source, nodes, &rendered)
    };
    plan(&seen, Timestamp::UNIX_EPOCH)
}

#[test]
fn whose_a_form_or_a_node_is_instead_is_said() {
    let forms = form(1, "web:1");
    let all = rows([0, 1]);
    let nodes = written(&forms, &all, &sync(&forms, &all, &[], &Rendered::new()));
    let deletes = |plan: Plan| -> Vec<String> {
        let deletes = plan.deletes.into_iter();
        deletes.map(|deletion| deletion.reason).collect()
    };
    let moved = beside("other", &BTreeMap::new(), &nodes);
    assert_eq!(deletes(moved), [r#"form "web" belongs to hub "other""#; 2]);
    let gone = sync(&BTreeMap::new(), &rows([0, 1]), &nodes, &Rendered::new());
    assert_eq!(deletes(gone), [r#"form "web" is gone"#; 2]);

    let others = beside("other", &forms, &[]).skipped.to_string();
    assert!(others.contains(r#"belongs to hub "other""#), "{others}");
    let nobodys = beside("", &forms, &[]).skipped.to_string();
    assert!(nobodys.contains("belongs to no hub"), "{nobodys}");
    assert!(nobodys.contains("lynq.sh/hub=hub"), "{nobodys}");
}

/// The objects that the plan's writes send.
fn objects(forms: &BTreeMap<String, Form>, rows: &Rows, plan: &Plan) -> Vec<Value> {
    let source = source(forms, rows);
    let writes = plan.writes.iter();
    writes.map(|write| source.object(write)).collect()
}

/// The nodes after all writes of the plan.
pub fn written(forms: &BTreeMap<String, Form>, rows: &Rows, plan: &Plan) -> Vec<Arc<NodeDigest>> {
    let objects = objects(forms, rows, plan).into_iter();
    objects
        .map(|object| Arc::new(NodeDigest::of(&object, None)))
        .collect()
}

fn unwritten(plan: &Plan) -> Vec<&str> {
    plan.unwritten.iter().map(|(_, node)| &**node).collect()
}

/// However many rows and versions of a form there were.
#[test]
fn what_is_remembered_is_of_the_rows_and_forms_there_are() {
    let mut rendered = Rendered::new();
    for i in 0..20 {
        let forms = form(i as i64, &format!("web:{i}"));
        rendered = sync(&forms, &rows([i, i + 1, i + 2]), &[], &rendered).rendered;
        let names: Vec<&str> = rendered.keys().map(|name| &**name).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names.contains(&&*format!("t{}-web", i + 2)), "{names:?}");
    }
    let none = sync(&BTreeMap::new(), &rows([0, 1, 2]), &[], &rendered);
    assert!(none.rendered.is_empty());
}

/// The hub reads its rows again while the nodes of a large fleet are still to be written.
#[test]
fn what_waits_to_be_written_is_not_rendered_again() {
    let (old, new) = (form(1, "web:1"), form(2, "web:2"));
    let all = rows([0, 1]);
    let at = |second| Timestamp::from_second(second).expect("a second");
    let sync_at = |forms: &BTreeMap<String, Form>, nodes: &[_], rendered: &_, second| {
        let source = source(forms, &all);
        plan(&seen(&source, nodes, rendered), at(second))
    };
    let is_same = |one: &Plan, other: &Plan, name: &str| {
        Arc::ptr_eq(&one.rendered[name], &other.rendered[name])
    };
    let first = sync_at(&old, &[], &Rendered::new(), 1);
    let nodes = written(&old, &all, &first);
    // A node that is not there gets the time at which it is created, whatever was there before.
    let again = sync_at(&old, &nodes[..1], &first.rendered, 2);
    assert!(is_same(&again, &first, "t0-web"));
    assert_eq!(
        objects(&old, &all, &again)[0]["metadata"]["annotations"][names::FIRST_SEEN],
        "1970-01-01T00:00:02.000Z"
    );

    let changed = sync_at(&new, &nodes, &first.rendered, 3);
    assert!(!is_same(&changed, &first, "t1-web"));
    let again = sync_at(&new, &nodes, &changed.rendered, 4);
    assert_eq!(again, changed);
    assert!(is_same(&again, &changed, "t1-web"));

    // Somebody edits the annotation. A template may show that time.
    let mut object = objects(&old, &all, &first).remove(1);
    object["metadata"]["annotations"][names::FIRST_SEEN] = json!("2026-01-01T00:00:00.000Z");
    let other = [Arc::new(NodeDigest::of(&object, None))];
    let again = sync_at(&new, &other, &changed.rendered, 5);
    assert!(!is_same(&again, &changed, "t1-web"));
}

/// The deletion may fail or wait: until then the node has the content of an older form.
#[test]
fn what_is_to_go_is_behind_what_the_form_says_since() {
    let (old, new) = (form(1, "web:1"), form(2, "web:2"));
    let before = sync(&old, &rows([0, 1]), &[], &Rendered::new());
    let nodes = written(&old, &rows([0, 1]), &before);
    let goes = sync(&old, &rows([1]), &nodes, &before.rendered);
    assert_eq!((goes.deletes.len(), unwritten(&goes)), (1, vec![]));
    let behind = sync(&new, &rows([1]), &nodes, &before.rendered);
    assert_eq!(
        (behind.deletes.len(), unwritten(&behind)),
        (1, vec!["t0-web"])
    );
    let unknown = sync(&new, &rows([1]), &nodes, &Rendered::new());
    assert_eq!(unwritten(&unknown), ["t0-web"]);
}

/// An edit stays until its row renders differently, or a user discards it.
#[test]
fn an_edit_is_written_over_when_it_is_to_be_discarded() {
    let forms = form(1, "web:1");
    let before = sync(&forms, &rows([0, 1]), &[], &Rendered::new());
    let mut nodes = written(&forms, &rows([0, 1]), &before);
    let rendered = objects(&forms, &rows([0, 1]), &before);
    let mut edited = rendered[0].clone();
    let annotations = &mut edited["metadata"]["annotations"];
    annotations[names::DESIRED_HASH] = json!(content::hash_value(&json!("by hand")));
    for (discard, again) in [(None, false), (Some("yes"), false), (Some("true"), true)] {
        edited["metadata"]["annotations"][names::DISCARD_EDIT] = json!(discard);
        nodes[0] = Arc::new(NodeDigest::of(&edited, None));
        let plan = sync(&forms, &rows([0, 1]), &nodes, &before.rendered);
        let writes: Vec<&str> = plan.writes.iter().map(|w| &*w.name).collect();
        assert_eq!(writes, ["t0-web"][..usize::from(again)], "{discard:?}");
        // The planner must not release it before it is written.
        let is_behind = before.desired["web"].is_behind(&nodes[0]);
        assert_eq!(is_behind, again, "{discard:?}");
        // No sync can discard an edit in a node without a row.
        let goes = sync(&forms, &rows([1]), &nodes, &before.rendered);
        assert!(!goes.desired["web"].is_behind(&nodes[0]), "{discard:?}");
    }
    // Back is what was rendered, and the annotation may still be there.
    let mut back = rendered[0].clone();
    let hash = content::hash(Some(&back["spec"]));
    back["metadata"]["annotations"][names::DESIRED_HASH] = json!(hash.as_str());
    back["metadata"]["annotations"][names::DISCARD_EDIT] = json!("true");
    nodes[0] = Arc::new(NodeDigest::of(&back, None));
    let plan = sync(&forms, &rows([0, 1]), &nodes, &before.rendered);
    assert!(plan.writes.is_empty(), "{:?}", plan.writes);
}

/// Nobody knows yet what runs there: the first write does not release it, even without a window.
#[test]
fn what_lynq_left_is_held_by_the_first_write() {
    let forms = form(1, "web:1");
    let all = rows([0, 1]);
    let new = sync(&forms, &all, &[], &Rendered::new());
    let new = objects(&forms, &all, &new);
    let mut lynqs = new[0].clone();
    lynqs["metadata"]["annotations"] = json!({});
    let mut ours = new[1].clone();
    // Held since its creation: it never had live content.
    ours["metadata"]["annotations"] = json!({names::LIVE_HASH: "none"});
    let nodes = [&lynqs, &ours].map(|node| Arc::new(NodeDigest::of(node, None)));
    let plan = sync(&forms, &all, &nodes, &Rendered::new());
    let told: Vec<(&str, bool, bool)> = plan
        .writes
        .iter()
        .zip(objects(&forms, &all, &plan))
        .map(|(write, object)| {
            let marker = &object["metadata"]["annotations"][names::UNGATED];
            (&*write.name, write.way.is_some(), marker.is_string())
        })
        .collect();
    let expected = [("t0-web", false, false), ("t1-web", true, true)];
    assert_eq!(told, expected);
}

/// A cross join gives so many rows: none of them gets a node, and existing nodes still change.
#[test]
fn too_many_new_nodes_are_not_made_and_keep_no_other_waiting() {
    let (old, new) = (form(1, "web:1"), form(2, "web:2"));
    let before = sync(&old, &rows([0, 1]), &[], &Rendered::new());
    let nodes = written(&old, &rows([0, 1]), &before);
    let many = rows_of(&Vec::from_iter(0..152));
    let held = sync(&new, &many, &nodes, &before.rendered);
    let written: Vec<&str> = held.writes.iter().map(|write| &*write.name).collect();
    assert_eq!(written, ["t0-web", "t1-web"]);
    assert!(held.writes.iter().all(|write| !write.makes()));
    assert_eq!(
        held.creations_held.as_ref().map(|held| held.count),
        Some(150)
    );
    assert_eq!(unwritten(&held).len(), 150);
    assert_eq!(
        held.desired["web"].count(),
        152,
        "a rollout is not complete without them"
    );
    assert_eq!(held.rendered.len(), 2, "nothing is rendered for them");

    let confirmed = |count: &str| {
        let mut source = source(&new, &many);
        source.hub.creations.confirmation = Some(count.to_owned());
        plan(
            &seen(&source, &nodes, &before.rendered),
            Timestamp::UNIX_EPOCH,
        )
    };
    assert_eq!(confirmed("149").writes.len(), 2);
    let all = confirmed("150");
    assert_eq!((all.writes.len(), unwritten(&all).len()), (152, 0));
    assert_eq!(all.writes.iter().filter(|write| write.makes()).count(), 150);

    let first = sync(&new, &many, &[], &Rendered::new());
    assert_eq!(first.writes.len(), 152, "the first sync of a hub");
}

/// Broken nodes get a correction first, and a new tenant waits for no other node; the rest follows in the order of release.
#[test]
fn nodes_are_written_in_the_order_in_which_somebody_waits_for_them() {
    let mut forms = form(1, "web:1");
    let policy = json!({
        "maxSkew": 1, "creation": "Immediate",
        "order": [{"name": "canary", "matchLabels": {"lynq.sh/uid": "t10"}}],
    });
    let policy: Rollout = serde_json::from_value(policy).expect("a policy");
    let all = rows([1, 2, 3, 10]);
    let before = sync(&forms, &all, &[], &Rendered::new());
    let mut nodes = vec![];
    for mut object in objects(&forms, &all, &before) {
        let broken = object["metadata"]["name"] == "t3-web";
        let hash = content::hash(Some(&object["spec"]));
        for name in [names::DESIRED_HASH, names::LIVE_HASH] {
            object["metadata"]["annotations"][name] = json!(hash.as_str());
        }
        let rolled = json!({
            "type": "Rolled", "status": "True", "reason": "RolledOut", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        object["status"] = json!({
            "observedHash": hash.as_str(),
            "conditions": if broken { json!([]) } else { json!([rolled]) },
        });
        nodes.push(Arc::new(NodeDigest::of(&object, None)));
    }
    forms = form(2, "web:2");
    forms.get_mut("web").expect("the form").policy = policy;
    let plan = sync(&forms, &rows([1, 2, 3, 10, 20]), &nodes, &before.rendered);
    let names: Vec<&str> = plan.writes.iter().map(|w| &*w.name).collect();
    assert_eq!(names, ["t3-web", "t10-web", "t1-web", "t2-web", "t20-web"]);
    forms.get_mut("web").expect("the form").policy.order.clear();
    let plan = sync(&forms, &rows([1, 2, 3, 10, 20]), &nodes, &before.rendered);
    let names: Vec<&str> = plan.writes.iter().map(|w| &*w.name).collect();
    assert_eq!(names, ["t3-web", "t20-web", "t1-web", "t2-web", "t10-web"]);
}

#[test]
fn words_are_part_of_what_makes_rows() {
    let hub = |spec: Value| {
        let mut hub = json!({"source": {"type": "configMap"}, "valueMappings": {"uid": "id", "activate": "on"}});
        let fields = spec.as_object().cloned().unwrap_or_default();
        hub.as_object_mut().expect("a spec").extend(fields);
        rows_hash(&serde_json::from_value(hub).expect("a hub"))
    };
    let hashes = [
        json!({}),
        json!({"activeValues": ["y"]}),
        json!({"inactiveValues": ["y"]}),
        json!({"activeValues": ["y"], "inactiveValues": ["n"]}),
    ];
    let hashes = BTreeSet::from_iter(hashes.map(hub));
    assert_eq!(hashes.len(), 4);
    let guarded = hub(json!({"guard": {"maxCreations": 3}}));
    assert!(hashes.contains(&guarded), "the guard makes no other rows");
}

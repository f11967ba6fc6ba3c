//! Steps of partitions: which the witness lets pass, and which it finds.

use serde_json::{Value, json};

use super::fleet::Fleet;
use crate::core::Rule;
use crate::kinds::{Key, Kind};

fn set() -> Key {
    Key::new(Kind::StatefulSet, "ns", "db")
}

fn pod(index: usize) -> Key {
    Key::new(Kind::Pod, "ns", &format!("db-{index}"))
}

fn stateful_set(partition: i64, manager: &str) -> Value {
    json!({
        "metadata": {
            "name": "db", "labels": {"lynq.sh/partition-gate": "true"},
            "managedFields": [{"manager": manager, "fieldsV1": {"f:spec": {"f:updateStrategy": {"f:rollingUpdate": {"f:partition": {}}}}}}],
        },
        "spec": {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}},
        "status": {"updateRevision": "new"},
    })
}

/// Old, updated, old and broken, updated and broken: a letter for each pod.
fn pods(fleet: &mut Fleet, letters: &str) {
    for (index, letter) in letters.chars().enumerate() {
        let revision = if "ob".contains(letter) { "old" } else { "new" };
        let ready = if "ou".contains(letter) {
            "True"
        } else {
            "False"
        };
        fleet.put(
            pod(index),
            json!({
                "metadata": {"labels": {"controller-revision-hash": revision}},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }),
        );
    }
}

#[test]
fn a_step_is_for_one_pod_while_all_others_are_ready() {
    const HELD: i64 = 2_147_483_647;
    const LOOP: &str = "lynqgate-partition";
    for (case, letters, before, after, who, is_wrong) in [
        ("the first", "ooo", HELD, 2, LOOP, false),
        ("the next", "oou", 2, 1, LOOP, false),
        ("the next one is broken", "obu", 2, 1, LOOP, false),
        ("all are updated", "uuu", HELD, 0, LOOP, false),
        ("none is ready", "bbb", HELD, 0, LOOP, false),
        ("two at once", "ooo", HELD, 1, LOOP, true),
        ("all at once", "oou", 2, 0, LOOP, true),
        ("another one is broken", "bou", 2, 1, LOOP, true),
        ("the last one is not ready", "oox", 2, 1, LOOP, true),
        ("the last one is not updated", "ooo", 2, 1, LOOP, true),
        ("somebody else's", "bbu", 2, 0, "kubectl-patch", false),
    ] {
        let mut fleet = Fleet::new(1, 1);
        pods(&mut fleet, letters);
        fleet.put(set(), stateful_set(before, who));
        fleet.put(set(), stateful_set(after, who));
        let conclusion = fleet.finish();
        let found = conclusion.counts.get(&Rule::Partition).copied();
        assert_eq!(
            found,
            is_wrong.then_some(1),
            "{case}: {:?}",
            conclusion.violations
        );
    }
    let mut fleet = Fleet::new(1, 1);
    pods(&mut fleet, "ooo");
    fleet.put(set(), stateful_set(HELD, LOOP));
    let mut forced = stateful_set(0, LOOP);
    forced["metadata"]["annotations"] = json!({"lynq.sh/force-rollout": "true"});
    fleet.put(set(), forced);
    assert!(fleet.finish().counts.is_empty());
}

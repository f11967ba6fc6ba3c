//! What the partition gate does to each write, and that it changes nothing in its own result.

use super::*;

const OPERATOR: &str = "system:serviceaccount:lynq-system:lynq-controller-manager";

/// An object with the API server's defaults.
fn stateful_set(labels: Value, partition: i64) -> Value {
    json!({
        "metadata": {"name": "db", "labels": labels},
        "spec": {
            "replicas": 3,
            "template": {"spec": {"containers": [{"image": "db:1"}]}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}},
        },
    })
}

fn ours() -> Value {
    json!({"lynq.sh/managed": "true", "lynq.sh/partition-gate": "true"})
}

fn opted_in() -> Value {
    json!({"lynq.sh/partition-gate": "true"})
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let names = pointer.split('/').skip(1);
    let place = names.fold(&mut object, |object, name| match object {
        Value::Array(items) => &mut items[0],
        object => &mut object[name],
    });
    *place = value;
    object
}

fn updated(object: Value) -> Value {
    with(
        object,
        "/spec/template/spec/containers/0/image",
        json!("db:2"),
    )
}

struct Decided {
    outcome: PartitionOutcome,
    partition: Option<i64>,
    object: Value,
    warnings: Vec<String>,
}

/// Decides, and asks again about the answer, as the API server may.
fn decided(old: Option<&Value>, new: &Value, (user, manager): (&str, &str)) -> Decided {
    let write = |new| Write {
        old,
        new,
        user,
        manager,
        operator: OPERATOR,
    };
    let decision = decide(&write(new));
    let mut object = new.clone();
    json_patch::patch(&mut object, &decision.patch).unwrap();
    assert_eq!(
        decide(&write(&object)).patch.len(),
        0,
        "not the same when asked again: {object}"
    );
    assert_eq!(check(&write(&object)), Ok(()));
    assert_eq!(check(&write(new)).is_ok(), decision.patch.is_empty());
    Decided {
        outcome: decision.outcome,
        partition: partition(&object),
        object,
        warnings: decision.warnings,
    }
}

const ANN: (&str, &str) = ("ann", "kubectl-edit");
const STEP: (&str, &str) = (OPERATOR, names::PARTITION_MANAGER);
const APPLY: (&str, &str) = (OPERATOR, names::FIELD_MANAGER);

#[test]
fn what_waits_and_what_does_not() {
    let on_delete =
        |object: Value| with(object, "/spec/updateStrategy", json!({"type": "OnDelete"}));
    let forced = |object: Value| {
        with(
            object,
            "/metadata/annotations",
            json!({"lynq.sh/force-rollout": "true"}),
        )
    };
    let paused = |object: Value, by: &str| {
        with(
            object,
            "/metadata/annotations",
            json!({"lynq.sh/partition-paused-by": by}),
        )
    };
    let at = |partition| stateful_set(ours(), partition);
    let scaled = |object: Value| with(object, "/spec/replicas", json!(9));
    let wide = |object: Value| {
        let mut object = object;
        object["metadata"]["labels"]["x"] = json!("y");
        object
    };
    let none = |object: Value| {
        with(
            object,
            "/spec/updateStrategy",
            json!({"type": "RollingUpdate", "rollingUpdate": {}}),
        )
    };
    for (case, old, new, who, outcome, partition) in [
        (
            "a creation",
            None,
            at(0),
            APPLY,
            PartitionOutcome::Held,
            Some(HELD),
        ),
        (
            "a creation with a partition",
            None,
            at(2),
            ANN,
            PartitionOutcome::Held,
            Some(HELD),
        ),
        (
            "a creation that names none",
            None,
            none(at(0)),
            ANN,
            PartitionOutcome::Held,
            Some(HELD),
        ),
        (
            "a creation with OnDelete",
            None,
            on_delete(at(0)),
            ANN,
            PartitionOutcome::Unchanged,
            None,
        ),
        (
            "a forced creation",
            None,
            forced(at(0)),
            ANN,
            PartitionOutcome::Forced,
            Some(0),
        ),
        (
            "of another's",
            None,
            stateful_set(json!({}), 0),
            ANN,
            PartitionOutcome::Unchanged,
            Some(0),
        ),
        (
            "managed, without the gate",
            None,
            stateful_set(
                json!({"lynq.sh/managed": "true", "lynq.sh/partition-gate": "false"}),
                0,
            ),
            APPLY,
            PartitionOutcome::Unchanged,
            Some(0),
        ),
        (
            "a new template",
            Some(at(0)),
            updated(at(0)),
            APPLY,
            PartitionOutcome::Held,
            Some(HELD),
        ),
        (
            "half way",
            Some(at(1)),
            updated(at(1)),
            ANN,
            PartitionOutcome::Held,
            Some(HELD),
        ),
        (
            "with a partition of the author's",
            Some(at(0)),
            updated(at(2)),
            ANN,
            PartitionOutcome::Held,
            Some(HELD),
        ),
        (
            "with the loop's manager",
            Some(at(1)),
            updated(at(0)),
            STEP,
            PartitionOutcome::Held,
            Some(HELD),
        ),
        (
            "while it is paused",
            Some(paused(at(2), "ann")),
            updated(paused(at(2), "ann")),
            ANN,
            PartitionOutcome::Held,
            Some(HELD),
        ),
        (
            "forced",
            Some(at(0)),
            forced(updated(at(0))),
            ANN,
            PartitionOutcome::Forced,
            Some(0),
        ),
        (
            "forced half way",
            Some(at(2)),
            forced(at(2)),
            ANN,
            PartitionOutcome::Forced,
            Some(0),
        ),
        (
            "with OnDelete",
            Some(on_delete(at(0))),
            on_delete(updated(at(0))),
            ANN,
            PartitionOutcome::Unchanged,
            None,
        ),
        (
            "OnDelete to RollingUpdate",
            Some(on_delete(at(0))),
            at(0),
            ANN,
            PartitionOutcome::Held,
            Some(HELD),
        ),
        (
            "RollingUpdate to OnDelete",
            Some(at(2)),
            with(at(2), "/spec/updateStrategy/type", json!("OnDelete")),
            ANN,
            PartitionOutcome::Unchanged,
            None,
        ),
        (
            "nothing",
            Some(at(2)),
            at(2),
            ANN,
            PartitionOutcome::Unchanged,
            Some(2),
        ),
        (
            "the scale",
            Some(at(2)),
            scaled(at(2)),
            ANN,
            PartitionOutcome::Unchanged,
            Some(2),
        ),
        (
            "a label",
            Some(at(HELD)),
            wide(at(HELD)),
            ANN,
            PartitionOutcome::Unchanged,
            Some(HELD),
        ),
        (
            "a step",
            Some(at(2)),
            at(1),
            STEP,
            PartitionOutcome::Step,
            Some(1),
        ),
        (
            "another write of the operator",
            Some(at(2)),
            at(0),
            APPLY,
            PartitionOutcome::Unchanged,
            Some(2),
        ),
        (
            "a replace by the operator",
            Some(at(HELD)),
            none(scaled(at(0))),
            APPLY,
            PartitionOutcome::Unchanged,
            Some(HELD),
        ),
        (
            "raised",
            Some(at(1)),
            at(3),
            ANN,
            PartitionOutcome::Paused,
            Some(3),
        ),
        (
            "lowered by the person who had raised it",
            Some(paused(at(3), "ann")),
            paused(at(2), "ann"),
            ANN,
            PartitionOutcome::Resumed,
            Some(3),
        ),
        (
            "lowered while another person keeps it paused",
            Some(paused(at(3), "bob")),
            paused(at(0), "bob"),
            ANN,
            PartitionOutcome::Unchanged,
            Some(3),
        ),
        (
            "a PUT while another person keeps it paused",
            Some(paused(at(3), "bob")),
            none(at(3)),
            ANN,
            PartitionOutcome::Unchanged,
            Some(3),
        ),
        (
            "lowered by hand",
            Some(at(HELD)),
            at(0),
            ANN,
            PartitionOutcome::Unchanged,
            Some(HELD),
        ),
        (
            "a PUT without it",
            Some(at(2)),
            none(at(2)),
            ANN,
            PartitionOutcome::Unchanged,
            Some(2),
        ),
        (
            "the gate is asked for",
            Some(stateful_set(json!({}), 0)),
            stateful_set(opted_in(), 0),
            ANN,
            PartitionOutcome::Unchanged,
            Some(0),
        ),
        (
            "the same, with a partition",
            Some(stateful_set(json!({}), 2)),
            stateful_set(opted_in(), 2),
            ANN,
            PartitionOutcome::Paused,
            Some(2),
        ),
        (
            "the same, with a new template",
            Some(stateful_set(json!({}), 0)),
            updated(stateful_set(opted_in(), 0)),
            ANN,
            PartitionOutcome::Held,
            Some(HELD),
        ),
        (
            "a field that this version does not know",
            Some(at(0)),
            {
                let mut new = at(0);
                new["spec"]["newField"] = json!(1);
                new
            },
            ANN,
            PartitionOutcome::Held,
            Some(HELD),
        ),
    ] {
        let decided = decided(old.as_ref(), &new, who);
        assert_eq!(
            (decided.outcome, decided.partition),
            (outcome, partition),
            "{case}"
        );
        let paused_by = annotation(&decided.object, names::PARTITION_PAUSED);
        let stays = case.contains("paused") && outcome != PartitionOutcome::Resumed;
        assert_eq!(
            paused_by.is_some(),
            outcome == PartitionOutcome::Paused || stays,
            "{case}"
        );
        assert!(
            who.0 != OPERATOR || decided.warnings.is_empty(),
            "{case}: {:?}",
            decided.warnings
        );
    }
}

#[test]
fn there_is_no_way_round_by_the_label() {
    let labels = |gate: Option<&str>, managed: bool| {
        let mut labels = json!({});
        if managed {
            labels[names::LABEL_MANAGED] = json!("true");
        }
        if let Some(gate) = gate {
            labels[names::PARTITION_GATE] = json!(gate);
        }
        labels
    };
    // (before, after, user, outcome, stored labels)
    for (case, managed, before, after, who, outcome, stored) in [
        (
            "removed from what a node owns",
            true,
            Some("true"),
            labels(None, false),
            ANN,
            PartitionOutcome::Held,
            labels(Some("true"), true),
        ),
        (
            "set to false there",
            true,
            Some("true"),
            labels(Some("false"), true),
            ANN,
            PartitionOutcome::Held,
            labels(Some("true"), true),
        ),
        (
            "removed from a team's own",
            false,
            Some("true"),
            labels(None, false),
            ANN,
            PartitionOutcome::Held,
            labels(Some("true"), false),
        ),
        (
            "set to false there",
            false,
            Some("true"),
            labels(Some("false"), false),
            ANN,
            PartitionOutcome::OptedOut,
            labels(Some("false"), false),
        ),
        (
            "by the operator, as the form says",
            true,
            Some("true"),
            labels(Some("false"), true),
            APPLY,
            PartitionOutcome::OptedOut,
            labels(Some("false"), true),
        ),
        (
            "managed, before there was a gate",
            true,
            None,
            labels(None, true),
            ANN,
            PartitionOutcome::Held,
            labels(Some("true"), true),
        ),
    ] {
        let old = stateful_set(labels(before, managed), 0);
        let new = updated(stateful_set(after, 0));
        let decided = decided(Some(&old), &new, who);
        assert_eq!(decided.outcome, outcome, "{case}");
        assert_eq!(decided.object["metadata"]["labels"], stored, "{case}");
    }
    let old = stateful_set(opted_in(), HELD);
    let out = decided(
        Some(&old),
        &stateful_set(labels(Some("false"), false), HELD),
        ANN,
    );
    assert_eq!(
        (out.outcome, out.partition),
        (PartitionOutcome::OptedOut, Some(0)),
        "nothing waits for ever"
    );
}

#[test]
fn who_writes_is_told() {
    let at = |partition| stateful_set(opted_in(), partition);
    let told = |old: Value, new: Value| decided(Some(&old), &new, ANN).warnings.join("\n");
    let removed = told(at(0), stateful_set(json!({}), 0));
    for (told, expected) in [
        (
            told(at(0), updated(at(0))),
            "held: lynqgate updates the pods of statefulset db one at a time; `lynqgate explain statefulset db` shows why it waits",
        ),
        (
            told(at(1), at(2)),
            "paused: lynqgate updates no more pods of statefulset db until you lower its partition again, or its annotation lynq.sh/partition-paused-by is removed",
        ),
        (
            told(at(2), at(1)),
            "statefulset db: lynqgate sets the partition, and ignores partition: 1. To pause, annotate lynq.sh/partition-paused-by=NAME; to update all pods at once, annotate lynq.sh/force-rollout=true; to do without the gate, label lynq.sh/partition-gate=false",
        ),
        (told(at(0), at(0)), ""),
        (
            removed,
            "statefulset db: lynqgate keeps its label lynq.sh/partition-gate: to have it leave the partition alone, set the label to \"false\": lynq.sh/partition-gate=false",
        ),
    ] {
        assert_eq!(told, expected);
    }
    let both = told(at(0), updated(at(2)));
    assert!(
        both.starts_with("statefulset db: lynqgate sets the partition, and ignores partition: 2."),
        "{both}"
    );
}

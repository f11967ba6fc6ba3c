//! The steps of a partition, by cases, and in every state of three pods: no step may break a second one.

use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn set(pods: &str, partition: i64) -> Set {
    Set {
        name: "db".to_owned(),
        gated: true,
        deleting: false,
        observed: true,
        replicas: pods.len().try_into().unwrap(),
        start: 0,
        partition: Some(partition),
        ordered: true,
        update_revision: "db-new".to_owned(),
        current_revision: "db-old".to_owned(),
        settles_within: SETTLES_WITHIN,
        paused_by: None,
        forced: false,
        interval: Ok(None),
        stepped_at: Some(ago(20)),
    }
}

/// A letter for each pod, from the lowest: (o)ld, (b)roken and old, old and going (g), (u)pdated, updated just (n)ow, updated and
/// not ready (x), of a revision that was replaced on its way (w), the same and not ready (v), not there (.).
fn pods_of(set: &Set, letters: &str) -> Vec<Pod> {
    let pod = |(index, letter): (usize, char)| {
        let index = i64::try_from(index).unwrap();
        let ready_since = match letter {
            'b' | 'v' | 'x' => None,
            'n' => Some(ago(2)),
            _ => Some(ago(60)),
        };
        let revision = match letter {
            'o' | 'b' | 'g' => "db-old",
            'v' | 'w' => "db-between",
            _ => "db-new",
        };
        (letter != '.').then(|| Pod {
            index,
            name: set.pod(index),
            uid: format!("uid-{index}"),
            revision: revision.to_owned(),
            ready_since,
            terminating: letter == 'g',
        })
    };
    letters.chars().enumerate().filter_map(pod).collect()
}

fn told(step: &Step) -> String {
    let wait = |again: Option<SignedDuration>| again.map_or(String::new(), |at| format!(" {at:#}"));
    match &step.effect {
        Some(Effect::Lower { from: HELD, to }) => format!("held to {to}"),
        Some(Effect::Lower { from, to }) => format!("{from} to {to}"),
        Some(Effect::DeletePod { name, uid }) => format!("delete {name} {uid}"),
        None => format!("{}{}", step.reason, wait(step.look_again)),
    }
}

const BROKEN: &str = "not ready, and not the next to be updated; repair or delete it, or release all pods with the annotation lynq.sh/force-rollout=true 5s";

#[test]
fn one_pod_at_a_time_from_the_top() {
    let broken = |pod: &str| format!("pod {pod} is {BROKEN}");
    let not_available = |pod: &str, wait: &str| {
        format!(
            "pod {pod} is updated and not ready, or not for long enough; if it stays so, correct the pod template {wait}"
        )
    };
    let updating = |pod: &str| format!("pod {pod} is being updated 5s");
    for (case, pods, partition, expected) in [
        (
            "the walk starts at replicas",
            "ooo",
            HELD,
            "held to 2".to_owned(),
        ),
        ("a pod is on its way", "ooo", 2, updating("db-2")),
        ("it is gone", "oo.", 2, updating("db-2")),
        ("it is going", "oog", 2, updating("db-2")),
        (
            "it is there and not ready",
            "oox",
            2,
            not_available("db-2", "5s"),
        ),
        (
            "it is ready, for 2 s",
            "oon",
            2,
            not_available("db-2", "3s"),
        ),
        ("the next one", "oou", 2, "2 to 1".to_owned()),
        ("the last one", "ouu", 1, "1 to 0".to_owned()),
        (
            "all of them are updated",
            "uuu",
            0,
            "the StatefulSet controller has not reported on its last change yet 5s".to_owned(),
        ),
        ("a new StatefulSet", "uuu", HELD, "held to 0".to_owned()),
        ("a new one, coming up", "un.", HELD, "held to 2".to_owned()),
        ("a change of the scale alone", "uuu", 2, "2 to 0".to_owned()),
        (
            "what is updated already is passed by",
            "ouu",
            HELD,
            "held to 0".to_owned(),
        ),
        ("one pod", "o", HELD, "held to 0".to_owned()),
        ("scaled to zero", "", HELD, "held to 0".to_owned()),
        (
            "the next target is broken",
            "oob",
            HELD,
            "held to 2".to_owned(),
        ),
        (
            "a broken pod that is no target",
            "obo",
            HELD,
            broken("db-1"),
        ),
        ("the same, half way", "bou", 2, broken("db-0")),
        ("one that is not there", "o.u", 2, "2 to 1".to_owned()),
        ("two are not there", "..u", 2, broken("db-0")),
        (
            "not what broke otherwise, though others wait for it",
            "ob..",
            HELD,
            broken("db-1"),
        ),
        (
            "what the last edit broke, and what waits for it",
            "oov..",
            HELD,
            "held to 2".to_owned(),
        ),
        (
            "one of two that it broke is no target",
            "oovv",
            HELD,
            broken("db-2"),
        ),
        ("not what broke otherwise", "obvv", HELD, broken("db-1")),
        (
            "one that the last edit broke, below one that it did not",
            "ovw",
            HELD,
            broken("db-1"),
        ),
        (
            "new pods, of a StatefulSet that has not made them yet",
            "oo..",
            HELD,
            broken("db-2"),
        ),
        ("one below is going", "gou", 2, broken("db-0")),
        (
            "an updated one breaks",
            "oxu",
            1,
            not_available("db-1", "5s"),
        ),
        (
            "scaled up half way: new pods come first",
            "ouu.",
            1,
            updating("db-3"),
        ),
        (
            "and become available",
            "ouun",
            1,
            not_available("db-3", "3s"),
        ),
        (
            "nothing runs that could break",
            "bb.",
            HELD,
            "held to 0".to_owned(),
        ),
        (
            "a broken target is replaced",
            "oob",
            2,
            "delete db-2 uid-2".to_owned(),
        ),
        ("one at a time", "bbx", 0, not_available("db-2", "5s")),
        ("from the top", "bbb", 0, "delete db-2 uid-2".to_owned()),
        (
            "one that was never ready keeps the others from being made",
            "b..",
            0,
            "delete db-0 uid-0".to_owned(),
        ),
        (
            "not while an updated one is not ready",
            "bx.",
            0,
            updating("db-2"),
        ),
    ] {
        let set = set(pods, partition);
        assert_eq!(
            told(&step(&set, &pods_of(&set, pods), &Around::default(), now())),
            expected,
            "{case}"
        );
    }
}

#[test]
fn what_else_has_a_say() {
    type Change = fn(&mut Set, &mut Around);
    let cases: [(&str, &str, i64, Change, &str); 19] = [
        (
            "no gate",
            "oo",
            HELD,
            |set, _| set.gated = false,
            "nothing waits",
        ),
        (
            "deleted",
            "oo",
            HELD,
            |set, _| set.deleting = true,
            "nothing waits",
        ),
        (
            "OnDelete",
            "oo",
            0,
            |set, _| set.partition = None,
            "nothing waits",
        ),
        (
            "over",
            "uu",
            0,
            |set, _| set.current_revision = set.update_revision.clone(),
            "nothing waits",
        ),
        (
            "not over yet",
            "uu",
            0,
            |set, _| {
                set.current_revision = set.update_revision.clone();
                set.observed = false;
            },
            "the StatefulSet controller has not reported on its last change yet 5s",
        ),
        (
            "not seen",
            "oo",
            HELD,
            |set, _| set.observed = false,
            "the StatefulSet controller has not reported on its last change yet 5s",
        ),
        (
            "forced, whatever else",
            "bo",
            1,
            |set, _| (set.forced, set.paused_by) = (true, Some("ann".into())),
            "1 to 0",
        ),
        (
            "the form is forced",
            "bo",
            HELD,
            |_, around| around.forced = true,
            "held to 0",
        ),
        (
            "paused",
            "oo",
            HELD,
            |set, _| set.paused_by = Some("ann".into()),
            "ann raised its partition; to continue, remove the annotation lynq.sh/partition-paused-by, or lower the partition as ann 5s",
        ),
        (
            "Parallel: its controller replaces the broken one",
            "ob",
            1,
            |set, _| set.ordered = false,
            "pod db-1 is being updated 5s",
        ),
        (
            "too soon after the last step",
            "ou",
            1,
            |set, _| set.interval = Ok(Some(SignedDuration::from_mins(1))),
            "the next step is at 2026-01-01T00:01:40Z, by its annotation lynq.sh/partition-step-interval 40s",
        ),
        (
            "late enough",
            "ou",
            1,
            |set, _| set.interval = Ok(Some(SignedDuration::from_secs(20))),
            "1 to 0",
        ),
        (
            "the first step waits for none",
            "oo",
            HELD,
            |set, _| set.interval = Ok(Some(SignedDuration::from_mins(1))),
            "held to 1",
        ),
        (
            "no interval",
            "ou",
            1,
            |set, _| set.interval = Err("soon".into()),
            "its annotation lynq.sh/partition-step-interval is \"soon\"; write a number with s, m or h, such as 5m 5s",
        ),
        (
            "the node",
            "ou",
            1,
            |_, around| around.node = Some("Deployment a is not ready".into()),
            "Deployment a is not ready 5s",
        ),
        (
            "the whole",
            "ou",
            1,
            |_, around| around.probe = Some("Cluster c is not ready".into()),
            "Cluster c is not ready; repair that, or remove the annotation lynq.sh/partition-probe 5s",
        ),
        (
            "neither keeps a broken pod from its correction",
            "ob",
            HELD,
            |_, around| around.probe = Some("Cluster c is not ready".into()),
            "held to 1",
        ),
        (
            "nor one of a revision that was replaced",
            "ow",
            HELD,
            |_, around| around.probe = Some("Cluster c is not ready".into()),
            "held to 1",
        ),
        (
            "minReadySeconds",
            "ou",
            1,
            |set, _| set.settles_within = SignedDuration::from_mins(2),
            "pod db-1 is updated and not ready, or not for long enough; if it stays so, correct the pod template 1m",
        ),
    ];
    for (case, pods, partition, change, expected) in cases {
        let (mut set, mut around) = (set(pods, partition), Around::default());
        change(&mut set, &mut around);
        assert_eq!(
            told(&step(&set, &pods_of(&set, pods), &around, now())),
            expected,
            "{case}"
        );
    }
}

/// Every state of three pods, and every partition.
#[test]
fn no_step_breaks_a_second_pod() {
    const LETTERS: [char; 9] = ['o', 'b', 'g', 'u', 'n', 'x', 'v', 'w', '.'];
    let all = LETTERS.into_iter().flat_map(|a| {
        let ends = LETTERS.into_iter().flat_map(|b| LETTERS.map(|c| [b, c]));
        ends.map(move |[b, c]| String::from_iter([a, b, c]))
    });
    for (pods, partition) in
        all.flat_map(|pods| [0, 1, 2, 3, HELD].map(|partition| (pods.clone(), partition)))
    {
        let set = set(&pods, partition);
        let released = partition.min(3);
        let index = |(index, _): &(usize, char)| i64::try_from(*index).unwrap();
        let at = |accepts: fn(char) -> bool, range: std::ops::Range<i64>| {
            pods.chars()
                .enumerate()
                .filter(|pod| range.contains(&index(pod)) && accepts(pod.1))
                .count()
        };
        let not_ready = |pod: char| "bgxv.".contains(pod);
        match step(&set, &pods_of(&set, &pods), &Around::default(), now()).effect {
            Some(Effect::Lower { from, to }) => {
                assert_eq!(from, partition);
                if at(not_ready, 0..3) == 3 {
                    continue;
                }
                assert!(to < from, "{pods}");
                assert_eq!(
                    at(|pod| pod != 'u', released..3),
                    0,
                    "{pods}: what was released is updated and available"
                );
                let runs = at(|pod| "ow".contains(pod), to..released);
                let lies = at(|pod| "bgv".contains(pod), to..released);
                assert!(runs + lies <= 1, "{pods}: one pod is released");
                assert!(
                    runs == 0 || at(|pod| pod == '.', to..released) == 0,
                    "{pods}: and with it only such as are not there"
                );
                assert_eq!(at(not_ready, 0..to), 0, "{pods}: all others are ready");
                assert_eq!(
                    at(|pod| pod == 'x', to..released),
                    0,
                    "{pods}: those that are updated already, too"
                );
            }
            Some(Effect::DeletePod { uid, .. }) => {
                let deleted: i64 = uid.trim_start_matches("uid-").parse().unwrap();
                let broken = at(|pod| pod == 'b' || pod == 'v', deleted..deleted + 1);
                assert!(deleted >= released && broken == 1, "{pods}");
                assert_eq!(
                    at(|pod| pod == 'x' || pod == 'g', released..3),
                    0,
                    "{pods}: one at a time"
                );
            }
            None => {}
        }
    }
}

#[test]
fn a_stateful_set_and_its_pods_are_read() {
    let object = json!({
        "metadata": {
            "name": "db", "generation": 3, "labels": {"lynq.sh/partition-gate": "true"},
            "annotations": {"lynq.sh/partition-step-interval": "5m", "lynq.sh/partition-paused-by": "ann"},
            "managedFields": [
                {"manager": "lynq-operator", "time": "2026-01-02T00:00:00Z"},
                {"manager": "lynqgate-partition", "time": "2026-01-01T00:00:00Z"},
            ],
        },
        "spec": {
            "replicas": 12, "ordinals": {"start": 5}, "podManagementPolicy": "Parallel", "minReadySeconds": 30,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 7}},
        },
        "status": {"observedGeneration": 3, "currentRevision": "db-a", "updateRevision": "db-b"},
    });
    let read = Set::of(&object);
    assert_eq!(
        read,
        Set {
            replicas: 12,
            start: 5,
            ordered: false,
            update_revision: "db-b".to_owned(),
            current_revision: "db-a".to_owned(),
            settles_within: SignedDuration::from_secs(30),
            paused_by: Some("ann".to_owned()),
            interval: Ok(Some(SignedDuration::from_mins(5))),
            stepped_at: Some(ago(60)),
            ..set("", 7)
        }
    );
    let pod = |name: &str, owner: &str| {
        let object = json!({
            "metadata": {
                "name": name, "uid": "u", "labels": {"controller-revision-hash": "db-b"},
                "ownerReferences": [{"uid": owner, "controller": true}],
            },
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        Pod::of(&object, &read, "uid").map(|pod| (pod.index, pod.ready_since))
    };
    // Ordinals are numbers: 10 comes after 9.
    assert_eq!(pod("db-15", "uid"), Some((10, Some(ago(60)))));
    for (name, owner) in [
        ("db-17", "uid"),
        ("db-4", "uid"),
        ("db-x", "uid"),
        ("db-15", "other"),
        ("dbx-15", "uid"),
    ] {
        assert_eq!(pod(name, owner), None, "{name} {owner}");
    }
    for (text, is) in [
        ("5m", true),
        ("0s", true),
        ("m", false),
        ("5", false),
        ("-5m", false),
        ("100000s", false),
        ("5ms", false),
    ] {
        assert_eq!(is_delay(text), is, "{text}");
    }
}

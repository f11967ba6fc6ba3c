//! Cases for Jobs, whose objects are deleted after they complete.

use super::*;
use crate::decide::node::plan::status;

fn job(id: &str) -> Facts {
    declared(facts(id, &[]), |job| {
        job.kind = Kind::new("batch/v1", "Job").into()
    })
}

/// The record that a status of this plan passes on to the next process.
fn next_record(node: &NodeDigest, children: &[Option<Child>], record: Record) -> Record {
    let all = seen(node, children);
    let rest = Rest {
        record,
        ..Rest::default()
    };
    let plan = plan(node, &all, &rest, at(0));
    Record::of(&status::of_node(node, &all, &plan, None, at(0)))
}

fn plan_with(node: &NodeDigest, children: &[Option<Child>], record: &Record) -> NodePlan {
    let rest = Rest {
        record: record.clone(),
        ..Rest::default()
    };
    plan(node, &seen(node, children), &rest, at(0))
}

fn completed(facts: &Facts, node: &NodeDigest) -> Child {
    Child {
        completed: true,
        once: facts.once,
        ..child(facts, node)
    }
}

/// Whether its TTL or a user deletes it, and in any process.
#[test]
fn a_job_that_completed_is_not_run_again_when_its_object_goes() {
    let node = node(vec![job("migrate"), facts("app", &["migrate"])]);
    let done = completed(&node.facts[0], &node);
    let app = Some(child(&node.facts[1], &node));
    let record = next_record(&node, &[Some(done.clone()), app.clone()], Record::default());
    let going = Child {
        deleting: true,
        readiness: waiting().into(),
        ..done.clone()
    };
    for gone in [None, Some(going.clone())] {
        let plan = plan_with(&node, &[gone, None], &record);
        assert_eq!(plan.outcomes[0].state, State::Ready);
        assert_eq!(plan.apply, [1], "what depends on it goes on");
    }
    // The Job was first seen complete while it was being deleted.
    let record = next_record(&node, &[Some(going), app.clone()], Record::default());
    let plan = plan_with(&node, &[None, app.clone()], &record);
    assert!(plan.apply.is_empty());
    // The record names what exists, and remembers a completed Job while the content names it.
    assert!(!plan.record.names(&key_of(&node.facts[0])));
    assert!(plan.record.has_run(&node.facts[0]));
    let without = NodeDigest {
        facts: Arc::new(vec![facts("app", &[])]),
        ..node.clone()
    };
    let record = next_record(&without, &[app], record);
    assert!(!record.has_run(&node.facts[0]));
}

#[test]
fn a_job_runs_again_where_it_did_not_complete_or_its_content_changed() {
    let old = node(vec![job("migrate")]);
    let done = completed(&old.facts[0], &old);
    let running = Child {
        completed: false,
        readiness: waiting().into(),
        ..done.clone()
    };
    let foreign = Child {
        owner: Owner::Other("CronJob nightly".into()).into(),
        ..done.clone()
    };
    for (name, child) in [("running", running), ("a CronJob's", foreign)] {
        let record = next_record(&old, &[Some(child)], Record::default());
        assert_eq!(plan_with(&old, &[None], &record).apply, [0], "{name}");
    }
    let record = next_record(&old, &[Some(done)], Record::default());
    let newer = |facts: Facts| node(vec![facts]);
    let changed = Facts {
        hash: "another".into(),
        ..job("migrate")
    };
    assert_eq!(plan_with(&newer(changed), &[None], &record).apply, [0]);
    let no_job = declared(facts("migrate", &[]), |thing| thing.once = true);
    assert_eq!(plan_with(&newer(no_job), &[None], &record).apply, [0]);
    let moved = job("elsewhere");
    assert_eq!(plan_with(&newer(moved), &[None], &record).apply, [0]);
}

#[test]
fn a_job_that_is_to_run_once_runs_once_whatever_changes() {
    let once = |hash: &str| Facts {
        hash: hash.into(),
        ..declared(job("seed"), |job| job.once = true)
    };
    let first = node(vec![once("first")]);
    let done = completed(&first.facts[0], &first);
    let record = next_record(&first, &[Some(done.clone())], Record::default());
    let second = node(vec![once("second")]);
    let plan = plan_with(&second, &[None], &record);
    assert_eq!(
        (plan.apply.len(), plan.outcomes[0].state),
        (0, State::Ready)
    );
    // It completed as it was made, before the content changed.
    let record = next_record(&second, &[Some(done)], Record::default());
    assert!(record.has_run(&second.facts[0]));
}

/// The TTL starts when the Job ends, even if it failed.
#[test]
fn a_job_that_fails_again_and_again_is_told_and_paused() {
    let node = node(vec![job("migrate")]);
    let gone = [None];
    let mut all = seen(&node, &gone);
    for _ in 0..4 {
        all[0].applies.note(at(0));
    }
    let plan = plan(&node, &all, &Rest::default(), at(0));
    let outcome = &plan.outcomes[0];
    assert_eq!((plan.apply.len(), outcome.state), (0, State::ApplyFailed));
    assert!(
        outcome.message.contains("ttlSecondsAfterFinished"),
        "{outcome:?}"
    );
}

//! Which status of a release may wait.

use super::*;
use crate::decide::node::plan::status;

#[test]
fn only_a_new_release_that_is_neither_ready_nor_failed_may_wait_for_its_status() {
    let mut node = node(vec![facts("a", &[])]);
    let reason = || Reason::Terminating { name: "x".into() };
    let old = status_of(&node, Readiness::Ready, None);
    let broken = status_of(&node, Readiness::Waiting(reason()), None);
    node.start = Some("2027-01-15T08:00:01Z".into());
    let [ready, waits, fails] = [
        Readiness::Ready,
        Readiness::Waiting(reason()),
        Readiness::Failed(reason()),
    ]
    .map(|readiness| status_of(&node, readiness, None));
    let with = |change: &dyn Fn(&mut NodeStatus)| {
        let mut status = waits.clone();
        change(&mut status);
        status
    };
    let applied = with(&|status| status.applied_resources.push("Thing/t/new@b".into()));
    let watches = with(&|status| status.applied_kinds.push("example.com/v1/Thing".into()));
    let job = with(&|status| status.completed_jobs = vec!["migrate: 1".into()]);
    let unknown = NodeDigest {
        live: Live::Unknown,
        ..node.clone()
    };
    node.facts = vec![facts("a", &["b"]), facts("b", &["a"])].into();
    let degraded = with(&|status| {
        let degraded = status.conditions.iter_mut().find(|c| c.type_ == "Degraded");
        degraded.unwrap().status = "True".into();
    });
    let [cycle, unknown] = [node.clone(), unknown].map(|node| NodeStatus {
        applied_resources: old.applied_resources.clone(),
        applied_kinds: old.applied_kinds.clone(),
        ..status_of(&node, Readiness::Waiting(reason()), None)
    });
    for (name, new, may_wait) in [
        ("the release before", &broken, false),
        ("a new release that is ready", &ready, false),
        ("a new release that is not ready", &waits, true),
        ("a new release that failed", &fails, false),
        ("a new object", &applied, false),
        ("an object of a new kind", &watches, false),
        ("a Job that completed", &job, false),
        ("something to mend beside it", &degraded, false),
        ("a cycle of dependencies", &cycle, false),
        ("it is not known what runs", &unknown, false),
    ] {
        assert_eq!(status::is_only_progress(&old, new), may_wait, "{name}");
    }
}

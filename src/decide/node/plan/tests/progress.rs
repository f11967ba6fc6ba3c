//! Which status of a release may wait.

use super::*;
use crate::decide::node::plan::status;

#[test]
fn only_a_new_release_that_is_neither_ready_nor_failed_may_wait_for_its_status() {
    let mut node = node(vec![facts("a", &[])]);
    let status_of = |node: &NodeDigest, readiness: Readiness| {
        let object = Child {
            readiness: readiness.into(),
            ..child(&node.facts[0], node)
        };
        let children = [Some(object)];
        let all = seen(node, &children);
        let plan = plan(node, &all, &Rest::default(), at(0));
        status::of_node(node, &all, &plan, None, at(0))
    };
    let reason = || Reason::Terminating { name: "x".into() };
    let old = status_of(&node, Readiness::Ready);
    let broken = status_of(&node, Readiness::Waiting(reason()));
    node.start = Some("2027-01-15T08:00:01Z".into());
    let [ready, waits, fails] = [
        Readiness::Ready,
        Readiness::Waiting(reason()),
        Readiness::Failed(reason()),
    ]
    .map(|readiness| status_of(&node, readiness));
    for (name, new, may_wait) in [
        ("the release before", &broken, false),
        ("a new release that is ready", &ready, false),
        ("a new release that is not ready", &waits, true),
        ("a new release that failed", &fails, false),
    ] {
        assert_eq!(status::is_only_progress(&old, new), may_wait, "{name}");
    }
}

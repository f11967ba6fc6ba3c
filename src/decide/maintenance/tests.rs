//! One case for each rule of docs/MAINTENANCE.md, named there. A step is compared as text: one line for each effect, and when to
//! step again, in seconds from now.

use super::*;

pub const ME: &str = "machine-remediation";

pub fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

pub fn policy() -> Policy {
    Policy {
        holder: ME.to_owned(),
        nodes_max: 1,
    }
}

/// A schedulable Kubernetes node that asks for this many seconds, or for nothing.
fn asks(seconds: impl Into<Option<i32>>) -> Observed {
    let request = seconds.into().map_or(Request::None, Request::Window);
    let node = KubernetesNode {
        name: "k8s-3".to_owned(),
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        request,
        ..KubernetesNode::default()
    };
    Observed {
        node: Some(node),
        ..Observed::default()
    }
}

/// A Lease that was acquired so many seconds ago, of a Kubernetes node that was schedulable.
pub fn lease(holder: &str, duration_seconds: i32, age: i64) -> Lease {
    let acquired = now() - SignedDuration::from_secs(age);
    Lease {
        resource_version: "4".to_owned(),
        holder: holder.to_owned(),
        duration_seconds,
        acquired: Some(acquired),
        renewed: Some(acquired),
        transitions: 3,
        was_schedulable: true,
        owner: Some("u".to_owned()),
        tenants: BTreeSet::new(),
    }
}

impl Observed {
    fn under(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    fn says(mut self, status: Status) -> Self {
        self.node.as_mut().unwrap().status = Some(status.as_str().to_owned());
        self
    }

    fn cordoned(mut self) -> Self {
        self.node.as_mut().unwrap().unschedulable = true;
        self
    }
}

fn told(step: &Step) -> Vec<String> {
    let from_now = |at: Timestamp| at.duration_since(now()).as_secs();
    let of_lease = |write: &LeaseWrite| {
        let times = &write.times;
        let what = match &write.over {
            None => "create".to_owned(),
            Some(version) => format!("write over {version}"),
        };
        format!(
            "{what}: {} acquired {} renewed {} for {} transitions {}{}{}",
            write.holder,
            from_now(times.acquired),
            from_now(times.renewed),
            times.duration_seconds,
            write.transitions,
            if write.was_schedulable {
                " schedulable"
            } else {
                ""
            },
            if write.owner.is_some() { " owned" } else { "" },
        )
    };
    let effect = |effect: &Effect| match effect {
        Effect::Lease(write) => of_lease(write),
        Effect::Node(write) => format!(
            "{:?} ({}) until {}",
            write.change,
            write.status,
            from_now(write.until)
        ),
        Effect::Tell(status) => format!("tell {}", status.map_or("nothing", Status::as_str)),
        Effect::Drain { until } => format!("drain until {}", from_now(*until)),
    };
    let again = step.again.map(|at| format!("again {}", from_now(at)));
    step.effects.iter().map(effect).chain(again).collect()
}

#[track_caller]
fn check(given: &Observed, expected: &[&str]) -> Reason {
    let step = step(&policy(), given, now());
    assert_eq!(told(&step), expected);
    step.reason
}

#[test]
fn a_valid_lease_of_another_is_respected() {
    let given = asks(60).under(lease("other", 100, 80));
    let reason = check(&given, &["tell waiting", "again 20"]);
    let text = "other holds the Lease until 2026-01-01T00:00:20Z";
    assert_eq!(reason.to_string(), text);
    let long = asks(60).under(lease("other", 7200, 0));
    check(&long, &["tell waiting", "again 30"]);
}

#[test]
fn a_lease_that_another_took_in_the_middle_stops_the_drain_and_nothing_is_uncordoned() {
    let given = asks(60).cordoned().says(Status::Active);
    let given = given.under(lease("other", 100, 0));
    check(&given, &["tell waiting", "again 30"]);
}

#[test]
fn the_status_of_the_present_holder_is_left_alone() {
    let mut given = asks(60).cordoned().says(Status::Active);
    given.node.as_mut().unwrap().told_by = Some("other".to_owned());
    check(&given.clone().under(lease("other", 100, 80)), &["again 20"]);
    check(
        &given.under(lease("third", 100, 80)),
        &["tell waiting", "again 20"],
    );
}

#[test]
fn a_renewal_in_the_future_holds_whatever_the_clock_says() {
    let mut ahead = lease("other", 10, 60);
    ahead.renewed = Some(now() + SignedDuration::from_secs(5));
    check(&asks(60).under(ahead), &["tell waiting", "again 5"]);
}

#[test]
fn without_a_lease_it_is_created() {
    check(
        &asks(60),
        &[
            "create: machine-remediation acquired 0 renewed 0 for 90 transitions 1 schedulable owned",
            "Status (new, create) until 90",
            "again 0",
        ],
    );
}

#[test]
fn a_node_that_was_cordoned_before_is_not_remembered_as_schedulable() {
    check(
        &asks(60).cordoned(),
        &[
            "create: machine-remediation acquired 0 renewed 0 for 90 transitions 1 owned",
            "Status (new, create) until 90",
            "again 0",
        ],
    );
}

#[test]
fn an_ended_lease_of_another_is_taken_over() {
    check(
        &asks(60).under(lease("other", 100, 101)),
        &[
            "write over 4: machine-remediation acquired 0 renewed 0 for 90 transitions 4 schedulable owned",
            "Status (new, acquired) until 90",
            "again 0",
        ],
    );
    let nobodys = lease("", 100, 0);
    let step = step(&policy(), &asks(60).under(nobodys), now());
    assert_eq!(step.reason, Reason::Began(Status::Acquired));
}

#[test]
fn a_reset_lease_is_begun_again() {
    let mut reset = lease(ME, 0, 500);
    reset.was_schedulable = false;
    check(
        &asks(60).under(reset),
        &[
            "write over 4: machine-remediation acquired 0 renewed 0 for 90 transitions 4 schedulable owned",
            "Status (new) until 90",
            "again 0",
        ],
    );
}

#[test]
fn another_interval_changes_duration_and_renewal_only() {
    let given = asks(600).cordoned().says(Status::Active);
    check(
        &given.under(lease(ME, 90, 10)),
        &[
            "write over 4: machine-remediation acquired -10 renewed 0 for 630 transitions 3 schedulable owned",
            "Status (updated) until 620",
            "again 0",
        ],
    );
}

#[test]
fn an_interval_shortened_into_the_past_ends_the_window() {
    let given = asks(20).cordoned().says(Status::Active);
    let reason = check(
        &given.under(lease(ME, 90, 25)),
        &["TakeRequestOff (ended) until 65", "again 0"],
    );
    assert_eq!(reason, Reason::WindowOver);
}

#[test]
fn an_annotation_that_outlived_its_lease_opens_a_new_window() {
    let given = asks(60).cordoned().says(Status::Active);
    check(
        &given.under(lease(ME, 90, 91)),
        &[
            "write over 4: machine-remediation acquired 0 renewed 0 for 90 transitions 3 schedulable owned",
            "Status (new, stale) until 90",
            "again 0",
        ],
    );
}

/// This is what a reader of the publication took for unreachable: the request of the same interval comes back after it was taken
/// off, and before the Lease is reset.
#[test]
fn a_request_made_again_before_the_lease_was_reset_opens_a_new_window() {
    let given = asks(60).says(Status::Ended);
    check(
        &given.under(lease(ME, 90, 65)),
        &[
            "write over 4: machine-remediation acquired 0 renewed 0 for 90 transitions 3 schedulable owned",
            "Status (new, recreate) until 90",
            "again 0",
        ],
    );
}

#[test]
fn at_the_end_of_the_window_the_request_is_taken_off() {
    let given = asks(60).cordoned().says(Status::Active);
    check(
        &given.clone().under(lease(ME, 90, 61)),
        &["TakeRequestOff (ended) until 30", "again 0"],
    );
    check(
        &given.under(lease(ME, 90, 60)),
        &["drain until 30", "again 0"],
    );
}

#[test]
fn under_the_lease_it_is_cordoned_and_drained() {
    let given = asks(60).says(Status::Created).under(lease(ME, 90, 1));
    check(&given, &["Cordon (active) until 89", "again 0"]);
    let cordoned = given.cordoned().says(Status::Active);
    let reason = check(&cordoned, &["drain until 89", "again 59"]);
    assert_eq!(
        reason.to_string(),
        "in maintenance until 2026-01-01T00:00:59Z"
    );
}

#[test]
fn a_node_that_a_person_uncordoned_is_remembered_before_it_is_cordoned_again() {
    let mut forgetful = lease(ME, 90, 1);
    forgetful.was_schedulable = false;
    let given = asks(60).says(Status::Active).under(forgetful);
    check(
        &given,
        &[
            "write over 4: machine-remediation acquired -1 renewed -1 for 90 transitions 3 schedulable owned",
            "again 0",
        ],
    );
}

#[test]
fn without_the_annotation_a_held_lease_is_ended() {
    let given = asks(None).cordoned().says(Status::Active);
    check(
        &given.under(lease(ME, 90, 10)),
        &["Uncordon (ended) until 80", "again 0"],
    );
    let uncordoned = asks(None).says(Status::Ended).under(lease(ME, 90, 10));
    check(
        &uncordoned,
        &[
            "write over 4: machine-remediation acquired -10 renewed 0 for 0 transitions 3",
            "again 0",
        ],
    );
}

#[test]
fn what_was_cordoned_before_stays_cordoned() {
    let mut remembers_nothing = lease(ME, 90, 10);
    remembers_nothing.was_schedulable = false;
    let given = asks(None).cordoned().says(Status::Active);
    let given = given.under(remembers_nothing);
    check(&given, &["Status (ended) until 80", "again 0"]);
    let step = step(&policy(), &given.says(Status::Ended), now());
    assert_eq!(step.reason, Reason::Releasing);
}

#[test]
fn a_lease_lost_before_the_end_is_taken_again_to_end_the_maintenance() {
    let given = asks(None).cordoned().says(Status::Active);
    let reason = check(
        &given.under(lease(ME, 90, 90)),
        &[
            "write over 4: machine-remediation acquired 0 renewed 0 for 30 transitions 3 schedulable",
            "again 0",
        ],
    );
    assert_eq!(reason, Reason::Lost);
}

#[test]
fn without_a_request_nothing_is_written_to_what_is_not_ours() {
    check(&asks(None), &[]);
    let given = asks(None).cordoned().says(Status::Active);
    check(&given.clone().under(lease("other", 90, 10)), &[]);
    check(&given.clone().under(lease("other", 90, 100)), &[]);
    check(&given.under(lease(ME, 0, 10)), &[]);
    check(&asks(None).says(Status::Waiting), &["tell nothing"]);
}

#[test]
fn a_deleted_kubernetes_node_is_left_alone() {
    let mut given = asks(60).under(lease(ME, 90, 10));
    given.node.as_mut().unwrap().deleting = true;
    check(&given, &[]);
    given.node = None;
    check(&given, &[]);
}

#[test]
fn the_lease_of_an_earlier_node_of_the_same_name_is_waited_for() {
    let mut former = lease(ME, 90, 10);
    former.owner = Some("earlier".to_owned());
    check(
        &asks(60).under(former.clone()),
        &["tell waiting", "again 5"],
    );
    check(&asks(None).cordoned().under(former), &[]);
}

#[test]
fn an_unreadable_value_changes_nothing() {
    for value in [
        "",
        "0",
        "-5",
        "+5",
        "1.5",
        "1h",
        "0x10",
        " 60",
        "060",
        "1234567890",
    ] {
        let mut given = asks(None).cordoned().under(lease(ME, 90, 10));
        given.node.as_mut().unwrap().request = Request::of(Some(value));
        let reason = check(&given, &[]);
        assert_eq!(reason, Reason::Unreadable(value.to_owned()));
    }
    assert_eq!(Request::of(Some("999999999")), Request::Window(999_999_999));
}

#[test]
fn a_second_node_waits_while_as_many_as_may_are_in_maintenance() {
    let mut given = asks(60);
    given.others = vec!["k8s-1".to_owned()];
    let reason = check(&given, &["tell waiting", "again 30"]);
    assert_eq!(
        reason.to_string(),
        "1 of 1 Kubernetes nodes are in maintenance: k8s-1 (--max-nodes-in-maintenance 1)"
    );
    // A maintenance that has begun continues.
    let begun = given.under(lease(ME, 90, 1));
    check(&begun, &["Cordon (active) until 89", "again 0"]);
}

#[test]
fn a_node_with_pods_of_a_full_window_waits() {
    let mut given = asks(60).under(lease(ME, 0, 500));
    given.full_windows = ["a", "b", "c", "d"]
        .map(|form| format!("shop/{form}"))
        .to_vec();
    let reason = check(&given, &["tell waiting", "again 30"]);
    assert_eq!(
        reason.to_string(),
        "pods on this Kubernetes node belong to forms whose window is full: shop/a, shop/b, shop/c and 1 more"
    );
}

#[test]
fn a_lease_is_read_as_it_is_written() {
    let node = asks(60).node.unwrap();
    for schedulable in [true, false] {
        let node = KubernetesNode {
            unschedulable: !schedulable,
            ..node.clone()
        };
        let mut object =
            Lease::creation(ME, &node, Times::from(now(), 60)).object("lynq-system", "k8s-3");
        object["metadata"]["resourceVersion"] = "9".into();
        let read = Lease::of(&object);
        let expected = Lease {
            resource_version: "9".to_owned(),
            transitions: 1,
            was_schedulable: schedulable,
            ..lease(ME, 90, 0)
        };
        assert_eq!(read, expected);
    }
}

#[test]
fn the_evicted_tenants_are_of_one_maintenance() {
    let tenants = ["shop/a-web", "shop/b-web"].map(str::to_owned);
    let all = BTreeSet::from(tenants.clone());
    let read = |write: &LeaseWrite, before: &Lease| {
        let object = write.object("lynq-system", "k8s-3");
        match object["metadata"]["annotations"].get("lynq.sh/evicted-tenants") {
            Some(_) => Lease::of(&object).tenants,
            None => before.tenants.clone(),
        }
    };
    let first = lease(ME, 90, 1);
    let write = first.with_tenants(&all).unwrap();
    assert_eq!(
        (read(&write, &first), write.over.as_deref()),
        (all.clone(), Some("4"))
    );
    let later = Lease {
        tenants: all.clone(),
        ..first
    };
    assert_eq!(
        later.with_tenants(&BTreeSet::from([tenants[0].clone()])),
        None
    );
    assert_eq!(
        read(&later.reset(now()), &later),
        all,
        "they are still excused for a while"
    );
    for (duration, age) in [(0, 500), (90, 10)] {
        let before = Lease {
            tenants: all.clone(),
            ..lease(if duration == 0 { ME } else { "" }, duration, age)
        };
        let step = step(&policy(), &asks(60).under(before.clone()), now());
        let Effect::Lease(write) = &step.effects[0] else {
            panic!("{step:?}");
        };
        assert!(read(write, &before).is_empty(), "a new maintenance");
    }
}

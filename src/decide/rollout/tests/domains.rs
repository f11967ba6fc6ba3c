//! Cases for domains: nodes that share something that can fail.

use super::*;
use crate::api::policy::{Domain, SkewCounts};

/// A fleet whose node `i` is in the domain `domains[i]`, or in none (`-`), with a window for each of them.
fn sharded(states: &str, max_skew: u32, domains: &str, of_domain: u32) -> Snapshot {
    let mut snapshot = fleet(states, max_skew);
    share(&mut snapshot, domains, of_domain);
    snapshot
}

fn share(snapshot: &mut Snapshot, domains: &str, of_domain: u32) {
    snapshot.forms.get_mut("web").unwrap().policy.domains = vec![Domain {
        label: None,
        variable: Some("shard".into()),
        max_skew: Skew::Count(of_domain),
    }];
    for (i, domain) in domains.chars().enumerate() {
        if let Some(node) = snapshot.nodes.get_mut(&format!("n{i}")) {
            node.domains = vec![domain.to_string().replace('-', "")];
        }
    }
}

#[test]
fn a_domain_has_a_window_of_its_own() {
    for (name, states, skew, domains, slots, expected) in [
        ("one of each", "AAAA", 4, "aabb", vec![], vec!["n0", "n2"]),
        (
            "the form's window is narrower",
            "AAAA",
            1,
            "aabb",
            vec![],
            vec!["n0"],
        ),
        (
            "without maxSkew",
            "AAAA",
            0,
            "aabb",
            vec![],
            vec!["n0", "n2"],
        ),
        (
            "who is in no domain waits for none",
            "AAAA",
            4,
            "-a-a",
            vec![],
            vec!["n0", "n1", "n2"],
        ),
        (
            "what is broken fills its domain alone",
            "xAA",
            4,
            "aab",
            vec![],
            vec!["n2"],
        ),
        (
            "its correction goes",
            "XAA",
            4,
            "aab",
            vec![],
            vec!["n0", "n2"],
        ),
        ("a slot is out", "yAA", 4, "aab", vec![0], vec!["n2"]),
    ] {
        let mut snapshot = sharded(states, skew, domains, 1);
        snapshot.slots = slots.into_iter().map(|i| slot(i, "99")).collect();
        let plan = plan(&snapshot, at(1));
        assert_eq!(released(&plan), expected, "{name}");
    }
}

#[test]
fn who_waits_for_a_domain_says_for_which() {
    let plan = plan(&sharded("xAA", 4, "aab", 1), at(1));
    let reason = &plan.waiting["n1"];
    assert_eq!(reason.code(), "DomainFull");
    let said = reason.to_string();
    assert!(
        said.starts_with("the window of 1 for nodes with shard \"a\" is full; not ready: n0"),
        "{said}"
    );
}

/// A label that is mistyped protects nothing.
#[test]
fn the_status_says_who_is_in_no_domain() {
    for (domains, expected) in [
        (
            "a--",
            Some(
                "2 of 3 nodes have no value of the variable shard, so that rollout.domains does not limit them: n1 is one",
            ),
        ),
        ("aab", None),
    ] {
        let plan = plan(&sharded("yAA", 4, domains, 1), at(1));
        let said = &plan.forms["web"].rollout.message;
        let (_, said) = said.split_once("; ").unzip();
        assert_eq!(
            said.filter(|said| said.contains("domain")),
            expected,
            "{domains}"
        );
    }
}

/// Its domain is unknown.
#[test]
fn the_slot_of_a_node_that_is_gone_fills_each_domain() {
    let mut snapshot = sharded("yAA", 4, "aab", 1);
    snapshot.slots = vec![slot(0, "99")];
    snapshot.nodes.remove("n0");
    assert!(released(&plan(&snapshot, at(1))).is_empty());
    snapshot.confirmed.insert(Confirmation::Gone {
        uid: "uid-0".into(),
    });
    assert_eq!(released(&plan(&snapshot, at(1))), ["n1", "n2"]);
}

#[test]
fn repairs_have_places_of_their_own_where_only_releases_count() {
    let mut snapshot = sharded("xxAX", 4, "aaaa", 1);
    let form = snapshot.forms.get_mut("web").unwrap();
    form.policy.skew_counts = SkewCounts::Released;
    assert_eq!(released(&plan(&snapshot, at(1))), ["n3", "n2"]);
}

proptest! {
    /// Whatever the fleet: neither the slots nor the non-ready nodes of a domain outgrow its window because of a plan.
    #[test]
    fn no_plan_outgrows_a_domain(mut snapshot in any_fleet(), domains in "[ab-]{12}", width in 1..3u32) {
        share(&mut snapshot, &domains, width);
        let plan = plan(&snapshot, at(1));
        let slots = plan.ledger.as_ref().unwrap_or(&snapshot.slots);
        for domain in ["a", "b"] {
            let is_in = |name: &str| snapshot.nodes[name].domains[0] == domain;
            let has_slot = |slots: &[Slot], name: &str| slots.iter().any(|slot| slot.node == name);
            let with_slots = slots.iter().filter(|slot| is_in(&slot.node)).count();
            let taken = slots.iter().any(|slot| is_in(&slot.node) && !has_slot(&snapshot.slots, &slot.node));
            prop_assert!(!taken || with_slots <= width as usize, "{} slots in {}", with_slots, domain);
            let goes = |release: &&Release| release.way == Way::Slot && is_in(&release.node);
            let healthy = plan.releases.iter().filter(goes).any(|release| !snapshot.nodes[&release.node].non_ready());
            let busy = |(name, node): &(&Arc<str>, &Node)| is_in(name) && (node.non_ready() || has_slot(slots, name));
            let busy = snapshot.nodes.iter().filter(busy).count();
            prop_assert!(!healthy || busy <= width as usize, "{} busy in {}", busy, domain);
        }
    }
}

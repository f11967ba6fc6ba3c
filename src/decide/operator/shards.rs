//! Which hub is in which shard, and which replica leads which shard.
//!
//! The shard of a hub follows from its name alone, so that all replicas agree on it without talking to each other. Like the election,
//! this only divides the work: while two replicas work on one hub, the ledger keeps its window.

use sha2::{Digest, Sha256};

/// The shard of a hub, or of a StatefulSet, by rendezvous hashing (Thaler and Ravishankar, 1998): the shard with the largest hash
/// of both names. With one shard more, only what the new shard gets moves.
pub fn shard_of(namespace: &str, name: &str, shards: usize) -> usize {
    let weight = |shard: &usize| {
        let mut digest = Sha256::new();
        digest.update((*shard as u64).to_be_bytes());
        digest.update(namespace);
        digest.update("/");
        digest.update(name);
        digest.finalize()
    };
    match shards {
        0 | 1 => 0,
        _ => (0..shards).max_by_key(weight).unwrap_or_default(),
    }
}

/// What a replica sees of the lease of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardLease {
    /// The replica that leads the shard; empty where any replica may take it.
    pub holder: String,
    /// The replica that asks the holder for it; empty if none does.
    pub wanted_by: String,
}

/// What a replica does about the division of the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nobody leads this shard.
    Take(usize),
    /// Ask its holder, which leads at least 2 shards more, to hand this one over.
    Ask(usize),
    /// Finish the work on this shard, and name the replica that asked for it as the next holder.
    HandOver { shard: usize, to: String },
}

/// `leases`: of all shards, in their order. None: nothing is to be done.
pub fn act(me: &str, leases: &[ShardLease]) -> Option<Act> {
    if let Some(free) = leases.iter().position(|lease| lease.holder.is_empty()) {
        return Some(Act::Take(free));
    }
    let held = |who: &str| leases.iter().filter(|lease| lease.holder == who).count();
    // With fewer than 2 more, the two would only change places.
    let has_more = |one: &str, other: &str| held(one) >= held(other) + 2;
    let is_asked = |lease: &&ShardLease| !lease.wanted_by.is_empty();
    let mut all = leases.iter().enumerate();
    if let Some((shard, lease)) = all
        .find(|(_, lease)| lease.holder == me && is_asked(lease) && has_more(me, &lease.wanted_by))
    {
        let to = lease.wanted_by.clone();
        return Some(Act::HandOver { shard, to });
    }
    let richest = leases.iter().max_by_key(|lease| held(&lease.holder))?;
    let of_richest = || leases.iter().filter(|lease| lease.holder == richest.holder);
    if !has_more(&richest.holder, me) || of_richest().any(|lease| is_asked(&lease)) {
        return None;
    }
    let last = leases
        .iter()
        .rposition(|lease| lease.holder == richest.holder)?;
    Some(Act::Ask(last))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn hubs_are_divided_evenly_and_one_shard_more_moves_only_what_it_gets() {
        let hubs: Vec<String> = (0..3_000).map(|i| format!("hub-{i}")).collect();
        let of = |shards| move |hub: &String| shard_of("shop", hub, shards);
        let mut counts = BTreeMap::new();
        for hub in &hubs {
            *counts.entry(of(3)(hub)).or_insert(0) += 1;
            let (before, after) = (of(3)(hub), of(4)(hub));
            assert!(after == before || after == 3, "{hub}: {before} to {after}");
            assert_eq!(of(1)(hub), 0);
        }
        assert!(
            counts.values().all(|count| (900..1_100).contains(count)),
            "{counts:?}"
        );
    }

    /// Each as holder, or holder<asker; - for nobody.
    fn leases(text: &str) -> Vec<ShardLease> {
        let lease = |text: &str| {
            let (holder, wanted_by) = text.split_once('<').unwrap_or((text, ""));
            ShardLease {
                holder: holder.trim_matches('-').to_owned(),
                wanted_by: wanted_by.to_owned(),
            }
        };
        text.split(' ').map(lease).collect()
    }

    #[test]
    fn each_replica_gets_its_share() {
        let hand_over = |shard, to: &str| {
            let to = to.to_owned();
            Some(Act::HandOver { shard, to })
        };
        for (case, seen, expected) in [
            ("the only lease is free", "-", Some(Act::Take(0))),
            ("another leads it", "b", None),
            ("the second is free", "b - -", Some(Act::Take(1))),
            ("b has 3 more", "b b b", Some(Act::Ask(2))),
            ("somebody asks b already", "b<c b b", None),
            ("b has 1 more", "a b b", None),
            ("b has 2 more", "a b b b", Some(Act::Ask(3))),
            ("b asks, and has none", "a a<b a", hand_over(1, "b")),
            ("b asks, and has 1 less", "a a<b b", None),
            (
                "b asks, and nobody leads one",
                "a a<b -",
                Some(Act::Take(2)),
            ),
        ] {
            assert_eq!(act("a", &leases(seen)), expected, "{case}");
        }
    }

    #[test]
    fn the_division_comes_to_rest_with_at_most_one_shard_between_two_replicas() {
        for shards in 1..8 {
            let mut leases = vec![ShardLease::default(); shards];
            // The replicas come one after the other, the second one goes again.
            for (replicas, gone) in [(1, ""), (2, ""), (4, ""), (4, "r1")] {
                for lease in leases.iter_mut().filter(|lease| lease.holder == gone) {
                    *lease = ShardLease::default();
                }
                let names: Vec<String> = (0..replicas).map(|r| format!("r{r}")).collect();
                let alive = || names.iter().filter(|name| *name != gone);
                let mut turns = 0;
                while let Some((who, act)) =
                    alive().find_map(|name| Some((name, act(name, &leases)?)))
                {
                    match act {
                        Act::Take(shard) => leases[shard].holder.clone_from(who),
                        Act::Ask(shard) => leases[shard].wanted_by.clone_from(who),
                        Act::HandOver { shard, to } => {
                            leases[shard] = ShardLease {
                                holder: to,
                                wanted_by: String::new(),
                            }
                        }
                    }
                    turns += 1;
                    assert!(turns < 4 * shards + 4, "{shards} shards: {leases:?}");
                }
                let counts =
                    alive().map(|name| leases.iter().filter(|lease| lease.holder == *name).count());
                let counts: Vec<usize> = counts.collect();
                let (least, most) = (counts.iter().min(), counts.iter().max());
                assert!(most.unwrap() - least.unwrap() <= 1, "{counts:?}");
            }
        }
    }
}

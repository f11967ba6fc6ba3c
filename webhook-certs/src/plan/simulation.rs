//! Whole rotations of two replicas, played second by second against an API server that lags.

use super::tests::{LIFETIMES, at, ca, gate, id};
use super::*;

/// A simulated replica: it acts on the state that it last observed.
struct Replica {
    state: State,
    leaf: Option<LeafFacts>,
    looks_every: i64,
    seen: Option<(CaSet<CaFacts>, u64, BTreeSet<CaId>, u64)>,
}

/// Three lifetimes, second by second, with one configuration and an API server whose view of the bundle is up to a settle
/// time old. One replica looks each second, the other each 17 seconds, and acts on what it saw then.
#[test]
fn no_call_fails_in_rotations() {
    let mut secret = CaSet::new(ca(1, 0));
    let (mut secret_version, mut bundle_version) = (1_u64, 1_u64);
    let mut written = BTreeSet::from([id(1)]);
    let mut history: Vec<BTreeSet<CaId>> = vec![];
    let mut issued = 1;
    let replica = |looks_every| Replica {
        state: State::default(),
        leaf: None,
        looks_every,
        seen: None,
    };
    let mut replicas = [replica(1), replica(17)];
    let (mut promotions, mut drops) = (0, 0);

    for now in 0..2_700 {
        for replica in &mut replicas {
            if now % replica.looks_every == 0 {
                replica.seen = Some((secret, secret_version, written.clone(), bundle_version));
            }
            let Some((set_seen, secret_seen, bundle_seen, bundle_seen_version)) =
                replica.seen.clone()
            else {
                panic!("every replica looks at second 0");
            };
            let observed = Observed {
                secret: SecretView::Good(set_seen),
                configurations: BTreeMap::from([(
                    gate(),
                    ConfigurationView::Present(vec![bundle_seen]),
                )]),
                leaf: replica.leaf,
            };
            let done = step(&replica.state, &observed, &LIFETIMES, at(now));
            replica.state = done.state;
            for effect in done.effects {
                match effect {
                    Effect::MintLeaf(validity) => {
                        replica.leaf = Some(LeafFacts {
                            ca: set_seen.active.id,
                            validity,
                        });
                    }
                    Effect::WriteBundle(_) if bundle_seen_version == bundle_version => {
                        written = set_seen.iter().map(|ca| ca.id).collect();
                        bundle_version += 1;
                    }
                    Effect::WriteSecret(change) if secret_seen == secret_version => {
                        promotions += u32::from(change == Change::Promote);
                        drops += u32::from(change == Change::DropRetired);
                        let fresh = || {
                            issued += 1;
                            Ok::<_, ()>(ca(issued, now))
                        };
                        secret = CaSet::changed(Some(secret), change, fresh)
                            .unwrap()
                            .unwrap();
                        secret_version += 1;
                    }
                    Effect::WriteBundle(_) | Effect::WriteSecret(_) => {}
                }
            }
        }
        history.push(written.clone());
        let oldest = history
            .len()
            .saturating_sub(LIFETIMES.settle.as_secs() as usize);
        for replica in &replicas {
            let leaf = replica.leaf.expect("minted in the first second");
            assert!(
                at(now) < leaf.validity.not_after,
                "at {now} a replica serves an expired certificate"
            );
            for (age, bundle) in history[oldest..].iter().rev().enumerate() {
                assert!(
                    bundle.contains(&leaf.ca),
                    "at {now} an API server {age} s behind, with {bundle:?}, meets a certificate of {:?}",
                    leaf.ca
                );
            }
        }
    }
    assert!(
        promotions >= 3 && drops >= 3,
        "{promotions} promotions and {drops} drops were played"
    );
}

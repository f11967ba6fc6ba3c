//! Cases of the protocol, one situation each.

use super::*;

use std::time::Duration;

use crate::status::ConfigurationKind;

pub(super) const LIFETIMES: Lifetimes = Lifetimes {
    ca: Duration::from_secs(900),
    leaf: Duration::from_secs(90),
    settle: Duration::from_secs(20),
    clock_skew: Duration::from_secs(10),
};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn id(number: u8) -> CaId {
    CaId([number; 32])
}

/// An authority issued at `second`.
pub(super) fn ca(number: u8, second: i64) -> CaFacts {
    CaFacts {
        id: id(number),
        validity: LIFETIMES.ca_validity(at(second)),
    }
}

/// A certificate minted from `ca` at `second`.
fn leaf(ca: CaFacts, second: i64) -> LeafFacts {
    LeafFacts {
        ca: ca.id,
        validity: LIFETIMES.leaf_validity(ca.validity, at(second)),
    }
}

fn set(active: CaFacts, next: Option<CaFacts>, retired: Option<CaFacts>) -> CaSet<CaFacts> {
    CaSet {
        active,
        next,
        retired,
    }
}

pub(super) fn gate() -> ConfigurationRef {
    ConfigurationRef {
        kind: ConfigurationKind::Mutating,
        name: "gate".to_owned(),
    }
}

fn checks() -> ConfigurationRef {
    ConfigurationRef {
        kind: ConfigurationKind::Validating,
        name: "checks".to_owned(),
    }
}

/// Two entries with the same bundle.
fn bundle(cas: &[u8]) -> ConfigurationView {
    let bundle: BTreeSet<CaId> = cas.iter().map(|number| id(*number)).collect();
    ConfigurationView::Present(vec![bundle.clone(), bundle])
}

struct Case {
    name: &'static str,
    kept: Option<CaSet<CaFacts>>,
    settling: Option<(CaId, Timestamp)>,
    secret: SecretView,
    mutating: ConfigurationView,
    validating: ConfigurationView,
    leaf: Option<LeafFacts>,
    now: i64,
    effects: Vec<Effect>,
    settling_after: Option<(CaId, Timestamp)>,
    reason: Reason,
}

/// A settled world at second 1: one authority, issued at 0, trusted everywhere and served. Cases say how they differ.
fn settled() -> Case {
    Case {
        name: "settled",
        kept: None,
        settling: None,
        secret: SecretView::Good(set(ca(1, 0), None, None)),
        mutating: bundle(&[1]),
        validating: bundle(&[1]),
        leaf: Some(leaf(ca(1, 0), 0)),
        now: 1,
        effects: vec![],
        settling_after: None,
        reason: Reason::Ready,
    }
}

fn mint(ca: CaFacts, second: i64) -> Effect {
    Effect::MintLeaf(leaf(ca, second).validity)
}

fn check(cases: Vec<Case>) {
    for case in cases {
        let observed = Observed {
            secret: case.secret,
            configurations: BTreeMap::from([(gate(), case.mutating), (checks(), case.validating)]),
            leaf: case.leaf,
        };
        let state = State {
            kept: case.kept,
            settling: case.settling,
        };
        let done = step(&state, &observed, &LIFETIMES, at(case.now));
        assert_eq!(done.effects, case.effects, "effects of `{}`", case.name);
        assert_eq!(done.reason, case.reason, "reason of `{}`", case.name);
        assert_eq!(
            done.state.settling, case.settling_after,
            "settling of `{}`",
            case.name
        );
        let again = step(&done.state, &observed, &LIFETIMES, at(case.now));
        assert_eq!(again, done, "`{}` repeated without its effects", case.name);
    }
}

#[test]
fn start() {
    let fresh = || Case {
        leaf: None,
        mutating: bundle(&[]),
        validating: bundle(&[]),
        ..settled()
    };
    check(vec![
        Case {
            name: "nothing to do when settled",
            ..settled()
        },
        Case {
            name: "nothing is decided before the Secret was read",
            secret: SecretView::Unread,
            reason: Reason::SecretUnread,
            ..fresh()
        },
        Case {
            name: "no Secret: issue an authority",
            secret: SecretView::Absent,
            effects: vec![Effect::WriteSecret(Change::Issue)],
            reason: Reason::NoCertificate,
            ..fresh()
        },
        Case {
            name: "another replica's Secret: use it",
            effects: vec![
                mint(ca(1, 0), 1),
                Effect::WriteBundle(gate()),
                Effect::WriteBundle(checks()),
            ],
            reason: Reason::NoCertificate,
            ..fresh()
        },
        Case {
            name: "another replica's Secret in the middle of a rotation: serve from `active`",
            secret: SecretView::Good(set(ca(1, 0), Some(ca(2, 600)), None)),
            mutating: bundle(&[1, 2]),
            validating: bundle(&[1]),
            now: 601,
            effects: vec![mint(ca(1, 0), 601), Effect::WriteBundle(checks())],
            reason: Reason::NoCertificate,
            ..fresh()
        },
        Case {
            name: "an unusable Secret and nothing remembered: nothing can be done, and that is said",
            secret: SecretView::Bad("torn".to_owned()),
            reason: Reason::SecretUnusable("torn".to_owned()),
            ..fresh()
        },
        Case {
            name: "everything in the Secret has expired: start over",
            secret: SecretView::Good(set(ca(1, -900), None, Some(ca(3, -1_500)))),
            mutating: bundle(&[1, 3]),
            validating: bundle(&[1, 3]),
            effects: vec![Effect::WriteSecret(Change::Issue)],
            reason: Reason::NoCertificate,
            ..fresh()
        },
    ]);
}

#[test]
fn bundles() {
    check(vec![
        Case {
            name: "a wiped bundle is written again",
            validating: bundle(&[]),
            effects: vec![Effect::WriteBundle(checks())],
            reason: Reason::BundleLacksCa(checks()),
            ..settled()
        },
        Case {
            name: "one entry of several was wiped",
            mutating: ConfigurationView::Present(vec![BTreeSet::from([id(1)]), BTreeSet::new()]),
            effects: vec![Effect::WriteBundle(gate())],
            reason: Reason::BundleLacksCa(gate()),
            ..settled()
        },
        Case {
            name: "an authority that is not ours is taken out, without being unready",
            mutating: bundle(&[1, 9]),
            effects: vec![Effect::WriteBundle(gate())],
            ..settled()
        },
        Case {
            name: "a configuration that is not there is waited for",
            mutating: ConfigurationView::Absent,
            reason: Reason::ConfigurationMissing(gate()),
            ..settled()
        },
        Case {
            name: "a configuration that could not be read is left alone",
            validating: ConfigurationView::Unread,
            reason: Reason::ConfigurationUnread(checks()),
            ..settled()
        },
        Case {
            name: "a configuration without webhooks needs no bundle",
            mutating: ConfigurationView::Present(vec![]),
            ..settled()
        },
    ]);
}

#[test]
fn rotation_step_by_step() {
    let late = || Case {
        leaf: Some(leaf(ca(1, 0), 600)),
        now: 600,
        ..settled()
    };
    let introduced = || Case {
        secret: SecretView::Good(set(ca(1, 0), Some(ca(2, 600)), None)),
        mutating: bundle(&[1, 2]),
        validating: bundle(&[1, 2]),
        ..late()
    };
    let since = Some((id(2), at(600)));
    check(vec![
        Case {
            name: "with more than a third left nothing begins",
            now: 599,
            leaf: Some(leaf(ca(1, 0), 598)),
            ..settled()
        },
        Case {
            name: "with a third left the next authority is introduced",
            effects: vec![Effect::WriteSecret(Change::Introduce)],
            ..late()
        },
        Case {
            name: "the next authority goes into every bundle and signs nothing",
            mutating: bundle(&[1]),
            validating: bundle(&[1]),
            effects: vec![Effect::WriteBundle(gate()), Effect::WriteBundle(checks())],
            ..introduced()
        },
        Case {
            name: "settling begins when every bundle was read back with it",
            settling_after: since,
            ..introduced()
        },
        Case {
            name: "promotion waits for the settle time",
            settling: since,
            now: 619,
            settling_after: since,
            ..introduced()
        },
        Case {
            name: "promotion after the settle time",
            settling: since,
            now: 620,
            settling_after: since,
            effects: vec![Effect::WriteSecret(Change::Promote)],
            ..introduced()
        },
        Case {
            name: "a bundle that lost it in between starts the settle time anew",
            settling: since,
            now: 620,
            validating: bundle(&[1]),
            effects: vec![Effect::WriteBundle(checks())],
            ..introduced()
        },
        Case {
            name: "a configuration that is missing holds promotion up",
            settling: since,
            now: 620,
            validating: ConfigurationView::Absent,
            reason: Reason::ConfigurationMissing(checks()),
            ..introduced()
        },
        Case {
            name: "settling of another authority does not count",
            settling: Some((id(3), at(500))),
            settling_after: since,
            ..introduced()
        },
        Case {
            name: "a clock that was set back starts the settle time anew",
            settling: Some((id(2), at(700))),
            settling_after: since,
            ..introduced()
        },
        Case {
            name: "a next authority that has expired meanwhile is replaced, not promoted",
            secret: SecretView::Good(set(ca(1, 0), Some(ca(2, -290)), None)),
            settling: since,
            now: 620,
            settling_after: since,
            effects: vec![Effect::WriteSecret(Change::Introduce)],
            ..introduced()
        },
        Case {
            name: "a retired authority that is still trusted holds promotion up",
            secret: SecretView::Good(set(ca(1, 0), Some(ca(2, 600)), Some(ca(3, -250)))),
            mutating: bundle(&[1, 2, 3]),
            validating: bundle(&[1, 2, 3]),
            settling: since,
            now: 620,
            settling_after: since,
            ..introduced()
        },
    ]);
}

#[test]
fn after_promotion() {
    let promoted = || Case {
        secret: SecretView::Good(set(ca(2, 600), None, Some(ca(1, 0)))),
        mutating: bundle(&[1, 2]),
        validating: bundle(&[1, 2]),
        leaf: Some(leaf(ca(2, 600), 860)),
        now: 880,
        ..settled()
    };
    check(vec![
        Case {
            name: "the serving certificate moves to the promoted authority; the old one is still trusted",
            leaf: Some(leaf(ca(1, 0), 860)),
            effects: vec![mint(ca(2, 600), 880)],
            ..promoted()
        },
        Case {
            name: "the bundles are right as they are, whatever the order",
            ..promoted()
        },
        Case {
            name: "an expired authority is kept for the clock skew",
            now: 909,
            ..promoted()
        },
        Case {
            name: "then the expired authority is dropped",
            now: 910,
            effects: vec![Effect::WriteSecret(Change::DropRetired)],
            ..promoted()
        },
        Case {
            name: "and leaves the bundles",
            secret: SecretView::Good(set(ca(2, 600), None, None)),
            now: 911,
            effects: vec![Effect::WriteBundle(gate()), Effect::WriteBundle(checks())],
            ..promoted()
        },
    ]);
}

#[test]
fn serving_certificate() {
    let ending = |now| Case {
        secret: SecretView::Good(set(ca(1, 0), Some(ca(2, 600)), None)),
        mutating: bundle(&[1, 2]),
        validating: ConfigurationView::Unread,
        now,
        reason: Reason::ConfigurationUnread(checks()),
        ..settled()
    };
    check(vec![
        Case {
            name: "not renewed while more than a third is left",
            now: 59,
            ..settled()
        },
        Case {
            name: "renewed with a third left",
            now: 60,
            effects: vec![mint(ca(1, 0), 60)],
            ..settled()
        },
        Case {
            name: "expired: renewed, and unready until then",
            now: 90,
            effects: vec![mint(ca(1, 0), 90)],
            reason: Reason::LeafExpired(at(90)),
            ..settled()
        },
        Case {
            name: "never valid longer than its authority",
            leaf: Some(leaf(ca(1, 0), 790)),
            effects: vec![Effect::MintLeaf(Validity {
                not_before: at(840),
                not_after: at(900),
            })],
            ..ending(850)
        },
        Case {
            name: "not made anew when that would not make it valid longer",
            leaf: Some(leaf(ca(1, 0), 850)),
            ..ending(899)
        },
        Case {
            name: "a clock that was set back: made anew to be valid now",
            leaf: Some(leaf(ca(1, 0), 60)),
            now: 20,
            effects: vec![mint(ca(1, 0), 20)],
            reason: Reason::LeafNotYetValid(at(50)),
            ..settled()
        },
        Case {
            name: "a clock before the authority's time: nothing would help, and that is said",
            now: -11,
            reason: Reason::LeafNotYetValid(at(-10)),
            ..settled()
        },
        Case {
            name: "authority and certificate expired, next trusted: promoted at once",
            leaf: Some(leaf(ca(1, 0), 850)),
            effects: vec![Effect::WriteSecret(Change::Promote)],
            reason: Reason::LeafExpired(at(900)),
            ..ending(900)
        },
    ]);
}

#[test]
fn secret_lost_or_damaged() {
    let kept = Some(set(ca(1, 0), None, None));
    let bad = || Case {
        kept,
        secret: SecretView::Bad("torn".to_owned()),
        ..settled()
    };
    check(vec![
        Case {
            name: "a bad Secret changes nothing that works",
            ..bad()
        },
        Case {
            name: "a bad Secret: the certificate is renewed from what is remembered",
            now: 60,
            effects: vec![mint(ca(1, 0), 60)],
            ..bad()
        },
        Case {
            name: "a bad Secret: a wiped bundle is written from what is remembered",
            mutating: bundle(&[]),
            effects: vec![Effect::WriteBundle(gate())],
            reason: Reason::BundleLacksCa(gate()),
            ..bad()
        },
        Case {
            name: "a bad Secret: nothing is taken out of a bundle",
            mutating: bundle(&[1, 2]),
            ..bad()
        },
        Case {
            name: "a bad Secret: no rotation, and the end is told",
            now: 900,
            leaf: Some(leaf(ca(1, 0), 850)),
            reason: Reason::LeafExpired(at(900)),
            ..bad()
        },
        Case {
            name: "a deleted Secret is put back, so that nobody notices",
            kept,
            secret: SecretView::Absent,
            effects: vec![Effect::WriteSecret(Change::Restore)],
            ..settled()
        },
        Case {
            name: "a deleted Secret whose authority has expired is not put back",
            kept,
            secret: SecretView::Absent,
            now: 900,
            leaf: None,
            effects: vec![Effect::WriteSecret(Change::Issue)],
            reason: Reason::NoCertificate,
            ..settled()
        },
        Case {
            name: "a Secret replaced by another one is followed",
            kept,
            secret: SecretView::Good(set(ca(7, 0), None, None)),
            effects: vec![
                mint(ca(7, 0), 1),
                Effect::WriteBundle(gate()),
                Effect::WriteBundle(checks()),
            ],
            ..settled()
        },
    ]);
}

#[test]
fn changes_of_the_set() {
    let fresh = || Ok::<_, ()>(9);
    let cases = [
        (Change::Issue, None, Some(CaSet::new(9))),
        (
            Change::Restore,
            Some(CaSet {
                active: 1,
                next: Some(2),
                retired: None,
            }),
            Some(CaSet {
                active: 1,
                next: Some(2),
                retired: None,
            }),
        ),
        (
            Change::Introduce,
            Some(CaSet {
                active: 1,
                next: None,
                retired: Some(3),
            }),
            Some(CaSet {
                active: 1,
                next: Some(9),
                retired: Some(3),
            }),
        ),
        (
            Change::Promote,
            Some(CaSet {
                active: 1,
                next: Some(2),
                retired: None,
            }),
            Some(CaSet {
                active: 2,
                next: None,
                retired: Some(1),
            }),
        ),
        (Change::Promote, Some(CaSet::new(1)), None),
        (
            Change::DropRetired,
            Some(CaSet {
                active: 2,
                next: Some(4),
                retired: Some(1),
            }),
            Some(CaSet {
                active: 2,
                next: Some(4),
                retired: None,
            }),
        ),
        (Change::Restore, None, None),
    ];
    for (change, before, after) in cases {
        assert_eq!(
            CaSet::changed(before, change, fresh),
            Ok(after),
            "{change:?} of {before:?}"
        );
    }
}

//! Round trips through the Secret, invalid Secret data, and certificates as a TLS client verifies them.

use super::*;

use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{CertificateError, RootCertStore};

use crate::lifetimes::Lifetimes;

const ISSUED: i64 = 1_800_000_000;
const LIFETIMES: Lifetimes = Lifetimes {
    ca: Duration::from_secs(900),
    leaf: Duration::from_secs(90),
    settle: Duration::from_secs(20),
    clock_skew: Duration::from_secs(10),
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn authority() -> Authority {
    Authority::issue(LIFETIMES.ca_validity(at(ISSUED))).unwrap()
}

fn names() -> Names {
    Names {
        dns: vec!["gate.system.svc".to_owned()],
        ip: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
    }
}

fn data_of(set: &CaSet<Authority>) -> BTreeMap<String, ByteString> {
    let mut data = BTreeMap::new();
    set.write_secret_data(&mut data);
    data
}

fn read(data: &BTreeMap<String, ByteString>) -> CaSet<Authority> {
    CaSet::from_secret_data(data)
        .unwrap()
        .expect("the data holds a set")
}

/// The result of a client that trusts `bundle` and verifies `leaf`.
fn judged(leaf: &Leaf, bundle: &[u8], name: &str, second: i64) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(second.try_into().unwrap()));
    let end_entity = leaf.certified_key.end_entity_cert().unwrap();
    verifier
        .verify_server_cert(end_entity, &[], &name, &[], now)
        .map(|_| ())
}

#[test]
fn an_issued_authority_is_valid_as_long_as_asked() {
    let expected = Validity {
        not_before: at(ISSUED - 10),
        not_after: at(ISSUED + 900),
    };
    assert_eq!(authority().facts.validity, expected);
    assert_ne!(
        authority().facts.id,
        authority().facts.id,
        "two authorities are told apart"
    );
}

#[test]
fn a_set_survives_the_secret() {
    let (one, two, three) = (authority(), authority(), authority());
    let cases = [
        (
            "first",
            CaSet::new(one.clone()),
            vec!["active.crt", "active.key"],
        ),
        (
            "introduced",
            CaSet {
                active: one.clone(),
                next: Some(two.clone()),
                retired: None,
            },
            vec!["active.crt", "active.key", "next.crt", "next.key"],
        ),
        (
            "all three, and no key of the retired one",
            CaSet {
                active: one,
                next: Some(two),
                retired: Some(three),
            },
            vec![
                "active.crt",
                "active.key",
                "next.crt",
                "next.key",
                "retired.crt",
            ],
        ),
    ];
    for (name, set, keys) in cases {
        let data = data_of(&set);
        assert_eq!(data.keys().collect::<Vec<_>>(), keys, "{name}");
        let back = read(&data);
        assert_eq!(back.facts(), set.facts(), "{name}");
        assert_eq!(
            back.bundle(),
            set.bundle(),
            "{name}: the same bytes on every replica"
        );
        assert_eq!(
            data_of(&back),
            data,
            "{name}: written again, nothing changes"
        );
        let ids: BTreeSet<CaId> = set.iter().map(|authority| authority.facts.id).collect();
        assert_eq!(
            bundle_ids(&set.bundle()),
            ids,
            "{name}: the bundle is the set"
        );
    }
}

#[test]
fn a_secret_without_our_entries_holds_no_set() {
    let foreign = BTreeMap::from([("tls.crt".to_owned(), ByteString(b"x".to_vec()))]);
    for data in [BTreeMap::new(), foreign] {
        assert!(
            CaSet::from_secret_data(&data).unwrap().is_none(),
            "{data:?}"
        );
    }
}

#[test]
fn writing_a_set_replaces_ours_and_leaves_the_rest() {
    let mut data = data_of(&CaSet {
        active: authority(),
        next: Some(authority()),
        retired: Some(authority()),
    });
    data.insert("note".to_owned(), ByteString(b"kept".to_vec()));
    let set = CaSet::new(authority());
    set.write_secret_data(&mut data);
    assert_eq!(
        data.keys().collect::<Vec<_>>(),
        ["active.crt", "active.key", "note"]
    );
    assert_eq!(read(&data).facts(), set.facts());
}

#[test]
fn a_damaged_secret_is_refused_by_the_name_of_the_entry() {
    type Damage = fn(&mut BTreeMap<String, ByteString>);
    fn put(data: &mut BTreeMap<String, ByteString>, entry: &str, content: &[u8]) {
        data.insert(entry.to_owned(), ByteString(content.to_vec()));
    }
    let cases: [(&str, Damage, SetError); 10] = [
        (
            "no certificate",
            |data| drop(data.remove("active.crt")),
            SetError::Missing("active.crt"),
        ),
        (
            "no key",
            |data| drop(data.remove("active.key")),
            SetError::Missing("active.key"),
        ),
        (
            "next without a key",
            |data| drop(data.remove("next.key")),
            SetError::Missing("next.key"),
        ),
        (
            "only a retired one",
            |data| data.retain(|entry, _| entry == "retired.crt"),
            SetError::Missing("active.crt"),
        ),
        (
            "text",
            |data| put(data, "active.crt", b"CANARY"),
            SetError::NotACertificate("active.crt"),
        ),
        (
            "bytes",
            |data| put(data, "next.crt", &[0xff, 0xfe]),
            SetError::NotACertificate("next.crt"),
        ),
        (
            "two certificates",
            |data| {
                let twice = [data["retired.crt"].0.as_slice(), &data["retired.crt"].0].concat();
                put(data, "retired.crt", &twice);
            },
            SetError::NotACertificate("retired.crt"),
        ),
        (
            "a key that is text",
            |data| put(data, "active.key", b"CANARY"),
            SetError::NotAKey("active.key"),
        ),
        (
            "the key of another",
            |data| {
                let other = data["next.key"].clone();
                data.insert("active.key".to_owned(), other);
            },
            SetError::KeyOfAnother {
                key: "active.key",
                crt: "active.crt",
            },
        ),
        (
            "a serving certificate in place of an authority",
            |data| {
                let validity = LIFETIMES.ca_validity(at(ISSUED));
                let key = KeyPair::generate().unwrap();
                let pem = params_for(validity)
                    .unwrap()
                    .self_signed(&key)
                    .unwrap()
                    .pem();
                put(data, "active.crt", pem.as_bytes());
                put(data, "active.key", key.serialize_pem().as_bytes());
            },
            SetError::NotAnAuthority("active.crt"),
        ),
    ];
    for (name, damage, expected) in cases {
        let mut data = data_of(&CaSet {
            active: authority(),
            next: Some(authority()),
            retired: Some(authority()),
        });
        damage(&mut data);
        let error = CaSet::from_secret_data(&data).expect_err(name);
        assert_eq!(error, expected, "{name}");
        assert!(
            !format!("{error} {error:?}").contains("CANARY"),
            "{name}: the message shows no content"
        );
    }
}

#[test]
fn debug_output_shows_no_key() {
    let authority = authority();
    let secret = data_of(&CaSet::new(authority.clone()))["active.key"].clone();
    let pem = String::from_utf8(secret.0).unwrap();
    let line = pem.lines().nth(1).expect("a PEM body");
    let shown = format!(
        "{authority:?} {:?}",
        authority.mint_leaf(&names(), LIFETIMES.ca_validity(at(ISSUED)))
    );
    assert!(!shown.contains(line), "{shown}");
    assert!(!shown.to_lowercase().contains("private"), "{shown}");
}

#[test]
fn a_serving_certificate_is_judged_by_name_time_and_authority() {
    let (one, two) = (authority(), authority());
    // Read it back first, so that the authority from the Secret signs.
    let one = read(&data_of(&CaSet::new(one))).active;
    let validity = Validity {
        not_before: at(ISSUED),
        not_after: at(ISSUED + 90),
    };
    let leaf = one.mint_leaf(&names(), validity).unwrap();
    assert_eq!(
        leaf.facts,
        LeafFacts {
            ca: one.facts.id,
            validity
        }
    );

    let own = CaSet::new(one.clone()).bundle();
    let rotating = CaSet {
        active: two.clone(),
        next: None,
        retired: Some(one),
    }
    .bundle();
    let foreign = CaSet::new(two).bundle();
    enum Fault {
        Name,
        Early,
        Late,
        Authority,
    }
    let cases = [
        (
            "by the name of the service",
            &own,
            "gate.system.svc",
            ISSUED + 1,
            None,
        ),
        ("by the IPv4 address", &own, "127.0.0.1", ISSUED + 1, None),
        ("by the IPv6 address", &own, "::1", ISSUED + 1, None),
        (
            "in a bundle with others",
            &rotating,
            "gate.system.svc",
            ISSUED + 1,
            None,
        ),
        ("first second", &own, "gate.system.svc", ISSUED, None),
        ("last second", &own, "gate.system.svc", ISSUED + 90, None),
        (
            "a second too early",
            &own,
            "gate.system.svc",
            ISSUED - 1,
            Some(Fault::Early),
        ),
        (
            "a second too late",
            &own,
            "gate.system.svc",
            ISSUED + 91,
            Some(Fault::Late),
        ),
        (
            "another name",
            &own,
            "gate.other.svc",
            ISSUED + 1,
            Some(Fault::Name),
        ),
        (
            "another address",
            &own,
            "127.0.0.2",
            ISSUED + 1,
            Some(Fault::Name),
        ),
        (
            "another authority",
            &foreign,
            "gate.system.svc",
            ISSUED + 1,
            Some(Fault::Authority),
        ),
    ];
    for (case, bundle, name, second, fault) in cases {
        let verdict = judged(&leaf, bundle, name, second);
        let as_expected = match fault {
            None => verdict.is_ok(),
            Some(Fault::Name) => matches!(
                verdict,
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidForNameContext { .. }
                ))
            ),
            Some(Fault::Early) => matches!(
                verdict,
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::NotValidYetContext { .. }
                ))
            ),
            Some(Fault::Late) => matches!(
                verdict,
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::ExpiredContext { .. }
                ))
            ),
            Some(Fault::Authority) => matches!(
                verdict,
                Err(rustls::Error::InvalidCertificate(
                    CertificateError::UnknownIssuer
                ))
            ),
        };
        assert!(as_expected, "{case}: {verdict:?}");
    }
}

#[test]
fn a_retired_authority_signs_nothing() {
    let data = data_of(&CaSet {
        active: authority(),
        next: None,
        retired: Some(authority()),
    });
    let retired = read(&data).retired.expect("there is one");
    let refused = retired.mint_leaf(&names(), LIFETIMES.ca_validity(at(ISSUED)));
    assert!(
        matches!(refused, Err(IssueError::NoKey(id)) if id == retired.facts.id),
        "{refused:?}"
    );
}

#[test]
fn a_bundle_that_is_not_clean_pem_counts_as_empty() {
    let good = CaSet::new(authority()).bundle();
    let torn = [
        good.as_slice(),
        b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
    ]
    .concat();
    for (name, bundle) in [
        ("empty", vec![]),
        ("text", b"text".to_vec()),
        ("a torn second one", torn),
    ] {
        assert_eq!(bundle_ids(&bundle), BTreeSet::new(), "{name}");
    }
}

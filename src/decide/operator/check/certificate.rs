//! The authority of the webhooks' certificates: how long it is valid, and whether the API server trusts it. Each replica has a
//! certificate of its own in memory, which no object shows.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use x509_parser::pem::Pem;

use crate::api::names;
use crate::decide::operator::check::{Finding, Observed, logs};

/// The authority that signs, in the Secret.
const ACTIVE: &str = "active.crt";
/// The operator replaces an authority when a third of its 365 days is left, so this few days are a fault.
const DAYS_MIN: i64 = 30;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority {
    der: Vec<u8>,
    ends: Timestamp,
}

/// `configurations`: of the webhooks. `namespace`: the operator's.
pub fn certificate(
    namespace: &str,
    secret: &Observed,
    configurations: &[Observed],
    now: Timestamp,
) -> Finding {
    let name = names::CERTIFICATE_SECRET;
    let object = format!("Secret {namespace}/{name}");
    let bundles = bundles(configurations);
    let active = match secret {
        Observed::Absent => {
            let said =
                "it is not there: the operator has not created the authority of its certificates";
            return Finding::failed(object, said, logs(namespace));
        }
        Observed::Denied(why) => return unread(object, why, &bundles, now),
        Observed::Object(secret) => {
            let active = authorities(&secret["data"][ACTIVE]);
            active.into_iter().next()
        }
    };
    let Some(active) = active else {
        let restart = format!(
            "Restore it. Or stop the operator, then kubectl delete secret -n {namespace} {name}, then start the operator"
        );
        return Finding::failed(object, format!("its {ACTIVE} is no certificate"), restart);
    };
    let strangers = bundles.iter().filter(|bundle| !bundle.contains(&active));
    let strangers = strangers.count();
    match days_left(&active, now) {
        _ if active.ends <= now => {
            let said = format!("its authority ended at {}", active.ends);
            Finding::failed(object, said, logs(namespace))
        }
        _ if strangers > 0 => {
            let said = format!(
                "the caBundles of {strangers} of {} webhooks lack its authority, so the API server cannot call them",
                bundles.len()
            );
            Finding::failed(object, said, logs(namespace))
        }
        days @ ..DAYS_MIN => {
            let said =
                format!("its authority ends in {days} days, and the operator has not replaced it");
            Finding::warning(object, said, logs(namespace))
        }
        days => {
            let said =
                format!("its authority ends in {days} days; the operator replaces it before");
            Finding::ok(object, said)
        }
    }
}

/// What the caBundles show without the Secret.
fn unread(object: String, why: &str, bundles: &[Vec<Authority>], now: Timestamp) -> Finding {
    let trusted = bundles.iter().flatten();
    let Some(last) = trusted.max_by_key(|authority| authority.ends) else {
        return Finding::unread(object, why);
    };
    let days = days_left(last, now);
    let said = format!(
        "you may not read it; the last authority of the caBundles ends in {days} days ({why})"
    );
    Finding::warning(object, said, "")
}

fn days_left(authority: &Authority, now: Timestamp) -> i64 {
    authority.ends.duration_since(now).as_secs() / (24 * 3_600)
}

/// The authorities that the API server trusts, by webhook.
fn bundles(configurations: &[Observed]) -> Vec<Vec<Authority>> {
    let installed = configurations.iter().filter_map(Observed::object);
    let webhooks = installed.flat_map(|installed| installed["webhooks"].as_array());
    let bundles = webhooks
        .flatten()
        .map(|webhook| authorities(&webhook["clientConfig"]["caBundle"]));
    bundles.collect()
}

/// Those of a text of PEM in base64; what is no certificate is left out.
fn authorities(base64: &Value) -> Vec<Authority> {
    let pem = base64.as_str().and_then(|text| STANDARD.decode(text).ok());
    let authority = |pem: Pem| {
        let ends = pem.parse_x509().ok()?.validity().not_after.timestamp();
        Some(Authority {
            ends: Timestamp::from_second(ends).ok()?,
            der: pem.contents,
        })
    };
    Pem::iter_from_buffer(&pem.unwrap_or_default())
        .filter_map(|pem| authority(pem.ok()?))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::operator::check::tests::line;

    /// A certificate that is valid until the first day of this year, as PEM in base64.
    fn issued(year: i32) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        STANDARD.encode(params.self_signed(&key).unwrap().pem())
    }

    fn secret(active: &str) -> Observed {
        Observed::Object(json!({"data": {ACTIVE: active}}))
    }

    fn trusts(bundles: &[&str]) -> Observed {
        let webhooks = bundles.iter();
        let webhooks = webhooks.map(|bundle| json!({"clientConfig": {"caBundle": bundle}}));
        Observed::Object(json!({"webhooks": Vec::from_iter(webhooks)}))
    }

    #[test]
    fn the_authority_is_valid_and_trusted() {
        let (ours, other) = (issued(2030), issued(2030));
        let said = |secret: Observed, trusted: Observed, now: &str| {
            let now = now.parse().unwrap();
            line(&certificate(
                "lynq-system",
                &secret,
                &[trusted, Observed::Absent],
                now,
            ))
        };
        let name = "Secret lynq-system/lynq-webhook-ca";
        let logs = logs("lynq-system");
        let good = || trusts(&[&ours, &ours]);
        assert_eq!(
            said(secret(&ours), good(), "2029-10-01T00:00:00Z"),
            format!("ok {name}: its authority ends in 92 days; the operator replaces it before")
        );
        assert_eq!(
            said(secret(&ours), good(), "2029-12-22T12:00:00Z"),
            format!(
                "warning {name}: its authority ends in 9 days, and the operator has not replaced it. {logs}"
            )
        );
        assert_eq!(
            said(secret(&ours), good(), "2030-01-02T00:00:00Z"),
            format!("failed {name}: its authority ended at 2030-01-01T00:00:00Z. {logs}")
        );
        assert_eq!(
            said(
                secret(&ours),
                trusts(&[&ours, &other, ""]),
                "2029-10-01T00:00:00Z"
            ),
            format!(
                "failed {name}: the caBundles of 2 of 3 webhooks lack its authority, so the API server cannot call them. {logs}"
            )
        );
        assert!(
            said(secret("bm90aGluZw=="), good(), "2029-10-01T00:00:00Z").starts_with(&format!(
                "failed {name}: its active.crt is no certificate. "
            ))
        );
        assert!(
            said(Observed::Absent, good(), "2029-10-01T00:00:00Z")
                .starts_with(&format!("failed {name}: it is not there"))
        );
    }

    #[test]
    fn who_may_not_read_the_secret_sees_the_bundles() {
        let now = "2029-10-01T00:00:00Z".parse().unwrap();
        let said = |trusted: Observed| {
            let denied = Observed::Denied("no".to_owned());
            line(&certificate("lynq-system", &denied, &[trusted], now))
        };
        let name = "Secret lynq-system/lynq-webhook-ca";
        assert_eq!(
            said(trusts(&[&issued(2028), &issued(2030)])),
            format!(
                "warning {name}: you may not read it; the last authority of the caBundles ends in 92 days (no)"
            )
        );
        assert!(said(Observed::Absent).starts_with(&format!(
            "warning {name}: not checked, because you may not read it: no"
        )));
    }
}

//! Whether a PEM text holds a private key that Go accepts: checks its form, not whether its numbers are consistent. Errors use
//! Go's words, but Go is more specific about the ASN.1.

use crate::functions::certificates::{der, pem};
use crate::runes;

const RSA: &str = "1.2.840.113549.1.1.1";
const EC: &str = "1.2.840.10045.2.1";
const X25519: &str = "1.3.101.110";
const ED25519: &str = "1.3.101.112";

/// P-224, P-256, P-384 and P-521.
const CURVES: [&str; 4] = [
    "1.3.132.0.33",
    "1.2.840.10045.3.1.7",
    "1.3.132.0.34",
    "1.3.132.0.35",
];

const MALFORMED: &str = "asn1: structure error";

pub fn check(text: &[u8]) -> Result<(), String> {
    let block = pem::decode(text).ok_or("no PEM data in input")?;
    let kind = runes::to_utf8(block.kind);
    if kind == "PRIVATE KEY" {
        return check_wrapped(&block.bytes)
            .map_err(|error| format!("decoding PEM as PKCS#8: {error}"));
    }
    let Some(algorithm) = kind.strip_suffix(" PRIVATE KEY") else {
        return Err(format!("no private key data in PEM block of type {kind}"));
    };
    match algorithm {
        "RSA" => check_rsa(&block.bytes),
        "EC" => check_ec(&block.bytes, None),
        "DSA" => match Dsa::read(&block.bytes) {
            Some(_) => Ok(()),
            None => Err(MALFORMED.to_owned()),
        },
        _ => return Err(format!("invalid private key type {kind}")),
    }
    .map_err(|error| format!("parsing {algorithm} private key from PEM: {error}"))
}

/// A PKCS#8 key: an algorithm, and a key of that algorithm.
struct Wrapped<'k> {
    algorithm: String,
    parameters: &'k [u8],
    key: &'k [u8],
}

impl<'k> Wrapped<'k> {
    fn read(bytes: &'k [u8]) -> Option<Wrapped<'k>> {
        let (content, _) = der::element(bytes, der::SEQUENCE)?;
        let (_, rest) = der::element(content, der::INTEGER)?;
        let (algorithm, rest) = der::element(rest, der::SEQUENCE)?;
        let (name, parameters) = der::element(algorithm, der::OBJECT)?;
        let (key, _) = der::element(rest, der::OCTETS)?;
        Some(Wrapped {
            algorithm: der::object(name),
            parameters,
            key,
        })
    }
}

/// A PKCS#1 key.
struct Rsa<'k> {
    version: &'k [u8],
    numbers: [&'k [u8]; 5],
    rest: &'k [u8],
}

impl<'k> Rsa<'k> {
    fn read(bytes: &'k [u8]) -> Option<Rsa<'k>> {
        let (content, rest) = der::element(bytes, der::SEQUENCE)?;
        let (version, content) = der::element(content, der::INTEGER)?;
        let (numbers, _) = der::elements(content, der::INTEGER)?;
        Some(Rsa {
            version,
            numbers,
            rest,
        })
    }
}

/// A SEC 1 key.
struct Ec {
    version: u64,
    curve: Option<String>,
}

impl Ec {
    fn read(bytes: &[u8]) -> Option<Ec> {
        let (content, _) = der::element(bytes, der::SEQUENCE)?;
        let (version, rest) = der::element(content, der::INTEGER)?;
        let (_, rest) = der::element(rest, der::OCTETS)?;
        let curve = match der::element(rest, 0xa0) {
            Some((curve, _)) => Some(der::object(der::element(curve, der::OBJECT)?.0)),
            None => None,
        };
        Some(Ec {
            version: der::small(version)?,
            curve,
        })
    }
}

struct Dsa;

impl Dsa {
    fn read(bytes: &[u8]) -> Option<Dsa> {
        let (content, _) = der::element(bytes, der::SEQUENCE)?;
        der::elements::<6>(content, der::INTEGER).map(|_| Dsa)
    }
}

/// The error for another kind of key than the expected one.
fn instead(function: &str) -> String {
    format!("x509: failed to parse private key (use {function} instead for this key format)")
}

fn check_wrapped(bytes: &[u8]) -> Result<(), String> {
    let Some(wrapped) = Wrapped::read(bytes) else {
        return Err(match (Ec::read(bytes), Rsa::read(bytes)) {
            (Some(_), _) => instead("ParseECPrivateKey"),
            (None, Some(_)) => instead("ParsePKCS1PrivateKey"),
            (None, None) => MALFORMED.to_owned(),
        });
    };
    match &*wrapped.algorithm {
        RSA => check_rsa(wrapped.key).map_err(|error| {
            format!("x509: failed to parse RSA private key embedded in PKCS#8: {error}")
        }),
        EC => {
            let curve = der::element(wrapped.parameters, der::OBJECT);
            let curve = curve.map(|(curve, _)| der::object(curve));
            check_ec(wrapped.key, curve).map_err(|error| {
                format!("x509: failed to parse EC private key embedded in PKCS#8: {error}")
            })
        }
        ED25519 => check_25519(&wrapped, "Ed25519"),
        X25519 => check_25519(&wrapped, "X25519"),
        algorithm => Err(format!(
            "x509: PKCS#8 wrapping contained private key with unknown algorithm: {algorithm}"
        )),
    }
}

fn check_25519(key: &Wrapped, name: &str) -> Result<(), String> {
    if !key.parameters.is_empty() {
        return Err(format!("x509: invalid {name} private key parameters"));
    }
    let (bytes, _) = der::element(key.key, der::OCTETS)
        .ok_or_else(|| format!("x509: invalid {name} private key: {MALFORMED}"))?;
    match bytes.len() {
        32 => Ok(()),
        _ if name == "X25519" => Err("crypto/ecdh: invalid private key size".to_owned()),
        length => Err(format!("x509: invalid {name} private key length: {length}")),
    }
}

fn check_rsa(bytes: &[u8]) -> Result<(), String> {
    let Some(key) = Rsa::read(bytes) else {
        return Err(match (Ec::read(bytes), Wrapped::read(bytes)) {
            (Some(_), _) => instead("ParseECPrivateKey"),
            (None, Some(_)) => instead("ParsePKCS8PrivateKey"),
            (None, None) => MALFORMED.to_owned(),
        });
    };
    if !key.rest.is_empty() {
        return Err("asn1: syntax error: trailing data".to_owned());
    }
    if der::small(key.version).is_none_or(|version| version > 1) {
        return Err("x509: unsupported private key version".to_owned());
    }
    // The first bit is the sign.
    let is_positive = |number: &&[u8]| {
        number.first().is_some_and(|byte| byte & 0x80 == 0) && number.iter().any(|byte| *byte != 0)
    };
    match key.numbers.iter().all(is_positive) {
        true => Ok(()),
        false => Err("x509: private key contains zero or negative value".to_owned()),
    }
}

/// The curve stands in the key, or in what the key is wrapped in.
fn check_ec(bytes: &[u8], curve: Option<String>) -> Result<(), String> {
    let Some(key) = Ec::read(bytes) else {
        return Err(match (Wrapped::read(bytes), Rsa::read(bytes)) {
            (Some(_), _) => instead("ParsePKCS8PrivateKey"),
            (None, Some(_)) => instead("ParsePKCS1PrivateKey"),
            (None, None) => format!("x509: failed to parse EC private key: {MALFORMED}"),
        });
    };
    if key.version != 1 {
        return Err(format!(
            "x509: unknown EC private key version {}",
            key.version
        ));
    }
    let curve = curve.or(key.curve).unwrap_or_default();
    match CURVES.contains(&&*curve) {
        true => Ok(()),
        false => Err("x509: unknown elliptic curve".to_owned()),
    }
}

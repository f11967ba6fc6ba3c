//! Key errors for which Go is more specific, and certificates and keys with changed bytes: a value or an error, never a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use rcgen::generate_simple_self_signed;

use crate::budget::Budget;
use crate::context::Context;
use crate::functions::FunctionError;
use crate::functions::encoding::encode64;
use crate::library::Library;
use crate::value::Value;

fn pem(kind: &str, bytes: &[u8]) -> String {
    let encoded = String::from_utf8(encode64(bytes)).unwrap();
    format!("-----BEGIN {kind}-----\n{encoded}\n-----END {kind}-----\n")
}

fn built(cert: &str, key: &str) -> Result<Value, FunctionError> {
    let args = [cert, key].map(|text| Value::str(encode64(text.as_bytes())));
    let library = Library::sprig();
    let function = library.get("buildCustomCert").expect("sprig has it");
    function.invoke(&mut Context::new(Budget::default()), &args)
}

#[test]
fn what_is_no_key_is_said() {
    let made = generate_simple_self_signed([]).unwrap();
    let cert = made.cert.pem();
    assert!(built(&cert, &made.signing_key.serialize_pem()).is_ok());
    for (kind, told) in [
        (
            "PRIVATE KEY",
            "decoding PEM as PKCS#8: asn1: structure error",
        ),
        (
            "RSA PRIVATE KEY",
            "parsing RSA private key from PEM: asn1: structure error",
        ),
        (
            "EC PRIVATE KEY",
            "parsing EC private key from PEM: x509: failed to parse EC private key: asn1: structure error",
        ),
        (
            "DSA PRIVATE KEY",
            "parsing DSA private key from PEM: asn1: structure error",
        ),
    ] {
        for bytes in [
            &b""[..],
            b"text",
            b"\x30\x80",
            b"\x30\x84\xff\xff\xff\xff",
            b"\x30\x03\x02\x01",
        ] {
            let error = built(&cert, &pem(kind, bytes)).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("error parsing private key: {told}"),
                "{bytes:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_end_in_a_value_or_an_error(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
        kind in prop::sample::select(vec!["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY", "a: b"]),
    ) {
        let made = generate_simple_self_signed([]).unwrap();
        let changed = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            if cuts {
                bytes.truncate(end.index(bytes.len()));
            }
            bytes
        };
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let _ = built(&pem("CERTIFICATE", &changed(made.cert.der())), &key);
        let _ = built(&cert, &pem(kind, &changed(made.signing_key.serialized_der())));
        let text = changed(cert.as_bytes());
        let _ = built(&String::from_utf8_lossy(&text), &key);
    }
}

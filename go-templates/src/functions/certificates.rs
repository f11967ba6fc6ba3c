//! `buildCustomCert`: checks and combines a certificate and a key that were issued elsewhere. Functions that issue them are left
//! out.

mod der;
mod key;
mod pem;

use std::rc::Rc;

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::context::Context;
use crate::functions::arguments::text;
use crate::functions::encoding::decode64;
use crate::functions::{Function, FunctionError, Outcome};
use crate::signature::Param::Str;
use crate::signature::Signature;
use crate::value::{Certificate, Text, Value};

pub const FUNCTIONS: &[Function] = &[Function::new(
    "buildCustomCert",
    Signature::exactly(&[Str, Str]),
    build,
)];

/// Both are PEM in base64. As upstream, does not check that they belong together.
fn build(context: &mut Context, args: &[Value]) -> Outcome {
    let mut decoded = |index: usize, what: &str| {
        let encoded = text(args, index)?;
        context.reserve(encoded.len().saturating_mul(2))?;
        decode64(encoded).map_err(|_| FunctionError::new(format!("unable to decode base64 {what}")))
    };
    let (cert, key) = (decoded(0, "certificate")?, decoded(1, "private key")?);
    let block =
        pem::decode(&cert).ok_or_else(|| FunctionError::new("unable to decode certificate"))?;
    check_certificate(&block.bytes).map_err(|error| {
        FunctionError::new(format!(
            "error parsing certificate: decodedCert.Bytes: {error}"
        ))
    })?;
    key::check(&key)
        .map_err(|error| FunctionError::new(format!("error parsing private key: {error}")))?;
    Ok(Value::Certificate(Rc::new(Certificate {
        cert: Text::from(cert),
        key: Text::from(key),
    })))
}

/// What is wrong, in Go's words for the outermost error.
fn check_certificate(bytes: &[u8]) -> Result<(), &'static str> {
    let (content, rest) =
        der::element(bytes, der::SEQUENCE).ok_or("x509: malformed certificate")?;
    if !rest.is_empty() {
        return Err("x509: trailing data");
    }
    der::element(content, der::SEQUENCE).ok_or("x509: malformed tbs certificate")?;
    match X509Certificate::from_der(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err("x509: malformed certificate"),
    }
}

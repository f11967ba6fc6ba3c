//! Checksums and digests of strings, as text.

use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use crate::context::Context;
use crate::functions::arguments::text;
use crate::functions::{Function, Outcome};
use crate::signature::Param::Str;
use crate::signature::Signature;
use crate::value::Value;

const ONE: Signature = Signature::exactly(&[Str]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("adler32sum", ONE, adler32),
    Function::new("sha1sum", ONE, |_, args| {
        Ok(Value::str(hex(&Sha1::digest(text(args, 0)?))))
    }),
    Function::new("sha256sum", ONE, |_, args| {
        Ok(Value::str(hex(&Sha256::digest(text(args, 0)?))))
    }),
    Function::new("sha512sum", ONE, |_, args| {
        Ok(Value::str(hex(&Sha512::digest(text(args, 0)?))))
    }),
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn adler32(_: &mut Context, args: &[Value]) -> Outcome {
    const MODULUS: u32 = 65_521;
    let (mut low, mut high) = (1, 0);
    for byte in text(args, 0)?.iter() {
        low = (low + u32::from(*byte)) % MODULUS;
        high = (high + low) % MODULUS;
    }
    Ok(Value::str((high << 16 | low).to_string()))
}

//! Base64 and base32. Text that does not decode gives Go's message as the result, as upstream does.

use crate::context::Context;
use crate::functions::arguments::text;
use crate::functions::{Function, Outcome};
use crate::signature::Param::Str;
use crate::signature::Signature;
use crate::value::Value;

const ONE: Signature = Signature::exactly(&[Str]);

pub const FUNCTIONS: &[Function] = &[
    Function::new("b32dec", ONE, |context, args| {
        let decoded = decode32(text(args, 0)?);
        result(context, decoded, "base32")
    }),
    Function::new("b32enc", ONE, |context, args| {
        context.string(encode(text(args, 0)?, BASE32, 5, 8))
    }),
    Function::new("b64dec", ONE, |context, args| {
        let decoded = decode64(text(args, 0)?);
        result(context, decoded, "base64")
    }),
    Function::new("b64enc", ONE, |context, args| {
        context.string(encode64(text(args, 0)?))
    }),
];

const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE32: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The offset of the first byte that is not as it should be.
pub type Corrupt = usize;

fn result(context: &mut Context, decoded: Result<Vec<u8>, Corrupt>, name: &str) -> Outcome {
    match decoded {
        Ok(bytes) => context.string(bytes),
        Err(at) => Ok(Value::str(format!(
            "illegal {name} data at input byte {at}"
        ))),
    }
}

pub fn encode64(bytes: &[u8]) -> Vec<u8> {
    encode(bytes, BASE64, 6, 4)
}

/// Digits of `bits` each, filled up with `=` to groups of `group` digits.
fn encode(bytes: &[u8], digits: &[u8], bits: u32, group: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut pending, mut count) = (0u32, 0);
    for byte in bytes {
        pending = (pending << 8 | u32::from(*byte)) & 0xffff;
        count += 8;
        while count >= bits {
            count -= bits;
            out.push(digits[(pending >> count) as usize & (digits.len() - 1)]);
        }
    }
    if count > 0 {
        out.push(digits[(pending << (bits - count)) as usize & (digits.len() - 1)]);
    }
    out.resize(out.len().next_multiple_of(group), b'=');
    out
}

/// Decodes digits of `bits` each; drops bits that are left over.
fn pack(values: &[u8], bits: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len());
    let (mut pending, mut count) = (0u32, 0);
    for value in values {
        pending = (pending << bits | u32::from(*value)) & 0xffff;
        count += bits;
        if count >= 8 {
            count -= 8;
            out.push((pending >> count) as u8);
        }
    }
    out
}

fn digit(byte: u8, digits: &[u8]) -> Option<u8> {
    let found = digits.iter().position(|digit| *digit == byte)?;
    u8::try_from(found).ok()
}

fn is_newline(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Skips newlines anywhere.
pub fn decode64(text: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let mut values = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match (digit(*byte, BASE64), *byte) {
            (Some(value), _) => values.push(value),
            (None, b'=') => return padding64(text, at, values),
            (None, byte) if is_newline(byte) => {}
            _ => return Err(at),
        }
        at += 1;
    }
    match values.len() % 4 {
        0 => Ok(pack(&values, 6)),
        missing => Err(text.len() - missing),
    }
}

/// What follows the first `=`: a second one where the group needs it, and nothing else.
fn padding64(text: &[u8], first: usize, values: Vec<u8>) -> Result<Vec<u8>, Corrupt> {
    let skip = |mut at: usize| {
        while text.get(at).is_some_and(|byte| is_newline(*byte)) {
            at += 1;
        }
        at
    };
    let mut at = skip(first + 1);
    match values.len() % 4 {
        0 | 1 => return Err(first),
        2 => match text.get(at) {
            None => return Err(text.len()),
            Some(b'=') => at = skip(at + 1),
            Some(_) => return Err(at - 1),
        },
        _ => {}
    }
    if at < text.len() {
        return Err(at);
    }
    Ok(pack(&values, 6))
}

/// Newlines are taken out first: offsets count without them.
fn decode32(text: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let text: Vec<u8> = text.iter().copied().filter(|b| !is_newline(*b)).collect();
    let mut values = Vec::with_capacity(text.len());
    for (at, byte) in text.iter().enumerate() {
        let in_group = values.len() % 8;
        let rest = &text[at + 1..];
        if *byte == b'=' && in_group >= 2 && rest.len() < 8 {
            if rest.len() + in_group < 7 {
                return Err(text.len());
            }
            let wrong = rest
                .iter()
                .take(7 - in_group)
                .position(|byte| *byte != b'=');
            if let Some(wrong) = wrong {
                return Err(at + wrong);
            }
            return match in_group {
                3 | 6 => Err(at),
                _ => Ok(pack(&values, 5)),
            };
        }
        values.push(digit(*byte, BASE32).ok_or(at)?);
    }
    match values.len() % 8 {
        0 => Ok(pack(&values, 5)),
        missing => Err(text.len() - missing),
    }
}

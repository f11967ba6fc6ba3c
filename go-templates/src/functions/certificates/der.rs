//! The part of ASN.1's DER that distinguishes kinds of private keys. Copies nothing.

pub const INTEGER: u8 = 2;
pub const OCTETS: u8 = 4;
pub const OBJECT: u8 = 6;
pub const SEQUENCE: u8 = 0x30;

/// The content of an element with this tag, and what follows the element.
pub fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (length, rest) = length(rest)?;
    (*first == tag && length <= rest.len()).then(|| rest.split_at(length))
}

/// A length below 128 is a byte; of a larger one the byte says how many hold it.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    if *first < 0x80 {
        return Some((usize::from(*first), rest));
    }
    let count = usize::from(*first & 0x7f);
    if !(1..=4).contains(&count) || count > rest.len() {
        return None;
    }
    let (digits, rest) = rest.split_at(count);
    let length = digits
        .iter()
        .fold(0, |length, digit| length << 8 | usize::from(*digit));
    Some((length, rest))
}

/// So many elements with the same tag, and what follows them.
pub fn elements<const N: usize>(mut bytes: &[u8], tag: u8) -> Option<([&[u8]; N], &[u8])> {
    let mut found = [&bytes[..0]; N];
    for place in &mut found {
        (*place, bytes) = element(bytes, tag)?;
    }
    Some((found, bytes))
}

/// A non-negative number that fits; None for any other.
pub fn small(content: &[u8]) -> Option<u64> {
    let is_negative = content.first()? & 0x80 != 0;
    let fits = content.len() <= 8 && !is_negative;
    fits.then(|| {
        content
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    })
}

/// An object identifier with points between its numbers.
pub fn object(content: &[u8]) -> String {
    let mut numbers: Vec<u128> = vec![];
    let mut number = 0u128;
    for byte in content {
        number = number.wrapping_shl(7) | u128::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            // The first two are one.
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= first * 40;
            }
            numbers.push(number);
            number = 0;
        }
    }
    let numbers: Vec<String> = numbers.iter().map(u128::to_string).collect();
    numbers.join(".")
}

//! resourceVersions: compared as decimal numbers of any length, between objects of one kind.
//!
//! Kubernetes promises the order since 1.35 (KEP-5504); before, it holds in fact.

use std::cmp::Ordering;

/// The order of two resourceVersions; None where either is not a number.
pub fn compare(a: &str, b: &str) -> Option<Ordering> {
    let number = |text: &str| -> Option<(usize, String)> {
        let good = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let digits = text.trim_start_matches('0');
        good.then(|| (digits.len(), digits.to_owned()))
    };
    Some(number(a)?.cmp(&number(b)?))
}

/// True when `a` is newer than `b`. Equal is not newer, and what is no number is newer than nothing.
pub fn is_newer(a: &str, b: &str) -> bool {
    compare(a, b) == Some(Ordering::Greater)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers_of_any_length() {
        for (a, b, newer) in [
            ("10", "9", true),
            ("9", "10", false),
            ("9", "9", false),
            ("010", "9", true),
            (
                "340282366920938463463374607431768211457",
                "340282366920938463463374607431768211456",
                true,
            ),
            ("x", "1", false),
            ("1", "x", false),
            ("", "", false),
        ] {
            assert_eq!(is_newer(a, b), newer, "{a:?} newer than {b:?}");
        }
    }
}

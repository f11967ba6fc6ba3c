//! Times that depend on what `now` is, and what Go has no words for.

use std::sync::Arc;

use crate::facts::Facts;
use crate::functions::tests::{rendered, text, variables};

#[test]
fn now_is_what_was_given() {
    let cases = [
        ("{{ now }}", "2026-01-02 03:04:05.6 +0000 UTC"),
        ("{{ date \"15:04\" nil }}", "03:04"),
        (
            "{{ dateInZone \"15:04\" \"x\" \"Europe/Berlin\" }}",
            "04:04",
        ),
        (
            "{{ htmlDateInZone nil \"Pacific/Honolulu\" }}",
            "2026-01-01",
        ),
        ("{{ ago now }}", "0s"),
        ("{{ ago (now | dateModify \"-90.5s\") }}", "1m31s"),
        ("{{ ago (now | dateModify \"1h\") }}", "-1h0m0s"),
        ("{{ ago 1767323045 }}", "1s"),
        ("{{ ago (int64 1767323040) }}", "6s"),
        ("{{ ago \"x\" }}", "0s"),
        (
            "{{ ago (toDate \"2006\" \"0001\") }}",
            "2562047h47m16.854775807s",
        ),
        ("{{ durationRound (now | dateModify \"-50h\") }}", "2d"),
        ("{{ durationRound (now | dateModify \"-10ms\") }}", "0s"),
        ("{{ duration (int64 90) }}", "1m30s"),
    ];
    for (template, expected) in cases {
        assert_eq!(text(template), expected, "{template}");
    }
}

#[test]
fn what_is_unknown_or_out_of_range_is_said() {
    let cases = [
        (
            "{{ ago (int64 \"9223372036854775807\") }}",
            "the time would be outside the years -9999 to 9999",
        ),
        (
            "{{ toDate \"2006-01-02\" \"9999-12-30\" | dateModify \"48h\" }}",
            "the time would be outside the years -9999 to 9999, whose last day is December 30th",
        ),
        (
            "{{ toDate \"2006-01-02\" \"9999-12-31\" | date \"2006\" }}",
            "the time would be outside the years -9999 to 9999",
        ),
        (
            "{{ mustToDate \"2006-01-02 15 -07\" \"9999-12-31 23 -20\" }}",
            "the time would be outside the years -9999 to 9999",
        ),
        (
            "{{ now.AddDate 9000 0 0 }}",
            "the time would be outside the years -9999 to 9999, whose last day is December 30th",
        ),
        (
            "{{ now.AddDate 0 0 9223372036854775807 }}",
            "the time would be outside the years -9999 to 9999",
        ),
        ("{{ now.Location }}", "Location of a time is not there"),
    ];
    for (template, expected) in cases {
        let found = text(template);
        assert!(found.contains(expected), "{template}: {found}");
    }
    for call in ["ago 1", "durationRound (toDate \"2006\" \"2020\")"] {
        let text = format!("{{{{ {call} }}}}");
        let error = rendered(&text, &variables(), Arc::new(Facts::default()), "spec.x");
        let message = error.unwrap_err().message;
        assert!(
            message.ends_with("no time was given to the rendering"),
            "{call}: {message}"
        );
    }
}

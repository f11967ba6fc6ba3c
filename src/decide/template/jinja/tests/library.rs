//! The table's functions with Jinja values: patterns, times, versions, URLs and floats; and unsupported functions.

use serde_json::json;

use crate::decide::template::jinja::tests::{leaf, message};

#[test]
fn results() {
    let cases = [
        (
            "{{ regexReplaceAll('[^a-z0-9]+', 'acme web_1', '-') }}",
            json!("acme-web-1"),
        ),
        ("{{ uid | regexFind('[a-z]+$') }}", json!("web")),
        ("{{ uid | regexMatch('^acme') }}", json!("true")),
        (
            "{{ now() | date('2006-01-02') }} {{ now() | dateModify('24h') | unixEpoch }}",
            json!("2026-01-02 1767409445"),
        ),
        (
            "{{ toDate('2006-01-02 -07', '2020-01-01 +02') }}",
            json!("2020-01-01 00:00:00 +0200 +0200"),
        ),
        (
            "{{ '1.4.2' | semverCompare('^1.2') }} {{ (semver('v1.4')).Minor }} {{ semver('v1.4') }} {{ semver('1.4').IncPatch.Patch }} {{ semver('1') | typeOf }}",
            json!("true 4 1.4.0 1 *semver.Version"),
        ),
        (
            "{{ semver('1.4').Compare(semver('1.5')) }} {{ semver('1-a').SetPrerelease('b') }} {{ semver('1').IncMajor().Major }}",
            json!("-1 1.0.0-b 2"),
        ),
        (
            "{{ now().Year }} {{ now().Month }} {{ now().Weekday() }} {{ now().Format('15:04') }} {{ now().AddDate(0, 1, 0).Month | printf('%d') }}",
            json!("2026 January Friday 03:04 2"),
        ),
        (
            "{{ now().Add(3600000000000).Sub(now()) }} {{ now().Before(now()) }} {{ now().Truncate(now().Sub(now())) | date('15:04:05') }}",
            json!("1h0m0s false 03:04:05"),
        ),
        ("{{ urlParse('https://h:1/p').host }}", json!("h:1")),
        (
            "{{ 0.1 | addf(0.2) }} {{ round(2.55, 1) }}",
            json!("0.3 2.6"),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(leaf(text), expected, "{text}");
    }
}

#[test]
fn errors() {
    let cases = [
        (
            "{{ uid | regexFind('(') }}",
            "template: spec.x:1:9: invalid operation: error calling regexFind: regexp: Compile(`(`): error parsing regexp: missing closing ): `(`",
        ),
        (
            "{{ uid | mustToDate('2006') }}",
            "template: spec.x:1:9: invalid operation: error calling mustToDate: parsing time \"acme-web\" as \"2006\": cannot parse \"acme-web\" as \"2006\"",
        ),
        (
            "{{ uid | unixEpoch }}",
            "template: spec.x:1:9: invalid operation: error calling unixEpoch: wrong type for value; expected time.Time; got string",
        ),
        (
            "{{ now().Add('1h') }}",
            "template: spec.x:1:8: invalid operation: error calling Add: wrong type for value; expected time.Duration; got string",
        ),
        (
            "{{ now().Zone() }}",
            "template: spec.x:1:8: invalid operation: invalid function signature for Zone: second return value should be error; is int",
        ),
        (
            "{{ now().Foo() }}",
            "template: spec.x:1:8: unknown method: plain object has no method named Foo",
        ),
        (
            "{{ buildCustomCert('', '') }}",
            "template: spec.x:1:3: invalid operation: error calling buildCustomCert: unable to decode certificate",
        ),
        (
            "{{ uid | semver }}",
            "template: spec.x:1:9: invalid operation: error calling semver: Invalid Semantic Version",
        ),
        (
            "{{ title }}",
            "template: spec.x:1:3: undefined value: the row has no title, and the function title is called as title(…)",
        ),
        (
            "{{ 'v:' ~ base }}",
            "template: spec.x:1:3: undefined value: the row has no base, and the function base is called as base(…)",
        ),
        (
            "{{ title | trim }}",
            "template: spec.x:1:11: undefined value: error calling trim: an argument is undefined: the row has no title, and the function title is called as title(…)",
        ),
        (
            "{{ range | upper }}",
            "template: spec.x:1:11: undefined value: error calling upper: an argument is undefined: the row has no range, and the function range is called as range(…)",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(message(text), expected, "{text}");
    }
}

#[test]
fn refused_functions_say_why() {
    for text in ["{{ bcrypt('x') }}", "{{ 'x' | bcrypt }}"] {
        let said = message(text);
        let (_, said) = said.split_once("invalid operation: ").unwrap();
        assert_eq!(
            said,
            "function bcrypt is refused: its salt or key is random, so that every sync would change the object; store the hash in a column of the row, or let a Job hash the password",
            "{text}"
        );
    }
}

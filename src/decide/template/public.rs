//! Redacts template errors for conditions, events and logs, which more people can read than the rows. Of what a rendering adds, a
//! message shows only words that occur in the form, in the row's uid, or in the engines' own messages.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use go_templates::TemplateError;

/// The words of the engines' own messages, a line each.
static WORDS: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| include_str!("words.txt").lines().collect());

/// Numbers with at most this many digits are not secret.
const DIGITS_MAX: usize = 2;

/// Replaces words that are not shown.
pub const HIDDEN: &str = "…";

/// The error's message, with `…` for words that only the row's values contain; `known` are texts that every reader may see.
pub fn message(error: &TemplateError, known: &[&str]) -> String {
    // A limit's message has no values.
    if error.limit.is_some() {
        return error.message.clone();
    }
    let (place, said) = error.message.split_at(place_end(error));
    format!("{place}{}", shown(said, known))
}

/// The end of the part that only says where in the form the error occurred.
fn place_end(error: &TemplateError) -> usize {
    let after = |text: &str| error.message.find(text).map(|at| at + text.len());
    let line = error.line.map_or(String::new(), |line| format!("{line}:"));
    let line = format!("template: {}:{line}", error.template);
    let column = error.column.map(|column| format!("{line}{column}:"));
    match error.message.contains(": executing ") {
        true => after(">: "),
        false => column
            .and_then(|place| after(&place))
            .or_else(|| after(&line)),
    }
    .unwrap_or_default()
}

/// The text with `…` for unknown words.
pub fn shown(text: &str, known: &[&str]) -> String {
    PublicWords::of(known).shown(text)
}

/// Words that every reader may see.
pub struct PublicWords<'a>(BTreeSet<&'a str>);

impl<'a> PublicWords<'a> {
    pub fn of(texts: &[&'a str]) -> Self {
        PublicWords(texts.iter().flat_map(|text| words(text)).collect())
    }

    /// The text with `…` for unknown words.
    pub fn shown(&self, text: &str) -> String {
        replaced(text, |word, hangs| {
            let is_shown = self.0.contains(word) || (is_everybodys(word) && !hangs);
            !is_shown
        })
    }

    /// A text with `…` for words that are in these values, and not known.
    pub fn without(&self, text: &str, values: &[&str]) -> String {
        let hidden: BTreeSet<&str> = values.iter().flat_map(|text| words(text)).collect();
        replaced(text, |word, _| {
            hidden.contains(word) && !self.0.contains(word) && !is_everybodys(word)
        })
    }
}

fn is_everybodys(word: &str) -> bool {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && word.len() <= DIGITS_MAX) || WORDS.contains(word)
}

/// The text with `…` for the words that `hide` selects. `hide` also gets whether the word directly follows a hidden one.
fn replaced(text: &str, hide: impl Fn(&str, bool) -> bool) -> String {
    let (mut shown, mut rest, mut was_hidden) = (String::new(), text, false);
    while !rest.is_empty() {
        let gap = rest.find(is_part).unwrap_or(rest.len());
        let (gap, after) = rest.split_at(gap);
        let end = after.find(|c| !is_part(c)).unwrap_or(after.len());
        let (word, after) = after.split_at(end);
        rest = after;
        // A word that directly follows a hidden one may belong to the same value.
        let hangs = was_hidden && !gap.contains(char::is_whitespace);
        let is_hidden = !word.is_empty() && hide(word, hangs);
        if is_hidden && hangs {
            continue;
        }
        shown.push_str(gap);
        shown.push_str(if is_hidden { HIDDEN } else { word });
        was_hidden = is_hidden;
    }
    shown
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_part(c)).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::message;
    use crate::decide::template::{Engine, Inputs, LIMITS, Template};

    fn told(engine: Engine, text: &str) -> String {
        let row = [
            ("uid", "acme-1"),
            ("pw", "hunter2"),
            ("short", "abc"),
            ("cfg", r#"{"password":"Tr0ub4dor"}"#),
            ("dsn", "postgres://app:hunter2/x@db/app"),
        ];
        let row: BTreeMap<String, String> = row.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let inputs = Inputs::new(&row, None, LIMITS);
        let template = Template::parse(engine, "web", text).unwrap();
        let error = template.render(&inputs, "spec.x").unwrap_err();
        message(&error, &[text, "acme-1"])
    }

    /// A condition, an event and a node's content have to hold it.
    #[test]
    fn a_long_error_is_told_by_its_beginning_and_its_end() {
        let row = BTreeMap::from([("uid".to_owned(), "acme-1".to_owned())]);
        let inputs = Inputs::new(&row, None, LIMITS);
        for (engine, text) in [
            (Engine::Go, "{{ fail (repeat 900000 \"é: \") }}"),
            (
                Engine::Go,
                "{{ mustToDate \"2006\" (repeat 900000 \"\\x00\") }}",
            ),
            (Engine::Jinja, "{{ fail(repeat(900000, 'é: ')) }}"),
        ] {
            let template = Template::parse(engine, "web", text).unwrap();
            let said = template.render_publicly(&inputs, "spec.x").unwrap_err();
            assert!(said.starts_with("spec.x: template: web:1:"), "{said}");
            assert!(said.len() < 1_100, "{} bytes", said.len());
        }
    }

    #[test]
    fn nothing_of_a_row_is_told_in_whatever_form() {
        for (engine, text, expected) in [
            (Engine::Go, "{{ fail .pw }}", "error calling fail: …"),
            (
                Engine::Go,
                "{{ .pw | swapcase | fail }}",
                "error calling fail: …",
            ),
            (
                Engine::Go,
                "{{ .pw | b64enc | fail }}",
                "error calling fail: …",
            ),
            (Engine::Go, "{{ fail .short }}", "error calling fail: …"),
            (
                Engine::Go,
                "{{ (printf \"%s needs a plan, not %s\" .uid .pw) | fail }}",
                "error calling fail: acme-1 needs a plan, not …",
            ),
            (
                Engine::Go,
                "{{ range (fromJson .cfg).password }}{{ end }}",
                "range can't iterate over …",
            ),
            (Engine::Go, "{{ mustToDate \"2006\" .pw }}", "cannot parse"),
            (
                Engine::Go,
                "{{ semverCompare .pw \"1\" }}",
                "improper constraint: …",
            ),
            (
                Engine::Jinja,
                "{{ pw | swapcase | fail }}",
                "error calling fail: …",
            ),
            (Engine::Jinja, "{{ cfg | fail }}", "error calling fail: "),
            (
                Engine::Jinja,
                &format!("{}{{{{ pw | swapcase | fail }}}}", " ".repeat(200)),
                "template: web:1:219: invalid operation: error calling fail: …",
            ),
            (
                Engine::Jinja,
                "{{ pw | upper | call }}",
                "error calling call: no value is a function; use the function's name",
            ),
            (
                Engine::Jinja,
                "{{ range(123456) | upper }}",
                "error calling range: a range has more than 10000 items",
            ),
            (
                Engine::Jinja,
                "{{ fromJson(cfg)[pw] | default(pw) }}{{ fromJson(cfg).nope }}",
                "undefined value: (…).nope",
            ),
            (
                Engine::Jinja,
                "{{ pw | sum }}",
                "error calling sum: can only sum numbers, got string",
            ),
            (
                Engine::Jinja,
                "{{ upper(nope, pw) }}",
                "error calling upper: an argument is undefined: the row has no nope",
            ),
        ] {
            let told = told(engine, text);
            assert!(told.contains(expected), "{told}");
            for secret in ["hunter2", "HUNTER2", "aHVudGVyMg", "Tr0ub4dor", "abc"] {
                assert!(!told.contains(secret), "{secret} is in {told}");
            }
        }
        let told = told(Engine::Go, "{{ (urlParse .dsn).host }}");
        assert_eq!(
            told,
            "template: web:1:4: executing \"web\" at <urlParse .dsn>: error calling urlParse: unable to parse url: parse \
             \"…\": invalid port \":…\" after host"
        );
    }
}

//! JSONPath as forms write it, in `ignoreFields` and `readyProbe`. Whatever parses ends soon, on any object: a path that
//! could match more places than the object has is refused.

use std::collections::BTreeSet;
use std::ptr;

use jsonpath_rust::parser::model::{
    Comparable, Comparison, Filter, FilterAtom, JpQuery, Segment, Selector, SingularQuery, Test,
};
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

const CHARS_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct Path(JpQuery);

impl Path {
    /// The path, or what is wrong with it.
    pub fn parse(text: &str) -> Result<Path, String> {
        if text.chars().count() > CHARS_MAX {
            return Err(format!("it has more than {CHARS_MAX} characters"));
        }
        // The parser descends for each of them, on the stack.
        if text.matches(['(', '[', '!']).count() > 32 {
            return Err("it is nested too deeply".to_owned());
        }
        let rooted = match text.chars().next() {
            Some('.' | '[') => format!("${text}"),
            Some(c) if c != '$' && !text.contains(char::is_whitespace) => format!("$.{text}"),
            _ => text.to_owned(),
        };
        let query =
            parse_json_path(&rooted).map_err(|_| "write it like $.spec.replicas".to_owned())?;
        check(&query.segments, false)?;
        Ok(Path(query))
    }

    /// JSON pointers of what it matches in the object, in the object's order.
    pub fn pointers(&self, object: &Value) -> Vec<String> {
        // The library names places in a text that keys with quotes and brackets in them make ambiguous.
        let found = self.values(object).into_iter().map(ptr::from_ref).collect();
        let mut pointers = vec![];
        note_pointers(object, String::new(), &found, &mut pointers);
        pointers
    }

    /// What it matches in the object.
    pub fn values<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let found = js_path_process(&self.0, object).unwrap_or_default();
        found.into_iter().map(|found| found.val()).collect()
    }
}

/// The name in a token of a JSON pointer.
pub fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// Whether the segments, one after the other, match each place at most once, and look at few for each.
fn check(segments: &[Segment], in_filter: bool) -> Result<(), String> {
    let mut descends = 0;
    for segment in segments {
        let segment = match segment {
            Segment::Descendant(_) if in_filter => {
                return Err("a filter cannot look through everything below (..)".to_owned());
            }
            Segment::Descendant(inner) => {
                descends += 1;
                inner
            }
            other => other,
        };
        match segment {
            Segment::Selector(Selector::Filter(_)) if in_filter => {
                return Err("a filter cannot have another in it".to_owned());
            }
            Segment::Selector(Selector::Filter(filter)) => check_filter(filter)?,
            Segment::Selector(_) => {}
            // `[*,*]` matches everything twice, and thirty of them in a row a milliard times.
            Segment::Selectors(selectors) => {
                let named = |s: &Selector| matches!(s, Selector::Name(_) | Selector::Index(_));
                if !selectors.iter().all(named) {
                    return Err("a list of selectors may have names and numbers only".to_owned());
                }
                let twice = |(at, selector): (usize, &Selector)| selectors[..at].contains(selector);
                if selectors.iter().enumerate().any(twice) {
                    return Err("a list of selectors names one twice".to_owned());
                }
            }
            Segment::Descendant(_) => return Err("it descends twice at one place".to_owned()),
        }
    }
    match descends {
        0 | 1 => Ok(()),
        _ => Err("it may descend into everything below (..) once".to_owned()),
    }
}

fn check_filter(filter: &Filter) -> Result<(), String> {
    match filter {
        Filter::Or(all) | Filter::And(all) => all.iter().try_for_each(check_filter),
        Filter::Atom(FilterAtom::Filter { expr, .. }) => check_filter(expr),
        Filter::Atom(FilterAtom::Test { expr, .. }) => match &**expr {
            Test::RelQuery(segments) => check(segments, true),
            Test::AbsQuery(_) => Err(ONLY_CURRENT.to_owned()),
            Test::Function(_) => Err(NO_FUNCTIONS.to_owned()),
        },
        Filter::Atom(FilterAtom::Comparison(comparison)) => {
            let (left, right) = match &**comparison {
                Comparison::Eq(left, right)
                | Comparison::Ne(left, right)
                | Comparison::Gt(left, right)
                | Comparison::Gte(left, right)
                | Comparison::Lt(left, right)
                | Comparison::Lte(left, right) => (left, right),
            };
            [left, right].into_iter().try_for_each(|side| match side {
                Comparable::Literal(_) | Comparable::SingularQuery(SingularQuery::Current(_)) => {
                    Ok(())
                }
                Comparable::SingularQuery(SingularQuery::Root(_)) => Err(ONLY_CURRENT.to_owned()),
                Comparable::Function(_) => Err(NO_FUNCTIONS.to_owned()),
            })
        }
    }
}

const ONLY_CURRENT: &str = "a filter can look at its own element (@) only";
const NO_FUNCTIONS: &str = "filters compare; they have no functions";

fn note_pointers(
    value: &Value,
    pointer: String,
    found: &BTreeSet<*const Value>,
    pointers: &mut Vec<String>,
) {
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                note_pointers(item, format!("{pointer}/{i}"), found, pointers);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                note_pointers(field, format!("{pointer}/{name}"), found, pointers);
            }
        }
        _ => {}
    }
    if found.contains(&ptr::from_ref(value)) {
        pointers.push(pointer);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::decide::planted;

    #[test]
    fn what_a_path_matches() {
        let object = json!({"metadata": {"annotations": {"a/b~c": "x"}}, "spec": {"replicas": 2, "containers": [
            {"name": "a", "image": "x:1"}, {"name": "b", "image": "y:1"}]}});
        for (path, pointers) in [
            ("$.spec.replicas", vec!["/spec/replicas"]),
            (".spec.replicas", vec!["/spec/replicas"]),
            ("spec.replicas", vec!["/spec/replicas"]),
            ("$['spec']['replicas']", vec!["/spec/replicas"]),
            ("$.spec.paused", vec![]),
            (
                "$.spec.containers[*].image",
                vec!["/spec/containers/0/image", "/spec/containers/1/image"],
            ),
            (
                "$.spec.containers[?(@.name == \"b\")].image",
                vec!["/spec/containers/1/image"],
            ),
            (
                "$.spec.containers[?@.name=='a' || @.name=='b'].name",
                vec!["/spec/containers/0/name", "/spec/containers/1/name"],
            ),
            (
                "$.spec.containers[-1].name",
                vec!["/spec/containers/1/name"],
            ),
            (
                "$..image",
                vec!["/spec/containers/0/image", "/spec/containers/1/image"],
            ),
            (
                "$.metadata.annotations['a/b~c']",
                vec!["/metadata/annotations/a~1b~0c"],
            ),
        ] {
            let parsed = Path::parse(path).unwrap_or_else(|why| panic!("{path}: {why}"));
            assert_eq!(parsed.pointers(&object), pointers, "{path}");
            let values: Vec<&Value> = pointers
                .iter()
                .map(|pointer| object.pointer(pointer).unwrap())
                .collect();
            assert_eq!(parsed.values(&object), values, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_or_a_costly_one() {
        for (path, why) in [
            ("", "write it like"),
            ("spec replicas", "write it like"),
            ("$.spec[", "write it like"),
            ("$..*..*", "descend into everything below (..) once"),
            ("$[*,*]", "names and numbers only"),
            ("$['a','a']", "names one twice"),
            ("$[?@..x]", "look through everything below"),
            ("$[?@[?@.x]]", "have another in it"),
            ("$[?$.a]", "its own element"),
            ("$[?@.a == $.b]", "its own element"),
            ("$[?length(@.a) > 1]", "no functions"),
            (&format!("$.{}", "a".repeat(300)), "more than 256"),
            (&format!("$[?{}@.a", "(".repeat(90)), "nested too deeply"),
        ] {
            let said = Path::parse(path).unwrap_err();
            assert!(said.contains(why), "{path}: {said}");
        }
    }
    fn text() -> impl Strategy<Value = String> {
        let pieces = [
            "$",
            ".spec",
            ".a",
            "..",
            "[*]",
            "[0]",
            "[-1]",
            "[1:]",
            "[::-1]",
            "[:9223372036854775807:2]",
            "['spec']",
            "[\"a\"]",
            "[?",
            "[?@",
            "@.a",
            "@",
            "]",
            "==",
            "!=",
            "<",
            ">=",
            "'x'",
            "\"",
            "1",
            "-1e999",
            "99999999999999999999",
            "true",
            "null",
            "&&",
            "||",
            "!",
            "(",
            ")",
            "length(",
            "count(",
            "match(",
            "search(",
            "value(",
            ",",
            "'[a-z]+(x|'",
            " ",
            "\u{65e5}",
            "\\u12",
            "[?@.a=='x']",
            "[?(@.a==1)]",
            "*",
        ];
        let pieces = prop::sample::select(pieces.to_vec());
        let rooted =
            prop::collection::vec(pieces, 0..8).prop_map(|pieces| format!("${}", pieces.concat()));
        prop_oneof![4 => rooted, 1 => any::<String>()]
    }

    fn matched(text: &str) -> usize {
        let object = json!({"spec": {"a": [{"a": "x"}, {"a": 1}, [], null, 1e300]}, "a": {"a": "x", "": [1, 2, 3]}, "0": true, "it's][": {"/~": 1}});
        Path::parse(text).map_or(0, |path| {
            let (pointers, values) = (path.pointers(&object), path.values(&object));
            assert_eq!(pointers.len(), values.len(), "{text}");
            for pointer in &pointers {
                let place = object.pointer(pointer).unwrap();
                assert!(values.iter().any(|value| ptr::eq(*value, place)), "{text}");
            }
            pointers.len()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: planted::CASES, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_written_ends_in_places_of_the_object(text in text()) {
            matched(&text);
        }
    }

    /// What would be found must be able to come up.
    #[test]
    fn a_panic_where_a_filter_matches_would_be_found() {
        let planted = |text: &String| text.contains("[?") && matched(text) > 0;
        assert!(planted::is_found(&text(), planted));
    }
}

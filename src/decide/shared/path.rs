//! JSONPath as forms write it, in `ignoreFields` and `readyProbe`. Whatever parses ends soon, on any object: a path that
//! could match more places than the object has is refused.

use std::collections::BTreeSet;
use std::ptr;

use jsonpath_rust::parser::errors::JsonPathError;
use jsonpath_rust::parser::model::{
    Comparable, Comparison, Filter, FilterAtom, JpQuery, Segment, Selector, SingularQuery, Test,
};
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use pest::error::InputLocation;
use serde_json::{Value, json};

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
        if let Some(at) = stray_blank(text) {
            return Err(format!("at {at}: {NO_BLANKS}"));
        }
        let root = match text.chars().next() {
            Some('$') => "",
            Some('.' | '[') => "$",
            _ => "$.",
        };
        let query = parse_json_path(&format!("{root}{text}"))
            .map_err(|error| unreadable(text, root.len(), &error))?;
        check(&query.segments, false)?;
        Ok(Path(query))
    }

    /// A path of `ignoreFields`. Of what says which object it is nothing can be others': without it lynqgate would apply
    /// something that is no object, or another one.
    pub fn of_others(text: &str) -> Result<Path, String> {
        let path = Path::parse(text)?;
        // Whatever a filter lets through.
        let segments = path.0.segments.iter().map(widened).collect();
        let widest = Path(JpQuery::new(segments));
        let names =
            json!({"apiVersion": "", "kind": "", "metadata": {"name": "", "namespace": ""}});
        let matched = widest.pointers(&names).into_iter();
        let matched: Vec<String> = matched.map(|pointer| named(&pointer)).collect();
        match matched.is_empty() {
            true => Ok(path),
            false => Err(format!(
                "it can match {}, which says what object it is; write the whole path of each field that is others', like \
                 $.metadata.labels['app']",
                matched.join(", ")
            )),
        }
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

const NO_BLANKS: &str = "a name has no blanks in it, unless it is quoted (['a b']), and a filter no words that compare: write \
                         ==, !=, <, <=, >, >=, &&, || and !, as in [?(@.name == 'a' || @.name == 'b')]";

/// Where a blank stands inside a name, counted from 1. The parser takes it for a part of the name, and so each operator
/// that it does not know: what is a filter elsewhere (`@.name in ['a']`) would match nothing here.
fn stray_blank(text: &str) -> Option<usize> {
    let is_name = |c: char| c == '_' || c.is_ascii_alphanumeric() || !c.is_ascii();
    let (mut before, mut blank) = ('.', None);
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.chars().enumerate() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(end) if c == end => quote = None,
            Some(_) => continue,
            None if matches!(c, ' ' | '\t' | '\n' | '\r') => {
                blank = blank.or(Some(at + 1));
                continue;
            }
            None if blank.is_some() && (before == '.' || is_name(before) && is_name(c)) => {
                return blank;
            }
            None if matches!(c, '\'' | '"') => quote = Some(c),
            None => {}
        }
        (before, blank) = (c, None);
    }
    None
}

/// The parser's error with its place in the text, before which the root was put.
fn unreadable(text: &str, root: usize, error: &JsonPathError) -> String {
    let example = match text.contains('?') {
        true => "$.spec.containers[?(@.name == 'app')].image",
        false => "$.spec.replicas",
    };
    let JsonPathError::PestError(error) = error else {
        return format!("write it like {example}");
    };
    let (InputLocation::Pos(at) | InputLocation::Span((at, _))) = error.location;
    let (read, rest) = text
        .split_at_checked(at.saturating_sub(root))
        .unwrap_or((text, ""));
    let what = match rest {
        "" => "it ends too early".to_owned(),
        rest => format!("{rest} cannot be read"),
    };
    let place = read.chars().count() + 1;
    format!("at {place}: {what}; write it like {example}")
}

fn widened(segment: &Segment) -> Segment {
    match segment {
        Segment::Selector(Selector::Filter(_)) => Segment::Selector(Selector::Wildcard),
        Segment::Descendant(inner) => Segment::Descendant(Box::new(widened(inner))),
        other => other.clone(),
    }
}

/// A place as people write it.
fn named(pointer: &str) -> String {
    match pointer.strip_prefix('/') {
        Some(fields) => fields.replace('/', "."),
        None => "the whole object".to_owned(),
    }
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

    use super::*;
    use crate::decide::shared::planted;

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
            // What docs/LYNQ.md says in the place of Lynq's `exists`.
            (
                "$.spec.containers[?@.image].name",
                vec!["/spec/containers/0/name", "/spec/containers/1/name"],
            ),
            ("$.spec.containers[?(!@.image)].name", vec![]),
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
            ("", "at 1: it ends too early; write it like $.spec.replicas"),
            ("$.spec[", "at 8: it ends too early; write it like $.spec."),
            ("spec[", "at 6: it ends too early"),
            ("$.spec.a-b", "at 9: -b cannot be read"),
            ("$.日['a'", "at 4: ['a' cannot be read"),
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

    /// The library takes what stands behind a blank for a part of the name before.
    #[test]
    fn a_blank_in_a_name_is_refused_with_its_place() {
        for (path, place) in [
            ("spec replicas", 5),
            ("$.a b", 4),
            ("$.a\n.b\tc", 7),
            ("$. a", 3),
            (" $.a", 1),
            ("$.. *", 4),
            ("$[1 2]", 4),
            ("$.c[?(@.name in ['a'])]", 13),
            ("$.c[?@.name == 'it\\'s in' && @.x in ['a'])]", 33),
            ("$.c[?@.x == \"'\" && @.x  in ['a'])]", 23),
        ] {
            let said = Path::parse(path).unwrap_err();
            let start = format!("at {place}: a name has no blanks");
            assert!(said.starts_with(&start), "{path}: {said}");
        }
        let object = json!({"c": [{"a b": 1, "n": 2}], "x y": 3});
        for (path, count) in [
            ("$['x y']", 1),
            ("$ .c [0] ['a b']", 1),
            ("$.c[ ?( @.n == 2 && @['a b'] == 1 ) ].n", 1),
            ("c[? @.n == 2 ].n", 1),
            ("$.c[0]['n' , 'a b']", 2),
            ("$.c[ 0 : 1 ].n", 1),
        ] {
            let path = Path::parse(path).unwrap_or_else(|why| panic!("{path}: {why}"));
            assert_eq!(path.pointers(&object).len(), count, "{path:?}");
        }
    }

    /// What Lynq takes besides: each was tried with its library, ojg.
    #[test]
    fn what_only_lynq_knows_in_a_filter_is_refused() {
        for filter in [
            "@.name in ['a','b']",
            "@.name in['a']",
            "'a' in @.list",
            "@.name has true",
            "@.name exists true",
            "@.list empty true",
            "@.name =~ /a/",
            "@.name=~'a'",
            "@.name ~= /a/",
            "@.n + 1 == 4",
            "@.n - 1 == 2",
            "@.n-1==2",
            "@.n * 2 == 6",
            "@.n / 2 == 2",
            "@.x == Nothing",
            "length(@.name) == 1",
            "count(@.list) == 1",
            "match(@.name, 'a')",
            "search(@.name, 'a')",
            "$.spec.n == 3",
            "@..n == 3",
        ] {
            let path = format!("$.spec.c[?({filter})].image");
            assert!(Path::parse(&path).is_err(), "{path}");
        }
    }

    #[test]
    fn what_says_which_object_it_is_is_not_others() {
        for (path, matched) in [
            ("$", "the whole object"),
            ("$.kind", "kind"),
            ("apiVersion", "apiVersion"),
            ("$.metadata", "metadata"),
            ("$['metadata']['name']", "metadata.name"),
            ("$.metadata['name','labels']", "metadata.name"),
            ("$.metadata.namespace", "metadata.namespace"),
            ("$.metadata.*", "metadata.name, metadata.namespace"),
            ("$..name", "metadata.name"),
            ("$..metadata", "metadata"),
            ("$..[?@.name == 'side']", "metadata"),
            ("$[?@.labels]", "metadata"),
            ("$.*", "kind, metadata"),
            ("$..*", "metadata.namespace"),
        ] {
            let said = Path::of_others(path).unwrap_err();
            assert!(said.starts_with("it can match "), "{path}: {said}");
            assert!(said.contains(&format!("{matched}, ")), "{path}: {said}");
        }
        for path in [
            "$.spec",
            "$.data",
            "$.metadata.labels",
            "$.metadata.annotations['a']",
            "$..image",
            "$..labels.*",
            "$..containers[?@.name == 'side']",
            "$..[?@.name == 'side'].image",
            "$.spec.template.metadata.name",
            "$.metadata[0]",
            "$[*][*].kind",
        ] {
            Path::of_others(path).unwrap_or_else(|why| panic!("{path}: {why}"));
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
            "\t",
            " in ",
            "['a b']",
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
        let _ = Path::of_others(text);
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

//! `readyProbe`: a resource's own definition of ready. The object carries the probe in an annotation, so that its readiness still
//! depends on the object alone.
//!
//! CEL is limited to comparisons and loops over lists: no expression can take long or build a value larger than its input.

mod check;

use cel::common::ast::Expr;
use cel::parser::PrattParser;
use cel::{Context, ExecutionError, IdedExpr, Value as CelValue};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::api::names;
use crate::api::resource::ReadyProbe;
use crate::decide::readiness::object::Object;
use crate::decide::readiness::{Readiness, Reason};
use crate::decide::shared::path::Path;

const BYTES_MAX: usize = 1024;
const SIGNS_MAX: usize = 32;
/// Steps of all loops together, on one object.
const STEPS_MAX: usize = 10_000;
/// The characters of a value that a message shows.
const SHOWN_CHARS: usize = 60;

#[derive(Debug)]
pub enum Probe {
    Cel {
        text: String,
        expression: IdedExpr,
    },
    JsonPath {
        text: String,
        path: Path,
        expected: String,
    },
}

impl Probe {
    /// The probe, or what is wrong with it.
    pub fn parse(probe: &ReadyProbe) -> Result<Probe, String> {
        match (&probe.cel, &probe.json_path, &probe.expected_value) {
            (Some(text), None, None) => {
                let expression = compile(text).map_err(|why| format!("cel: {why}"))?;
                let text = text.clone();
                Ok(Probe::Cel { text, expression })
            }
            (None, Some(text), Some(expected)) => {
                let path = Path::parse(text).map_err(|why| format!("jsonPath: {why}"))?;
                Ok(Probe::JsonPath {
                    text: text.clone(),
                    path,
                    expected: expected.clone(),
                })
            }
            _ => Err("give cel, or jsonPath and expectedValue".to_owned()),
        }
    }
}

fn compile(text: &str) -> Result<IdedExpr, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("it has more than {BYTES_MAX} bytes"));
    }
    // Each of these nests, and the parser and the checks recurse on the stack.
    let signs = text.matches(['!', '?', '-', '(', '[', '{']).count();
    if signs > SIGNS_MAX {
        return Err(format!(
            "it has more than {SIGNS_MAX} of the signs ! ? - ( [ and {{"
        ));
    }
    let expression = PrattParser::new().parse(text).map_err(|errors| {
        let Some(first) = errors.errors.first() else {
            return "it cannot be read".to_owned();
        };
        let said = first.msg.lines().next().unwrap_or_default();
        let (line, column) = first.pos;
        format!("{line}:{column}: {said}")
    })?;
    check::check(&expression)
        .map_err(|refusal| format!("{}{}", place(text, refusal.expression), refusal.why))?;
    match check::may_be_true(&expression) {
        true => Ok(expression),
        false => Err(
            "it gives neither true nor false; compare what it reads, as in object.status.phase == 'Running'"
                .to_owned(),
        ),
    }
}

/// The line and column at which an expression begins, as in syntax errors. The parser gives positions only with an error, so
/// append one to the text.
fn place(text: &str, expression: u64) -> String {
    let parsed = PrattParser::new().parse(&format!("{text}\n)"));
    let errors = parsed.err().map(|all| all.errors).unwrap_or_default();
    let source = errors.into_iter().find_map(|error| error.source_info);
    let start = source.and_then(|source| source.offset_for(expression));
    let before = start.and_then(|(start, _)| text.get(..start as usize));
    before.map_or(String::new(), |before| {
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |end| end + 1) + 1;
        format!("{line}:{column}: ")
    })
}

/// By the object's own probe, if it has one.
pub(super) fn rule(object: &Object<'_>) -> Option<Readiness> {
    let annotation = object.annotation(names::READY_PROBE)?;
    // An outdated status may still describe the previous generation.
    if let Some(reason) = object.unobserved_if_reported() {
        return Some(Readiness::Waiting(reason));
    }
    let probe = serde_json::from_str::<ReadyProbe>(annotation).map_err(|error| error.to_string());
    let probe = match probe.and_then(|probe| Probe::parse(&probe)) {
        Ok(probe) => probe,
        Err(message) => {
            return Some(Readiness::Waiting(Reason::ProbeUnreadable {
                name: object.name(),
                message,
            }));
        }
    };
    Some(match unmet(&probe, object.value()) {
        None => match object.may_be_old() {
            Some(reason) if object.has("/status") && !object.reports_generation() => {
                Readiness::Unknown(reason)
            }
            _ => Readiness::Ready,
        },
        Some(message) => Readiness::Waiting(Reason::ProbeUnmet {
            name: object.name(),
            message,
        }),
    })
}

/// Why the object does not meet the probe.
pub fn unmet(probe: &Probe, object: &Value) -> Option<String> {
    match probe {
        Probe::Cel { text, expression } => {
            let steps = longest(object).saturating_pow(loops(expression));
            if steps > STEPS_MAX {
                return Some(format!(
                    "{text} has to look at too many items of this object; let it look through less"
                ));
            }
            let mut context = Context::default();
            if context.add_variable("object", Json(object)).is_err() {
                return Some(format!(
                    "{text} cannot be asked: the object has no such form"
                ));
            }
            match CelValue::resolve(expression, &context) {
                Ok(CelValue::Bool(true)) => None,
                Ok(CelValue::Bool(false)) => Some(format!("{text} is false")),
                Ok(other) => Some(format!(
                    "{text} gives {}; it has to be true or false",
                    other.type_of()
                )),
                Err(error) => Some(format!("{text} has no answer yet: {}", why(&error))),
            }
        }
        Probe::JsonPath {
            text,
            path,
            expected,
        } => {
            let found = path.values(object);
            let Some(other) = found.iter().find(|value| text_of(value) != *expected) else {
                return match found.is_empty() {
                    true => Some(format!("{text} is not there yet; {expected:?} is expected")),
                    false => None,
                };
            };
            Some(match of_status(text) {
                true => {
                    let other = shown(&text_of(other));
                    format!("{text} is {other:?}; {expected:?} is expected")
                }
                false => format!("{text} has another value; {expected:?} is expected"),
            })
        }
    }
}

/// Only the status may be quoted: other fields (a Secret's data, for example) are not for everyone who can read conditions.
fn of_status(path: &str) -> bool {
    path.trim_start_matches('$').starts_with(".status")
}

/// Quotes only errors that contain no values of the object.
fn why(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(_)
        | ExecutionError::NoSuchOverload(_)
        | ExecutionError::UndeclaredReference(_) => shown(&error.to_string()),
        _ => "a value of the object is not of the kind that it asks for".to_owned(),
    }
}

/// A value whose whole numbers become CEL's int, as CEL does for JSON.
struct Json<'a>(&'a Value);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Number(number) => match number.as_i64() {
                Some(int) => serializer.serialize_i64(int),
                None => serializer.serialize_f64(number.as_f64().unwrap_or_default()),
            },
            Value::Array(items) => serializer.collect_seq(items.iter().map(Json)),
            Value::Object(fields) => {
                serializer.collect_map(fields.iter().map(|(name, value)| (name, Json(value))))
            }
            other => other.serialize(serializer),
        }
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The depth of nested loops.
fn loops(expr: &IdedExpr) -> u32 {
    let most = |all: &mut dyn Iterator<Item = &IdedExpr>| all.map(loops).max().unwrap_or(0);
    match &expr.expr {
        Expr::Select(select) => loops(&select.operand),
        Expr::List(list) => most(&mut list.elements.iter()),
        Expr::Call(call) => {
            let target = call.target.iter().map(|target| &**target);
            most(&mut target.chain(&call.args))
        }
        Expr::Comprehension(over) => {
            let body = [
                &over.accu_init,
                &over.loop_cond,
                &over.loop_step,
                &over.result,
            ];
            (1 + most(&mut body.into_iter())).max(loops(&over.iter_range))
        }
        _ => 0,
    }
}

/// Items of the largest list or map in the object.
fn longest(value: &Value) -> usize {
    match value {
        Value::Array(items) => items
            .iter()
            .map(longest)
            .max()
            .unwrap_or(0)
            .max(items.len()),
        Value::Object(fields) => {
            let inner = fields.values().map(longest).max().unwrap_or(0);
            inner.max(fields.len())
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decide::shared::planted;

    fn error(cel: &str) -> String {
        let probe = ReadyProbe {
            cel: Some(cel.to_owned()),
            ..ReadyProbe::default()
        };
        Probe::parse(&probe).err().unwrap_or_default()
    }

    #[test]
    fn what_probes_may_say() {
        for cel in [
            "object.status.phase == 'Running'",
            "has(object.status.phase) ? object.status.phase in ['A', 'B'] : false",
            "object.status.conditions.exists_one(c, c.type == 'Ready')",
            "object.status.n - 1 == 3 && object.status.f > 0.5",
            "object.metadata.labels['a/b'].startsWith('x') || !(object.spec.n - 1 < 2)",
            "object.status.parts.all(p, p.members.exists(m, m.up))",
            "size(object.status.parts.filter(p, p.up)) >= int(object.spec.replicas)",
        ] {
            assert_eq!(error(cel), "", "{cel}");
        }
    }

    #[test]
    fn what_gives_neither_true_nor_false_is_refused() {
        for cel in [
            "1",
            "'x'",
            "object",
            "[true]",
            "size(object.status.parts)",
            "object.status.n - 1",
            "object.status.parts.filter(p, p.up)",
            "object.a ? 1 : 2",
        ] {
            assert!(error(cel).contains("neither true nor false"), "{cel}");
        }
        assert_eq!(error("object.status.parts[0].up"), "");
    }

    /// Runs on a test's stack, which is small.
    #[test]
    fn the_deepest_that_probes_may_be() {
        for cel in [
            format!("{}object.a{}", "(".repeat(32), ")".repeat(32)),
            format!("{}object.a{}", "size(".repeat(32), ")".repeat(32)),
            format!("{}object.a{}", "[".repeat(32), "]".repeat(32)),
            format!("{}object.a", "!".repeat(32)),
            format!("{}object.a", "!-".repeat(16)),
            format!("{}true", "object.a?1:".repeat(32)),
            format!("object{} == true", ".a".repeat(500)),
            format!("{}true", "true&&".repeat(160)),
            format!("{}1 == 1", "1==".repeat(330)),
            format!("{}1 == 1", "1<=".repeat(330)),
            format!(
                "{}object.a{}",
                "object.a.all(x, ".repeat(30),
                ")".repeat(30)
            ),
        ] {
            let said = error(&cel);
            if said.is_empty() {
                let probe = ReadyProbe {
                    cel: Some(cel),
                    ..ReadyProbe::default()
                };
                unmet(
                    &Probe::parse(&probe).unwrap(),
                    &serde_json::json!({"a": true}),
                );
            }
        }
    }

    /// Expressions that could take long or grow, and texts that are not CEL.
    #[test]
    fn what_probes_may_not_say() {
        let deep = format!("{}object.a{}", "(".repeat(400), ")".repeat(400));
        for (cel, why) in [
            ("object.status.phase ==", "cel: 1:23: Syntax error: "),
            ("object.a ==\n == 1", "cel: 2:2: unexpected token"),
            (
                "object.a + object.a == 'x'",
                "cel: 1:10: + is not known to probes",
            ),
            (
                "object.a.map(x, x + x) == []",
                "cel: 1:19: + is not known to probes",
            ),
            (
                "object.a.matches('(a+)+$')",
                "cel: 1:17: matches is not known",
            ),
            ("now() > object.a", "cel: 1:1: now is not known"),
            (
                "objct.a == 1",
                "cel: 1:1: objct is not known to probes; the object is called object",
            ),
            ("status.phase == 'Running'", "cel: 1:1: status is not known"),
            (
                "object.a.all(x, x == 1) && x == 1",
                "cel: 1:28: x is not known",
            ),
            (
                "object.a == 1 &&\n 'é' == b // so",
                "cel: 2:10: b is not known",
            ),
            ("object.a * 2 == 4", "cel: 1:10: * is not known"),
            ("{'a': 1}.size() == 1", "cel: 1:1: a probe makes no maps"),
            (
                "object.a.all(x, object.a.all(y, object.a.all(z, x == z)))",
                "no deeper than 2 lists",
            ),
            (&deep, "of the signs"),
            (&"1==".repeat(30), "cel: "),
            (&format!("{}1 == 1", "1==".repeat(30)), "expressions deep"),
            (
                &format!("'{}' == object.a", "a".repeat(1024)),
                "more than 1024",
            ),
        ] {
            let said = error(cel);
            assert!(said.contains(why), "{cel}: {said:?}");
        }
    }
    fn text() -> impl Strategy<Value = String> {
        let pieces = [
            "object",
            "object.a",
            "object.status.n",
            "object.status.list",
            "x",
            ".a",
            "['a']",
            "[0]",
            "[-1]",
            "[9223372036854775807]",
            "has(",
            "size(",
            "int(",
            ")",
            "(",
            ".all(x, ",
            ".exists(x, ",
            ".filter(x, ",
            ".exists_one(x, ",
            ".startsWith('",
            "')",
            "== ",
            "!= ",
            "< ",
            ">= ",
            "&& ",
            "|| ",
            "!",
            "- ",
            "-",
            "? ",
            ": ",
            "in ",
            "[",
            "]",
            "'a'",
            "b'a'",
            "1",
            "1u",
            "1.5",
            "1e400",
            "-9223372036854775808",
            "true",
            "null",
            "\u{65e5}",
            "\\",
            "\"\"\"",
            "// ",
            "object.a == 'x' ",
            "object.status.list.exists(x, x == 1) ",
        ];
        let pieces = prop::sample::select(pieces.to_vec());
        let some = prop::collection::vec(pieces, 0..9).prop_map(|pieces| pieces.concat());
        prop_oneof![4 => some, 1 => any::<String>()]
    }

    /// The probe's result; None if it is rejected.
    fn asked(text: String) -> Option<bool> {
        let object = serde_json::json!({
            "a": "x", "status": {"n": i64::MIN, "list": [1, "x", null, [], {"a": 1.5}], "u": u64::MAX, "f": -0.0},
        });
        let probe = ReadyProbe {
            cel: Some(text),
            ..ReadyProbe::default()
        };
        let probe = Probe::parse(&probe).ok()?;
        Some(unmet(&probe, &object).is_none())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: planted::CASES, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_is_written_is_judged(text in text()) {
            asked(text);
        }
    }

    /// Proves that the property test would detect a panic.
    #[test]
    fn a_panic_where_a_loop_is_true_would_be_found() {
        let planted = |text: &String| text.contains("(x, ") && asked(text.clone()) == Some(true);
        assert!(planted::is_found(&text(), planted));
    }
}

//! Every function with arguments of any type, number and size: a value or an error, never a panic.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::budget::{Budget, Limits};
use crate::context::Context;
use crate::facts::Place;
use crate::functions::tests::facts;
use crate::functions::{Function, Outcome, all, methods};
use crate::library::Library;
use crate::named::Named;
use crate::output::Output;
use crate::signature::Param;
use crate::time::Time;
use crate::value::{Certificate, Dict, Element, List, Text, Typed, Value};
use crate::version::Version;

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => -3..12i64,
        1 => any::<i64>(),
        1 => prop::sample::select(vec![i64::MIN, i64::MAX, i64::MIN + 1, 1 << 31, 1_000_000]),
    ]
}

fn bytes() -> impl Strategy<Value = Text> {
    const PIECES: [&[u8]; 32] = [
        b"",
        b" ",
        b"a",
        b"B",
        b"-",
        b"_",
        b"\n",
        b"%d",
        b"%[2]*.3f",
        b"%!",
        b"{",
        b"[1,",
        b"\"",
        b"1e9",
        b"-0x1",
        b"=",
        b"\xff",
        "日".as_bytes(),
        "\u{2028}".as_bytes(),
        b"http://[::1]:8/",
        b"2006-01",
        b"%99999999d",
        b"/..",
        b"\\u12",
        b"[a-z]+",
        b"(?i:x|)*",
        b"\\pL{3,}",
        b"$1",
        b"^1.x || >=2",
        b"1.2.3-a+b",
        b"1h1.5m",
        b"Europe/Berlin",
    ];
    prop_oneof![
        3 => vec(prop::sample::select(PIECES.to_vec()), 0..6).prop_map(|pieces| Text::from(pieces.concat())),
        1 => vec(any::<u8>(), 0..20).prop_map(Text::from),
    ]
}

fn moment() -> impl Strategy<Value = Value> {
    (-377_705_023_201i64..=253_402_207_200).prop_map(|seconds| {
        let moment = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        Value::time(Time::utc(moment))
    })
}

fn version() -> impl Strategy<Value = Value> {
    Just("v1.2.3-a.1+m").prop_filter_map("a version", |text| {
        Version::parse(text)
            .ok()
            .map(|version| Value::Version(Arc::new(version)))
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        number().prop_map(Value::Int),
        number().prop_map(Value::Int64),
        any::<u8>().prop_map(Value::Uint8),
        any::<u64>().prop_map(Value::Uint64),
        any::<f64>().prop_map(Value::Float),
        bytes().prop_map(Value::Str),
        moment(),
        version(),
        number().prop_map(|n| Value::Named(Named::Month(n))),
        number().prop_map(|n| Value::Named(Named::Duration(n))),
        (bytes(), bytes())
            .prop_map(|(cert, key)| { Value::Certificate(Rc::new(Certificate { cert, key })) }),
        number().prop_map(|n| Value::Typed(Typed::Int(n))),
        any::<f64>().prop_map(|f| Value::Typed(Typed::Float(f))),
        any::<bool>().prop_map(|b| Value::Typed(Typed::Bool(b))),
        Just(Value::List(List::nil(Element::Any))),
        vec(bytes(), 0..4).prop_map(|texts| {
            Value::List(List::new(
                Element::Str,
                texts.into_iter().map(Value::Str).collect(),
            ))
        }),
        vec(number(), 0..4).prop_map(|numbers| {
            Value::List(List::new(
                Element::Int,
                numbers.into_iter().map(Value::Int).collect(),
            ))
        }),
        btree_map(bytes(), bytes(), 0..3).prop_map(|texts| {
            let entries = texts.into_iter().map(|(key, text)| (key, Value::Str(text)));
            Value::Dict(Dict::of_strings(entries.collect()))
        }),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| Value::List(List::new(Element::Any, items))),
            btree_map(bytes(), inner, 0..4)
                .prop_map(|entries: BTreeMap<_, _>| Value::Dict(Dict::new(entries))),
        ]
    })
}

/// A value that the parameter takes.
fn fitting(param: Param) -> BoxedStrategy<Value> {
    match param {
        Param::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Param::Int => number().prop_map(Value::Int).boxed(),
        Param::Str => bytes().prop_map(Value::Str).boxed(),
        Param::Float64 => any::<f64>().prop_map(Value::Float).boxed(),
        Param::Named("time.Duration") => number()
            .prop_map(|n| Value::Named(Named::Duration(n)))
            .boxed(),
        Param::Named("*semver.Version") => prop_oneof![Just(Value::Nil), version()].boxed(),
        Param::Named(_) => moment().boxed(),
        Param::Dict => prop_oneof![
            Just(Value::Nil),
            btree_map(bytes(), value(), 0..4).prop_map(|entries| Value::Dict(Dict::new(entries))),
        ]
        .boxed(),
        _ => value().boxed(),
    }
}

fn context() -> Context {
    let limits = Limits {
        steps: 20_000,
        memory_bytes: 1 << 20,
        ..Limits::default()
    };
    let place = Place {
        path: "spec.x".to_owned(),
        text: Arc::from("{{ . }}"),
    };
    Context::with_facts(Budget::new(limits), facts(7, "acme", "app"), place)
}

/// The result must print, too.
fn call(function: &Function, args: &[Value]) {
    let outcome = function.invoke(&mut context(), args);
    print(outcome);
}

fn print(outcome: Outcome) {
    if let Ok(value) = outcome {
        let mut output = Output::default();
        let mut budget = Budget::default();
        let _ = output.write_value(&value, &mut budget);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_arguments_end_in_a_value_or_an_error(args in vec(value(), 0..5)) {
        for function in all() {
            call(function, &args);
        }
    }
}

#[test]
fn fitting_arguments_end_in_a_value_or_an_error() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    for function in all() {
        let signature = function.signature;
        let count = signature.fixed.len() + signature.variadic.map_or(0, |_| 3);
        let params: Vec<Param> = (0..count).filter_map(|at| signature.param(at)).collect();
        let args: Vec<BoxedStrategy<Value>> = params.into_iter().map(fitting).collect();
        let outcome = runner.run(&args, |args| {
            call(function, &args);
            Ok(())
        });
        assert!(outcome.is_ok(), "{}: {outcome:?}", function.name);
    }
}

/// Also calls methods on values of other types, which the engines never allow.
#[test]
fn methods_end_in_a_value_or_an_error() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    for method in methods::all() {
        let fixed = method.signature.fixed.iter().copied();
        let receivers = prop_oneof![
            value(),
            moment(),
            version(),
            number().prop_map(|n| Value::Named(Named::Duration(n))),
            number().prop_map(|n| Value::Named(Named::Weekday(n))),
        ];
        let args: Vec<BoxedStrategy<Value>> = [receivers.boxed()]
            .into_iter()
            .chain(fixed.map(fitting))
            .collect();
        let outcome = runner.run(&args, |args| {
            print(method.invoke(&mut context(), &args));
            Ok(())
        });
        assert!(outcome.is_ok(), "{}: {outcome:?}", method.name);
    }
}

#[test]
fn names_are_unique_and_the_dangerous_ones_unknown() {
    let mut names: Vec<&str> = all().map(|function| function.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for name in [
        "env",
        "expandenv",
        "getHostByName",
        "readFile",
        "lookup",
        "and",
        "or",
    ] {
        assert!(Library::sprig().get(name).is_none(), "{name}");
    }
}

//! Every case of tests/language.json, compared with what Go gave: output and error text, byte for byte. The few
//! cases where the engine differs on purpose say so.

use serde_json::Value as Json;

use crate::template::tests::render;

const CASES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/language.json"));
const GOLDEN: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/language.golden.json"
));

/// Go's result for a case.
fn expected(golden: &Json) -> Result<Vec<u8>, String> {
    let text = |key: &str| golden[key].as_str().map(str::to_owned);
    let hex = |text: String| {
        let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digits).collect()
    };
    let error = text("parse_error").or(text("exec_error"));
    match (error, text("output"), text("output_hex")) {
        (Some(error), ..) => Err(error),
        (None, Some(output), _) => Ok(output.into_bytes()),
        (None, None, output_hex) => Ok(hex(output_hex.unwrap())),
    }
}

fn shown(result: &Result<Vec<u8>, String>) -> String {
    match result {
        Ok(bytes) => format!("output {:?}", String::from_utf8_lossy(bytes)),
        Err(error) => format!("error  {error:?}"),
    }
}

#[test]
fn results_are_those_of_go() {
    let file: Json = serde_json::from_str(CASES).unwrap();
    let golden: Vec<Json> = serde_json::from_str(GOLDEN).unwrap();
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), golden.len(), "run the oracle again");
    let mut different = Vec::new();
    for (case, golden) in cases.iter().zip(&golden) {
        assert_eq!(case["name"], golden["name"], "run the oracle again");
        let template = case["template"].as_str().unwrap();
        let got = render(template, &file["vars"]);
        let wanted = match case["ours"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => expected(golden),
        };
        if got != wanted {
            different.push(format!(
                "{}: {template:?}\n  Go:   {}\n  ours: {}",
                case["name"],
                shown(&wanted),
                shown(&got)
            ));
        }
    }
    let (count, text) = (different.len(), different.join("\n"));
    assert!(
        different.is_empty(),
        "{count} cases differ from Go:\n{text}"
    );
}

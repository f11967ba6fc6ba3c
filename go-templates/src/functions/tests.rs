//! Properties that the Go oracle cannot check: random values, limits, typed values, and that no function panics.

mod arbitrary;
mod certificates;
mod limits;
mod random;
mod times;

use std::sync::Arc;

use crate::budget::Budget;
use crate::context::Context;
use crate::error::TemplateError;
use crate::facts::{Facts, Place, Seed};
use crate::library::Library;
use crate::output::Output;
use crate::template::Template;
use crate::value::Value;

fn facts(key: u8, user: &str, document: &str) -> Arc<Facts> {
    Arc::new(Facts {
        now: Ok("2026-01-02T03:04:05.6Z".parse().unwrap()),
        seed: Ok(Seed::new([key; 32], [user, document])),
    })
}

fn variables() -> Value {
    Value::dict([
        ("uid", Value::str("acme-web")),
        ("n", Value::str("5")),
        ("empty", Value::str("")),
        ("half", Value::str("2.5")),
    ])
}

/// The output of the template with these facts, at this path.
fn rendered(
    text: &str,
    variables: &Value,
    facts: Arc<Facts>,
    path: &str,
) -> Result<Output, TemplateError> {
    let template = Template::parse(&Library::sprig(), "t", text)?;
    let place = Place {
        path: path.to_owned(),
        text: Arc::from(text),
    };
    let mut context = Context::with_facts(Budget::default(), facts, place);
    template.render(variables, &mut context)
}

fn render(text: &str) -> Result<Output, TemplateError> {
    rendered(text, &variables(), facts(7, "acme", "app"), "spec.x")
}

fn text(template: &str) -> String {
    match render(template) {
        Ok(output) => output.into_text(),
        Err(error) => error.message,
    }
}

//! What no other engine can tell of the functions: random values, limits, typed values, and that none panics.

mod arbitrary;
mod certificates;
mod limits;
mod random;
mod times;
mod typed;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::decide::template::budget::Limits;
use crate::decide::template::facts::{Facts, Seed};
use crate::decide::template::{Engine, Inputs, Rendered, Template, TemplateError};

fn facts(key: u8, uid: &str, resource_id: &str) -> Arc<Facts> {
    Arc::new(Facts {
        first_seen: "2026-01-02T03:04:05.6Z".parse().unwrap(),
        seed: Seed {
            key: [key; 32],
            uid: uid.to_owned(),
            resource_id: resource_id.to_owned(),
        },
    })
}

fn row() -> BTreeMap<String, String> {
    let row = [
        ("uid", "acme-web"),
        ("n", "5"),
        ("empty", ""),
        ("half", "2.5"),
    ];
    row.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn inputs() -> Inputs {
    Inputs::new(&row(), Some(facts(7, "acme", "app")), Limits::default())
}

fn render(text: &str) -> Result<Rendered, TemplateError> {
    Template::parse(Engine::Go, "t", text)?.render(&inputs(), "spec.x")
}

fn text(template: &str) -> String {
    match render(template) {
        Ok(rendered) => rendered.into_text(),
        Err(error) => error.message,
    }
}

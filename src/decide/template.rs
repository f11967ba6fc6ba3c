//! Templates of a form: Go's language (the crate `go_templates`) or Jinja, with the same functions and limits. Reads no clock,
//! file or environment, and never parses a row's values as templates.

pub mod facts;
pub mod functions;
pub mod inputs;
pub mod jinja;
pub mod public;

use std::sync::Arc;

use go_templates::value::Typed;
use go_templates::{Budget, Context, Place, TemplateError, Value};

use crate::decide::shared::near::did_you_mean;

use functions::LIBRARY;
pub use inputs::{Inputs, LIMITS, row_budget};

/// The language of a form's templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// Go's text/template with sprig's and Lynq's functions.
    #[default]
    Go,
    Jinja,
}

impl Engine {
    /// Whether the text contains any template syntax. Other text is used unchanged.
    pub fn has_template(self, text: &str) -> bool {
        match self {
            Engine::Go => text.contains("{{"),
            Engine::Jinja => ["{{", "{%", "{#"].iter().any(|start| text.contains(start)),
        }
    }
}

/// A parsed template: parsed once, rendered for every row, from any thread.
#[derive(Debug)]
pub struct Template {
    text: Arc<str>,
    parsed: Parsed,
}

#[derive(Debug)]
enum Parsed {
    /// Text without a template.
    Plain,
    Go(go_templates::Template),
    Jinja(Box<jinja::Template>),
}

const _: () = {
    const fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<Template>();
};

impl Template {
    pub fn parse(engine: Engine, name: &str, text: &str) -> Result<Template, TemplateError> {
        let parsed = match engine {
            _ if !engine.has_template(text) => Parsed::Plain,
            Engine::Go => Parsed::Go(parse_go(name, text)?),
            Engine::Jinja => Parsed::Jinja(Box::new(jinja::Template::parse(name, text)?)),
        };
        Ok(Template {
            text: Arc::from(text),
            parsed,
        })
    }

    /// Renders the template for one row. `path` is its place in the resource, on which random values depend.
    pub fn render(&self, inputs: &Inputs, path: &str) -> Result<Rendered, TemplateError> {
        let (text, typed) = match &self.parsed {
            Parsed::Plain => (self.text.to_string(), None),
            Parsed::Go(template) => {
                let mut context = self.context(inputs, path);
                let variables = Value::Dict(inputs.variables());
                template.render(&variables, &mut context)?.finish()
            }
            Parsed::Jinja(template) => template.render(inputs, self.context(inputs, path))?,
        };
        Ok(Rendered { text, typed })
    }

    /// As `render`, with an error for conditions, events and logs: its place, and only words that every reader may see.
    pub fn render_publicly(&self, inputs: &Inputs, path: &str) -> Result<Rendered, String> {
        const PUBLIC: [&[u8]; 3] = [b"uid", b"hubId", b"templateRef"];
        self.render(inputs, path).map_err(|error| {
            let public = PUBLIC.iter().filter_map(|name| inputs.variables.get(*name));
            let public = public.filter_map(|value| std::str::from_utf8(value).ok());
            let known: Vec<&str> = public.chain([self.text()]).collect();
            format!("{path}: {}", shortened(public::message(&error, &known)))
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the text has no template, so that every row gets it unchanged.
    pub fn is_plain(&self) -> bool {
        matches!(self.parsed, Parsed::Plain)
    }

    fn context(&self, inputs: &Inputs, path: &str) -> Context {
        let budget = Budget::new(inputs.limits).within(inputs.row.clone());
        let place = Place {
            path: path.to_owned(),
            text: self.text.clone(),
        };
        Context::with_facts(budget, inputs.facts.clone(), place)
    }
}

/// On an unknown function, adds a suggestion to Go's message.
fn parse_go(name: &str, text: &str) -> Result<go_templates::Template, TemplateError> {
    go_templates::Template::parse(&LIBRARY, name, text).map_err(|mut error| {
        if let Some(unknown) = &error.unknown_function {
            let known = LIBRARY.functions().map(|function| function.name);
            let meant = did_you_mean(unknown, known);
            error.message.push_str(&meant);
        }
        error
    })
}

/// Keeps the beginning of an error, which says where it occurred, and its end, which says why: a long one does not fit into a
/// condition or event.
fn shortened(message: String) -> String {
    const HEAD_BYTES: usize = 700;
    const TAIL_BYTES: usize = 300;
    if message.len() <= HEAD_BYTES + TAIL_BYTES {
        return message;
    }
    let (head, rest) = message.split_at(message.floor_char_boundary(HEAD_BYTES));
    let tail = rest.ceil_char_boundary(rest.len() - TAIL_BYTES);
    format!("{head} […] {}", &rest[tail..])
}

/// The output of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    text: String,
    /// The value of `int`, `float` or `bool`, if it is all that was written.
    typed: Option<Typed>,
}

impl Rendered {
    pub fn into_text(self) -> String {
        self.text
    }

    /// The leaf of a resource: a number or boolean if the template wrote a typed value and nothing else, unless
    /// the field must stay text.
    pub fn into_leaf(self, keep_text: bool) -> serde_json::Value {
        match self.typed.and_then(typed_leaf) {
            Some(leaf) if !keep_text => leaf,
            _ => serde_json::Value::String(self.text),
        }
    }
}

/// A float without a fraction becomes an integer, as in Go's JSON: the API server rejects `2.0` in an integer field. A value that
/// JSON has no number for stays a string.
fn typed_leaf(typed: Typed) -> Option<serde_json::Value> {
    match typed {
        Typed::Int(number) => Some(number.into()),
        Typed::Bool(yes) => Some(yes.into()),
        Typed::Float(float) => {
            let is_whole = float.fract() == 0.0 && float.abs() < 2f64.powi(63);
            if is_whole {
                Some((float as i64).into())
            } else {
                serde_json::Number::from_f64(float).map(serde_json::Value::Number)
            }
        }
    }
}

//! Templates of a form: Go's dialect or Jinja over one function table, under limits. Reads no clock, file or environment, and never parses a row's values.

pub mod budget;
pub mod duration;
pub mod facts;
pub mod format;
pub mod functions;
pub mod go;
pub mod inputs;
pub mod jinja;
pub mod named;
pub mod number;
pub mod output;
pub mod public;
pub mod quote;
pub mod runes;
pub mod signature;
pub mod time;
pub mod value;
pub mod version;

use std::sync::Arc;

use thiserror::Error;

use budget::{Budget, Limit};
use facts::Place;
use functions::Context;
pub use inputs::Inputs;
use value::{Typed, Value};

/// The language of a form's templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// Go's text/template with sprig's and Lynq's functions.
    #[default]
    Go,
    Jinja,
}

impl Engine {
    /// Whether the text holds anything to be rendered. All else is taken as it is.
    pub fn has_template(self, text: &str) -> bool {
        match self {
            Engine::Go => text.contains("{{"),
            Engine::Jinja => ["{{", "{%", "{#"].iter().any(|start| text.contains(start)),
        }
    }
}

/// Why a template did not parse or render.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct TemplateError {
    /// The name it was parsed under.
    pub template: String,
    pub line: Option<u32>,
    /// In bytes, the first is 0.
    pub column: Option<u32>,
    /// For a user, with name and place in it.
    pub message: String,
    /// The limit that ended the rendering, if one did.
    pub limit: Option<Limit>,
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
    Go(go::Template),
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
            Engine::Go => Parsed::Go(go::Template::parse(name, text)?),
            Engine::Jinja => Parsed::Jinja(Box::new(jinja::Template::parse(name, text)?)),
        };
        Ok(Template {
            text: Arc::from(text),
            parsed,
        })
    }

    /// Renders for one row. `path` says where in the resource the template stands: random values depend on it.
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

    /// The same for conditions, events and logs: why it gives nothing, with its place and in words that everybody may read.
    pub fn render_publicly(&self, inputs: &Inputs, path: &str) -> Result<Rendered, String> {
        const PUBLIC: [&[u8]; 3] = [b"uid", b"hubId", b"templateRef"];
        self.render(inputs, path).map_err(|error| {
            let public = PUBLIC.iter().filter_map(|name| inputs.variables.get(*name));
            let public = public.filter_map(|value| std::str::from_utf8(value).ok());
            let known: Vec<&str> = public.chain([self.text()]).collect();
            format!("{path}: {}", shortened(error.public(&known)))
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether every row gets the same text, the one it was parsed from.
    pub fn is_plain(&self) -> bool {
        matches!(self.parsed, Parsed::Plain)
    }

    fn context(&self, inputs: &Inputs, path: &str) -> Context {
        let budget = Budget::new(inputs.limits, inputs.row.clone());
        match &inputs.facts {
            Some(facts) => {
                let place = Place {
                    path: path.to_owned(),
                    text: self.text.clone(),
                };
                Context::with_facts(budget, facts.clone(), place)
            }
            None => Context::new(budget),
        }
    }
}

/// Where it came about stands at the beginning of an error, why at its end. Conditions and events have no room for all of a long one.
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

/// What a template wrote.
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

/// A float without a fraction becomes an integer, as in Go's JSON: `2.0` would be refused where an integer is wanted.
/// What JSON has no number for stays text.
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

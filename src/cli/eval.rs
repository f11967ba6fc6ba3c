//! `lynqgate eval`: one template, to be tried out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::cli::file;
use crate::decide::template::budget::Limits;
use crate::decide::template::facts::{Facts, Seed};
use crate::decide::template::{self, Inputs, Template};

#[derive(clap::Args)]
pub struct Arguments {
    /// The template's text.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    template: String,
    /// The variables: a JSON object of texts.
    #[arg(long, value_name = "FILE")]
    vars: Option<PathBuf>,
    /// Its language.
    #[arg(long, value_enum, default_value = "go")]
    engine: Engine,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    Go,
    Jinja,
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
struct Error {
    path: String,
    reason: String,
}

/// The name that errors have; Lynq's for a template outside of a form.
const NAME: &str = "template";

pub fn eval(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let variables = match &arguments.vars {
        Some(path) => variables(&file::mapping(path)?).map_err(|reason| Error {
            path: path.display().to_string(),
            reason,
        })?,
        None => BTreeMap::new(),
    };
    let engine = match arguments.engine {
        Engine::Go => template::Engine::Go,
        Engine::Jinja => template::Engine::Jinja,
    };
    let facts = Facts {
        first_seen: Timestamp::now(),
        seed: Seed {
            key: [0; 32],
            uid: variables.get("uid").cloned().unwrap_or_default(),
            resource_id: String::new(),
        },
    };
    let inputs = Inputs::new(&variables, Some(Arc::new(facts)), Limits::default());
    let rendered = Template::parse(engine, NAME, &arguments.template)?.render(&inputs, NAME)?;
    print!("{}", rendered.into_text());
    Ok(())
}

/// Like a row's: every variable is a text.
fn variables(fields: &Map<String, Value>) -> Result<BTreeMap<String, String>, String> {
    let text = |(name, value): (&String, &Value)| {
        let text = file::text(value).map_err(|reason| format!("{name:?} is {reason}"))?;
        Ok((name.clone(), text.unwrap_or_default()))
    };
    fields.iter().map(text).collect()
}

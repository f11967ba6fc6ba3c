//! `lynqgate eval`: one template, to be tried out.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Map;

use crate::cli::file::{self, Mapping};
use crate::cli::output::print;
use crate::cluster::clock;
use crate::decide::template::{self, Inputs, LIMITS, Template, facts};

#[derive(clap::Args)]
pub struct Arguments {
    /// Text of the template.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    template: String,
    /// File with the variables: a JSON object. In the template, texts, numbers, booleans and null are texts, as the values of a
    /// row are. Lists and objects are as fromJson returns them; a row holds them as text.
    #[arg(long, value_name = "FILE")]
    vars: Option<PathBuf>,
    /// Template language.
    #[arg(long, value_enum, default_value = "go")]
    engine: Engine,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    Go,
    Jinja,
}

/// The name that errors have; Lynq's for a template outside of a form.
const NAME: &str = "template";

pub fn eval(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let given = match &arguments.vars {
        Some(path) => {
            let mapping = Mapping::read(path)?;
            let checked = mapping.check(mapping.fields.keys().map(String::as_str));
            checked.map_err(|reason| format!("{}: {reason}", path.display()))?;
            mapping.fields
        }
        None => Map::new(),
    };
    let (structured, plain): (Map<_, _>, Map<_, _>) = given
        .into_iter()
        .partition(|(_, value)| value.is_array() || value.is_object());
    let text = |(name, value)| Some((name, file::text(&value).ok()?.unwrap_or_default()));
    let variables: BTreeMap<String, String> = plain.into_iter().filter_map(text).collect();
    let engine = match arguments.engine {
        Engine::Go => template::Engine::Go,
        Engine::Jinja => template::Engine::Jinja,
    };
    let uid = variables.get("uid").map_or("", String::as_str);
    let facts = facts::of(clock::now(), [0; 32], uid, "");
    let inputs = Inputs::new(&variables, Some(facts), LIMITS).with_structured(structured);
    let rendered = Template::parse(engine, NAME, &arguments.template)?.render(&inputs, NAME)?;
    print(rendered.into_text())?;
    Ok(())
}

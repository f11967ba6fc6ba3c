//! `lynqgate render`: what the operator would make of one row, without a cluster and a database.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::cli::definitions::{self, Definitions};
use crate::cli::file::{self, Mapping};
use crate::cli::output::{print, tell};
use crate::cluster::clock;
use crate::decide::hub::rows::{Collector, RawRow, RowCount, Rows};

#[derive(clap::Args)]
pub struct Arguments {
    /// File with the LynqForm, in YAML or JSON; it may hold other objects, too. - for standard input.
    #[arg(short, long, value_name = "FILE")]
    form: PathBuf,
    /// File with the row: a JSON object. Its keys are columns with --hub, and template variables (with `uid`) without.
    #[arg(long, value_name = "FILE")]
    row: PathBuf,
    /// File with the LynqHub, which maps columns to template variables.
    #[arg(long, value_name = "FILE")]
    hub: Option<PathBuf>,
    /// Output format of the LynqNode.
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Yaml,
    Json,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{path}: {reason}")]
    Row { path: String, reason: String },
    /// In the words of the hub's conditions.
    #[error("{0}")]
    Found(String),
}

pub fn render(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let definitions = Definitions::read(&arguments.form, arguments.hub.as_deref())?;
    let rows = rows(&arguments.row, &definitions)?;
    let source = definitions.source(rows);
    let plan = definitions::plan(&source, clock::now());
    for write in &plan.writes {
        let node = shown(&source.object(write));
        match arguments.output {
            Output::Yaml => print(serde_saphyr::to_string(&node)?)?,
            Output::Json => print(serde_json::to_string_pretty(&node)? + "\n")?,
        }
    }
    if source.rows.inactive > 0 {
        tell("the row is inactive: it gets no node");
    }
    for findings in [&plan.skipped, &plan.render_errors] {
        if findings.sentences().next().is_some() {
            return Err(Error::Found(findings.to_string()).into());
        }
    }
    Ok(())
}

/// The node without what only the operator and the cluster can add.
fn shown(node: &Value) -> Value {
    let mut metadata = Map::new();
    for field in ["name", "namespace", "labels"] {
        if !matches!(&node["metadata"][field], Value::String(text) if text.is_empty()) {
            metadata.insert(field.to_owned(), node["metadata"][field].clone());
        }
    }
    let filled =
        |(_, value): &(&String, &Value)| !matches!(value, Value::Array(list) if list.is_empty());
    let spec = node["spec"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(filled);
    let spec: Map<String, Value> = spec
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    json!({"apiVersion": node["apiVersion"], "kind": node["kind"], "metadata": metadata, "spec": spec})
}

/// The one row, as a data source would give it. Without a hub it is active, unless it says otherwise.
fn rows(path: &Path, definitions: &Definitions) -> Result<Rows, Box<dyn std::error::Error>> {
    let wrong = |reason: String| Error::Row {
        path: path.display().to_string(),
        reason,
    };
    let mapping = Mapping::read(path)?;
    let mut row = mapping.fields.clone();
    if definitions.hub().is_none() {
        row.entry("activate").or_insert(json!("1"));
    }
    let columns = definitions.columns(row.keys().map(String::as_str))?;
    let selected = columns.selected();
    mapping.check(selected.iter().copied()).map_err(wrong)?;
    let values = selected.into_iter().map(|column| {
        let value = row.get(column).ok_or_else(|| match definitions.hub() {
            Some(hub) => {
                format!("the row has no column {column:?}, which LynqHub {hub} maps")
            }
            None => format!(
                "the row has no {column:?}: add it, or give --hub: its valueMappings say which column that is"
            ),
        })?;
        file::text(value).map_err(|reason| format!("{column:?} is {reason}"))
    });
    let values = values.map(|value| value.map(|text| text.map(String::into_bytes)));
    let raw = RawRow {
        number: 1,
        values: values.collect::<Result<_, _>>().map_err(wrong)?,
    };
    let mut collector = Collector::new(&columns);
    collector.push(raw);
    Ok(collector.finish(RowCount(1))?)
}

//! `lynqgate render`: what the operator would make of one row, without a cluster and a database.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::api::crd;
use crate::cli::file::{self, Mapping};
use crate::cli::output::{print, tell};
use crate::cli::schema;
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::clock;
use crate::decide::admission::{form, hub};
use crate::decide::hub::rows::activity::Words;
use crate::decide::hub::rows::{Collector, Columns, RawRow, RowCount, Rows};
use crate::decide::hub::sync::{self, SyncInputs};

#[derive(clap::Args)]
pub struct Arguments {
    /// Where the LynqForm is, in YAML or JSON; other objects may be there, too. - for standard input.
    #[arg(short, long, value_name = "FILE")]
    form: PathBuf,
    /// The row: a JSON object. With --hub by column, else by template variable, `uid` among them.
    #[arg(long, value_name = "FILE")]
    row: PathBuf,
    /// Where the LynqHub is, whose mappings make variables of the row's columns.
    #[arg(long, value_name = "FILE")]
    hub: Option<PathBuf>,
    /// Form of the answer, the LynqNode.
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
    #[error("{kind} {name}: {reason}")]
    Object {
        kind: &'static str,
        name: String,
        reason: String,
    },
    #[error("{path}: {reason}")]
    Row { path: String, reason: String },
    /// In the words of the hub's conditions.
    #[error("{0}")]
    Found(String),
}

/// What there is no database for: a row by its template variables.
const VARIABLES: [&str; 3] = ["uid", "activate", "hostOrUrl"];

pub fn render(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let [of_hubs, of_forms, _] = crd::definitions();
    let object = read(&arguments.form, "LynqForm", &of_forms)?;
    let form = Form::of(&object);
    let judged = form::judge(None, &object, clock::now());
    for warning in judged.verdict.warnings {
        tell(format_args!("Warning: {warning}"));
    }
    // A new form either is denied, or changes something.
    let change = judged.change.ok_or_else(|| Error::Object {
        kind: "lynqform",
        name: form.name.clone(),
        reason: judged.verdict.denied.unwrap_or_default(),
    })?;
    let hub = match &arguments.hub {
        Some(path) => {
            let object = read(path, "LynqHub", &of_hubs)?;
            let hub = Hub::of(&object);
            let denied = hub::judge(None, &object).denied;
            let other =
                (hub.name != form.hub_id).then(|| format!("the form is of hub {:?}", form.hub_id));
            let away = [&hub.namespace, &form.namespace];
            let away = (hub.namespace != form.namespace && !away.iter().any(|n| n.is_empty()))
                .then(|| {
                    format!(
                        "it is in namespace {:?}, and the form in {:?}; a form is of a hub in its own",
                        hub.namespace, form.namespace
                    )
                });
            if let Some(reason) = denied.or(other).or(away) {
                return Err(Error::Object {
                    kind: "lynqhub",
                    name: hub.name,
                    reason,
                }
                .into());
            }
            Some(hub)
        }
        None => None,
    };
    let rows = rows(&arguments.row, hub.as_ref())?;
    let forms = BTreeMap::from([(
        form.name.clone(),
        sync::Form {
            generation: 1,
            policy: change.spec.rollout.clone().unwrap_or_default(),
            forced: false,
            all_written: false,
            compiled: change.new,
        },
    )]);
    let source = sync::RenderSource {
        hub: sync::Hub {
            namespace: form.namespace.clone(),
            name: form.hub_id.clone(),
            uid: String::new(),
            skew: Default::default(),
            deletions: sync::Allowance::default(),
            creations: sync::Allowance::default(),
            seed: [0; 32],
        },
        forms,
        rows,
    };
    let plan = sync::plan(
        &SyncInputs {
            source: &source,
            broken_forms: &BTreeSet::new(),
            nodes: &[],
            foreign: &|_| None,
            moved: &|_| None,
            rendered: &sync::Rendered::new(),
        },
        clock::now(),
    );
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

/// The object as the webhook would get it. What the API server would refuse, or leave out without a word, is an error.
fn read(
    path: &Path,
    kind: &'static str,
    definition: &Value,
) -> Result<Value, Box<dyn std::error::Error>> {
    let mut object = file::object(path, kind)?;
    let schema = schema::of_spec(definition);
    let mut problems = schema::misnamed(&object, kind);
    // Without one, the webhook says what is missing first.
    if !object["spec"].is_null() {
        object["spec"] = schema::filled(schema, object["spec"].take());
        problems.extend(schema::problems(schema, &object["spec"], "spec"));
    }
    if problems.is_empty() {
        return Ok(object);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(Error::Object {
        kind: match kind {
            "LynqHub" => "lynqhub",
            _ => "lynqform",
        },
        name: name.to_owned(),
        reason: problems.join("; "),
    }
    .into())
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

/// The one row, as a data source would give it.
fn rows(path: &Path, hub: Option<&Hub>) -> Result<Rows, Box<dyn std::error::Error>> {
    let wrong = |reason: String| Error::Row {
        path: path.display().to_string(),
        reason,
    };
    let mapping = Mapping::read(path)?;
    let mut row = mapping.fields.clone();
    let columns = match hub {
        Some(hub) => {
            let invalid = |reason| Error::Object {
                kind: "lynqhub",
                name: hub.name.clone(),
                reason,
            };
            let spec = hub.spec.clone().map_err(invalid)?;
            Columns::of(&spec).map_err(invalid)?
        }
        None => {
            row.entry("activate").or_insert(json!("1"));
            let extra = row
                .keys()
                .filter(|name| !VARIABLES.contains(&name.as_str()));
            Columns {
                uid: "uid".to_owned(),
                activate: "activate".to_owned(),
                host_or_url: row
                    .contains_key("hostOrUrl")
                    .then(|| "hostOrUrl".to_owned()),
                extra: extra.map(|name| (name.clone(), name.clone())).collect(),
                words: Words::default(),
            }
        }
    };
    let selected = columns.selected();
    mapping.check(selected.iter().copied()).map_err(wrong)?;
    let values = selected.into_iter().map(|column| {
        let value = row.get(column).ok_or_else(|| match hub {
            Some(hub) => format!(
                "the row has no column {column:?}, which LynqHub {} maps",
                hub.name
            ),
            None => format!("the row has no {column:?}"),
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

//! The forms and the hub that a user names on the command line: checked as the API server and the webhooks check them, and rendered
//! as the operator renders them. It reads no cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::crd;
use crate::api::policy::Skew;
use crate::cli::file;
use crate::cli::output::tell;
use crate::cli::schema;
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::clock;
use crate::decide::admission::{form, hub};
use crate::decide::hub::rows::activity::Words;
use crate::decide::hub::rows::{Columns, Rows};
use crate::decide::hub::sync::{self, RenderSource, SyncInputs};

/// A form that can be rendered, and the hub that it is of.
pub struct Definitions {
    form: Form,
    change: form::Change,
    hub: Option<Hub>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] file::Error),
    #[error("{kind} {name}: {reason}")]
    Object {
        kind: &'static str,
        name: String,
        reason: String,
    },
}

/// The variables that every row has, and for which a hub maps a column.
const VARIABLES: [&str; 3] = ["uid", "activate", "hostOrUrl"];

impl Definitions {
    pub fn read(of_form: &Path, of_hub: Option<&Path>) -> Result<Self, Error> {
        let [hubs, forms, _] = crd::definitions();
        let mut definitions = Definitions::of(file::object(of_form, "LynqForm")?, &forms)?;
        if let Some(path) = of_hub {
            definitions.hub = Some(hub_of(&definitions.form, path, &hubs)?);
        }
        Ok(definitions)
    }

    /// Every form of a file, without its hub.
    pub fn all(path: &Path) -> Result<Vec<Self>, Error> {
        let [_, forms, _] = crd::definitions();
        let objects = file::objects(path, "LynqForm")?.into_iter();
        objects
            .map(|object| Definitions::of(object, &forms))
            .collect()
    }

    fn of(form: Value, definition: &Value) -> Result<Self, Error> {
        let object = checked(form, "LynqForm", definition)?;
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
        Ok(Definitions {
            form,
            change,
            hub: None,
        })
    }

    /// The same form, with the hub that is stored, and whose templates must not select the operator's own namespace.
    pub fn in_cluster(self, hub: Hub, own_namespace: &str) -> Self {
        Definitions {
            change: self.change.sparing(own_namespace),
            hub: Some(hub),
            ..self
        }
    }

    pub fn form(&self) -> &str {
        &self.form.name
    }

    /// Empty if the file names none.
    pub fn namespace(&self) -> &str {
        &self.form.namespace
    }

    pub fn hub_id(&self) -> &str {
        &self.form.hub_id
    }

    /// The name of the hub, if there is one to map columns.
    pub fn hub(&self) -> Option<&str> {
        self.hub.as_ref().map(|hub| hub.name.as_str())
    }

    /// The columns to read: those that the hub maps. Without a hub, each of the `names` is a template variable.
    pub fn columns<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<Columns, Error> {
        if let Some(hub) = &self.hub {
            let invalid = |reason| Error::Object {
                kind: "lynqhub",
                name: hub.name.clone(),
                reason,
            };
            let spec = hub.spec.clone().map_err(invalid)?;
            return Columns::of(&spec).map_err(invalid);
        }
        let names: BTreeSet<&str> = names.into_iter().collect();
        let has_host = names.contains("hostOrUrl");
        let extra = names.into_iter().filter(|name| !VARIABLES.contains(name));
        Ok(Columns {
            uid: "uid".to_owned(),
            activate: "activate".to_owned(),
            host_or_url: has_host.then(|| "hostOrUrl".to_owned()),
            extra: extra
                .map(|name| (name.to_owned(), name.to_owned()))
                .collect(),
            words: Words::default(),
        })
    }

    /// What the hub loop renders the rows from. Nothing limits how many nodes it creates: there are none yet.
    pub fn source(self, rows: Rows) -> RenderSource {
        let form = sync::Form {
            generation: 1,
            policy: self.change.spec.rollout.clone().unwrap_or_default(),
            forced: false,
            all_written: false,
            compiled: self.change.new,
        };
        RenderSource {
            hub: sync::Hub {
                namespace: self.form.namespace,
                name: self.form.hub_id,
                uid: String::new(),
                skew: Default::default(),
                deletions: sync::Allowance::default(),
                creations: sync::Allowance {
                    max: Some(Skew::Count(u32::MAX)),
                    confirmation: None,
                },
                seed: [0; 32],
            },
            forms: BTreeMap::from([(self.form.name, form)]),
            rows,
        }
    }
}

/// The first sync of a hub without nodes.
pub fn plan(source: &RenderSource, now: Timestamp) -> sync::Plan {
    sync::plan(
        &SyncInputs {
            source,
            broken_forms: &BTreeSet::new(),
            nodes: &[],
            foreign: &|_| None,
            moved: &|_| None,
            rendered: &sync::Rendered::new(),
        },
        now,
    )
}

fn hub_of(form: &Form, path: &Path, definition: &Value) -> Result<Hub, Error> {
    let object = checked(file::object(path, "LynqHub")?, "LynqHub", definition)?;
    let hub = Hub::of(&object);
    let denied = hub::judge(None, &object).denied;
    let other = (hub.name != form.hub_id).then(|| format!("the form is of hub {:?}", form.hub_id));
    let away = [&hub.namespace, &form.namespace];
    let away = (hub.namespace != form.namespace && !away.iter().any(|n| n.is_empty())).then(|| {
        format!(
            "it is in namespace {:?}, and the form in {:?}; a form is of a hub in its own",
            hub.namespace, form.namespace
        )
    });
    match denied.or(other).or(away) {
        None => Ok(hub),
        Some(reason) => Err(Error::Object {
            kind: "lynqhub",
            name: hub.name,
            reason,
        }),
    }
}

/// The object as the webhook would get it. What the API server would refuse, or leave out without a word, is an error.
fn checked(mut object: Value, kind: &'static str, definition: &Value) -> Result<Value, Error> {
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
    })
}

//! `lynqgate diff -f`: what an apply of forms would change. Reads their hubs, the rows, and their LynqNodes; writes nothing.

use std::path::Path;

use serde_json::Value;

use crate::api::conditions::ConditionReason;
use crate::api::names;
use crate::cli::Output;
use crate::cli::connection::{self, AnyError, Connected};
use crate::cli::definitions::{self, Definitions};
use crate::cli::diff::{Arguments, each_node};
use crate::cli::output::{print, tell};
use crate::cli::rows::RowsFile;
use crate::cluster::catalog::Hub;
use crate::cluster::clock;
use crate::cluster::objects::ApiError;
use crate::controller::hub;
use crate::decide::hub::preview::{Changes, Preview};
use crate::decide::hub::rows::Rows;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "both -f and --rows name standard input, which has one text. Give a file for one of them"
    )]
    OneStandardInput,
    #[error(
        "form {form}: the file has it in namespace {in_file:?}, and -n names {given:?}. Correct one of them, or leave -n out"
    )]
    OtherNamespace {
        form: String,
        in_file: String,
        given: String,
    },
    #[error(
        "form {form}: spec.hubId is {new:?}, and the stored form has {old:?}; hubId is immutable. Keep it, or give the form another name"
    )]
    OtherHub {
        form: String,
        old: String,
        new: String,
    },
    #[error("hub {hub}: cannot read its rows: {why}")]
    Rows { hub: String, why: String },
    #[error(
        "hub {hub}: cannot read its rows from here: {why}. Give the rows with --rows rows.csv, or run the command where lynqgate runs:\n  \
         kubectl exec -i -n {operator_namespace} deploy/{} -- /lynqgate diff -n {namespace} -f - < {file}",
        names::OPERATOR
    )]
    OutOfReach {
        hub: String,
        why: String,
        operator_namespace: String,
        namespace: String,
        file: String,
    },
}

/// Returns whether an apply would change anything.
pub async fn show(file: &Path, arguments: &Arguments) -> Result<bool, AnyError> {
    let is_stdin = |path: &Path| path == Path::new("-");
    if is_stdin(file) && arguments.rows.as_deref().is_some_and(is_stdin) {
        return Err(Error::OneStandardInput.into());
    }
    let forms = Definitions::all(file)?;
    let rows = arguments.rows.as_deref().map(RowsFile::read).transpose()?;
    let mut cluster = arguments.connection.connect().await?;
    let given = arguments.connection.given_namespace();
    let default = cluster.namespace.clone();
    let mut all = vec![];
    for form in forms {
        cluster.namespace = namespace(&form, given, &default)?;
        all.push(changes(&cluster, form, (file, rows.as_ref())).await?);
    }
    match arguments.output {
        Output::Text => {
            let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
            print(texts.join("\n"))?;
        }
        Output::Json => {
            let all: Vec<Value> = all.iter().map(Changes::json).collect();
            print(serde_json::to_string_pretty(&all)? + "\n")?;
        }
    }
    Ok(all.iter().any(Changes::is_any))
}

/// The form's own namespace, which must be the one that the user gave. `default`: for a form that names none.
fn namespace(form: &Definitions, given: Option<&str>, default: &str) -> Result<String, Error> {
    match (form.namespace(), given) {
        ("", _) => Ok(default.to_owned()),
        (in_file, Some(given)) if in_file != given => Err(Error::OtherNamespace {
            form: form.form().to_owned(),
            in_file: in_file.to_owned(),
            given: given.to_owned(),
        }),
        (in_file, _) => Ok(in_file.to_owned()),
    }
}

/// What an apply of one form would change. `rows`: instead of those that the hub names.
async fn changes(
    cluster: &Connected,
    form: Definitions,
    (file, rows): (&Path, Option<&RowsFile>),
) -> Result<Changes, AnyError> {
    let (name, hub_id) = (form.form().to_owned(), form.hub_id().to_owned());
    if let Some(stored) = cluster.find("LynqForm", &name).await?
        && let Some(old) = stored["spec"]["hubId"].as_str()
        && old != hub_id
    {
        let (form, old, new) = (name, old.to_owned(), hub_id);
        return Err(Error::OtherHub { form, old, new }.into());
    }
    let hub = Hub::of(&cluster.get("LynqHub", &hub_id).await?);
    let form = form.in_cluster(hub.clone(), &cluster.operator_namespace);
    let rows = match rows {
        Some(rows) => rows.rows(&form)?,
        None => rows_of(cluster, &hub, file).await?,
    };
    let mut source = form.source(rows);
    source.hub.namespace.clone_from(&cluster.namespace);
    source.hub.uid.clone_from(&hub.uid);
    source.hub.seed = seed(cluster, &hub_id).await?;
    let plan = definitions::plan(&source, clock::now());
    let mut preview = Preview::of(&name, &source, &plan);
    each_node(cluster, &hub_id, |node| preview.see(&node)).await?;
    Ok(preview.finish())
}

/// As the operator reads them, but with the rights of the user, and from where the command runs.
async fn rows_of(cluster: &Connected, hub: &Hub, file: &Path) -> Result<Rows, Error> {
    let world = connection::world(&cluster.objects);
    let rows = hub::rows_of(&world, hub).await;
    rows.map_err(|problem| match problem.reason {
        ConditionReason::DatabaseConnectionFailed => Error::OutOfReach {
            hub: hub.name.clone(),
            why: problem.message,
            operator_namespace: cluster.operator_namespace.clone(),
            namespace: cluster.namespace.clone(),
            file: match file.to_str() {
                None | Some("-") => "form.yaml".to_owned(),
                Some(file) => file.to_owned(),
            },
        },
        _ => Error::Rows {
            hub: hub.name.clone(),
            why: problem.message,
        },
    })
}

/// The seed of the hub's random values, or another one where there is none yet, or the user may not read it.
async fn seed(cluster: &Connected, hub: &str) -> Result<[u8; 32], connection::Error> {
    match hub::seed::known(&cluster.objects, &cluster.namespace, hub).await {
        Ok(seed) => Ok(seed.unwrap_or_default()),
        Err(ApiError::Refused(why)) => {
            tell(format_args!(
                "Warning: random values of templates are shown as changed: the seed of hub {hub} cannot be read: {why}"
            ));
            Ok([0; 32])
        }
        Err(reason) => Err(connection::Error::Api {
            what: format!("the seed of hub {hub}"),
            reason,
        }),
    }
}

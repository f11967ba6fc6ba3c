//! `lynqgate history`: the revisions of a form, the newest first.

use clap_complete::engine::ArgValueCandidates;
use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cli::Output;
use crate::cli::complete;
use crate::cli::connection::{AnyError, Connected, Connection, Error, run};
use crate::cli::output::{print, table};
use crate::cluster::catalog::Form;
use crate::decide::rollout::history::{self, Reverted, Revision};

const HEAD: [&str; 5] = ["REVISION", "NAME", "CREATED", "COMPLETE", "STATE"];

#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the LynqForm.
    #[arg(add = ArgValueCandidates::new(complete::forms))]
    form: String,
    /// Print the form as it was in this revision, in YAML.
    #[arg(long)]
    revision: Option<i64>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Of a form, the newest first.
pub async fn revisions(cluster: &Connected, form: &Form) -> Result<Vec<Revision>, Error> {
    let mut there = vec![];
    let kind = history::key("", "").kind;
    let params = ListParams::default().labels(&history::selector(&form.uid));
    let list = (cluster.objects).list_selected(&kind, &cluster.namespace, params, |object| {
        there.push(Revision::of(&object));
    });
    list.await.map_err(|reason| Error::Api {
        what: format!("revisions of LynqForm {}", form.name),
        reason,
    })?;
    there.sort_by_key(|revision| -revision.number);
    Ok(there)
}

/// The name of the revision that the form's spec is.
pub fn revision_now(form: &Form) -> Option<String> {
    Some(form.owner().revision_of(form.spec.as_ref().ok()?))
}

pub fn history(arguments: &Arguments) -> Result<(), AnyError> {
    run(tell(arguments))
}

async fn tell(arguments: &Arguments) -> Result<(), AnyError> {
    let cluster = arguments.connection.connect().await?;
    let form = Form::of(&cluster.get("LynqForm", &arguments.form).await?);
    let there = revisions(&cluster, &form).await?;
    if let Some(number) = arguments.revision {
        let revision = there.iter().find(|revision| revision.number == number);
        let revision = revision.ok_or_else(|| {
            let name = &form.name;
            format!("form {name} has no revision {number}: lynqgate history {name}")
        })?;
        return Ok(print(serde_saphyr::to_string(&revision.content)?)?);
    }
    let now = revision_now(&form);
    match arguments.output {
        Output::Text => {
            let rows = there.iter().map(|it| row(it, &form, now.as_deref()));
            print(table(HEAD, rows))?;
        }
        Output::Json => {
            let all: Vec<Value> = there.iter().map(|revision| json!({
                "revision": revision.number, "name": revision.name, "created": revision.created,
                "completed": revision.completed, "state": state(revision, &form, now.as_deref()),
            })).collect();
            print(serde_json::to_string_pretty(&all)? + "\n")?;
        }
    }
    Ok(())
}

fn row(revision: &Revision, form: &Form, now: Option<&str>) -> [String; 5] {
    let time = |at: Option<Timestamp>| match at {
        Some(at) => at.strftime("%F %T UTC").to_string(),
        None => "-".to_owned(),
    };
    [
        revision.number.to_string(),
        revision.name.clone(),
        time(revision.created),
        time(revision.completed),
        state(revision, form, now).to_owned(),
    ]
}

/// What the revision is to the form.
fn state(revision: &Revision, form: &Form, now: Option<&str>) -> &'static str {
    let reverted = Reverted::of(&form.annotations);
    history::state(revision, &form.status, reverted, now)
}

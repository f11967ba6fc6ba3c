//! `lynqgate history`: the revisions of a form, the newest first.

use std::fmt::Write;

use clap_complete::engine::ArgValueCandidates;
use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cli::Output;
use crate::cli::complete;
use crate::cli::connection::{AnyError, Connected, Connection, Error};
use crate::cli::output::print;
use crate::cluster::catalog::Form;
use crate::decide::rollout::history::{self, Owner, Revision};

#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the LynqForm.
    #[arg(add = ArgValueCandidates::new(complete::forms))]
    form: String,
    /// Print what the form was in this revision, as YAML.
    #[arg(long)]
    revision: Option<i64>,
    /// Form of the answer.
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
    let owner = Owner {
        namespace: &form.namespace,
        name: &form.name,
        uid: &form.uid,
    };
    Some(owner.revision_of(form.spec.as_ref().ok()?))
}

pub fn history(arguments: &Arguments) -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build()?;
    runtime.block_on(tell(arguments))
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
        Output::Text => print(table(&there, &form, now.as_deref()))?,
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

fn table(there: &[Revision], form: &Form, now: Option<&str>) -> String {
    let time = |at: Option<Timestamp>| {
        at.map_or("-".to_owned(), |at| at.strftime("%F %T UTC").to_string())
    };
    let wide = there
        .iter()
        .map(|revision| revision.name.len())
        .max()
        .unwrap_or_default();
    let wide = wide.max("NAME".len());
    let mut text = format!(
        "{:<8}  {:<wide$}  {:<23}  {:<23}  STATE\n",
        "REVISION", "NAME", "CREATED", "COMPLETE"
    );
    for revision in there {
        let Revision {
            number,
            name,
            created,
            completed,
            ..
        } = revision;
        let (created, completed) = (time(*created), time(*completed));
        let state = state(revision, form, now);
        let line = format!("{number:<8}  {name:<wide$}  {created:<23}  {completed:<23}  {state}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// What the revision is to the form.
fn state(revision: &Revision, form: &Form, now: Option<&str>) -> &'static str {
    let is = |name: &Option<String>| name.as_deref() == Some(&*revision.name);
    let (is_now, is_current) = (
        now == Some(&*revision.name),
        is(&form.status.current_revision),
    );
    match (is_now, is_current) {
        (true, true) => "current",
        (true, false) => "being rolled out",
        (false, true) => "complete last",
        (false, false) => "",
    }
}

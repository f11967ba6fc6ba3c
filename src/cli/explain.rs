//! `lynqgate explain`: shows what the operator wrote about a node or a form into the statuses; or reads a StatefulSet once, and says
//! what the partition loop does.

mod stateful_set;

use std::fmt;

use serde::Serialize;

use clap_complete::engine::ArgValueCandidates;

use crate::cli::Output;
use crate::cli::complete;
use crate::cli::connection::{AnyError, Connection, Error, run};
use crate::cli::output::print;
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::clock;
use crate::controller::rollout::snapshot;
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::explain::{Asked, Explanation, FormTold, of_nobody};
use crate::decide::rollout::formless::Formless;
use crate::decide::rollout::status::Force;

#[derive(clap::Args)]
pub struct Arguments {
    /// node, form or statefulset.
    kind: Subject,
    /// Name of the object.
    #[arg(add = ArgValueCandidates::new(complete::any))]
    name: String,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Subject {
    #[value(alias = "lynqnode", alias = "lnode")]
    Node,
    #[value(alias = "lynqform", alias = "lform")]
    Form,
    #[value(name = "statefulset", alias = "sts")]
    StatefulSet,
}

pub fn explain(arguments: &Arguments) -> Result<(), AnyError> {
    match arguments.kind {
        Subject::StatefulSet => show(arguments, &run(stateful_set::ask(arguments))?),
        Subject::Node | Subject::Form => show(arguments, &run(ask(arguments))?),
    }
}

fn show<T: Serialize + fmt::Display>(arguments: &Arguments, answer: &T) -> Result<(), AnyError> {
    match arguments.output {
        Output::Text => print(answer)?,
        Output::Json => print(serde_json::to_string_pretty(answer)? + "\n")?,
    }
    Ok(())
}

async fn ask(arguments: &Arguments) -> Result<Explanation, AnyError> {
    let cluster = arguments.connection.connect().await?;
    let namespace = &cluster.namespace;
    let about = match arguments.kind {
        Subject::Node => "LynqNode",
        _ => "LynqForm",
    };
    let object = cluster.get(about, &arguments.name).await?;
    let node = (arguments.kind == Subject::Node).then(|| NodeDigest::of(&object, None));
    let form = match &node {
        Some(node) if node.hub.is_empty() => return Ok(of_nobody(node)),
        Some(node) => cluster.find("LynqForm", &node.form).await?,
        None => Some(object),
    };
    let form = form.map(|object| Form::of(&object));
    let hub_name = match (&node, &form) {
        (Some(node), _) => node.hub.clone(),
        (None, Some(form)) => form.hub_id.clone(),
        (None, None) => String::new(),
    };
    let hub = match hub_name.as_str() {
        "" => None,
        name => cluster.find("LynqHub", name).await?,
    };
    let hub = hub.map(|object| Hub::of(&object));
    let formless = node.as_ref().and_then(|node| {
        let found = form.as_ref().map(Form::found);
        Formless::of(found, &hub_name, node.written_from.is_some())
    });
    let form = form.filter(|form| form.hub_id == hub_name);
    let now = clock::now();
    let leader = cluster.leader(&hub_name, now).await;
    let told = form.as_ref().map(|form| FormTold {
        name: &form.name,
        generation: form.generation,
        status: &form.status,
    });
    let force = match () {
        () if form
            .as_ref()
            .is_some_and(|form| snapshot::is_forced(&form.annotations)) =>
        {
            Some(Force::Form)
        }
        () if hub
            .as_ref()
            .is_some_and(|hub| snapshot::is_forced(&hub.annotations)) =>
        {
            Some(Force::Hub)
        }
        () => None,
    };
    let asked = Asked {
        namespace,
        form: told,
        formless: formless.as_ref(),
        hub: hub.as_ref().map(|hub| &hub.status),
        policy: form
            .as_ref()
            .and_then(|form| form.spec.as_ref().ok()?.rollout.as_ref()),
        force,
        leader: &leader,
        now,
    };
    match (node, told) {
        (Some(node), _) => Ok(asked.node(&node)),
        (None, Some(form)) => Ok(asked.form(form)),
        (None, None) => Err(Error::not_found("LynqForm", namespace, &arguments.name).into()),
    }
}

//! `lynqgate explain`: shows what the operator wrote about a hub, a form or a node into the statuses; or reads a StatefulSet once, and
//! says what the partition loop does.

use std::fmt;

use serde::Serialize;

use clap_complete::engine::ArgValueCandidates;

use crate::cli::Output;
use crate::cli::complete;
use crate::cli::connection::{AnyError, Connection, Error, run};
use crate::cli::output::print;
use crate::cli::stateful_set;
use crate::cli::status;
use crate::cli::subject::Subject;
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::clock;
use crate::controller::rollout::snapshot;
use crate::decide::node::digest::NodeDigest;
use crate::decide::partition;
use crate::decide::partition::explain::faulty;
use crate::decide::rollout::explain::hub::{HubAsked, HubExplanation};
use crate::decide::rollout::explain::{Asked, Explanation, Leader, of_nobody};
use crate::decide::rollout::formless::Formless;
use crate::decide::rollout::status::Force;

#[derive(clap::Args)]
pub struct Arguments {
    /// hub, form, node or statefulset.
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

pub fn explain(arguments: &Arguments) -> Result<(), AnyError> {
    match arguments.kind {
        Subject::Hub => show(arguments, &run(of_hub(arguments))?),
        Subject::StatefulSet => show(arguments, &run(of_stateful_set(arguments))?),
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

async fn of_stateful_set(
    arguments: &Arguments,
) -> Result<partition::explain::Explanation, AnyError> {
    let cluster = arguments.connection.connect().await?;
    let told = stateful_set::ask(&cluster, &arguments.name).await?;
    let leader = cluster.leader(&arguments.name, clock::now()).await;
    let version = cluster.objects.client.apiserver_version().await;
    Ok(partition::explain::Explanation {
        fault: version
            .ok()
            .and_then(|version| faulty(&version.git_version)),
        leaderless: matches!(leader, Leader::Missing { .. }),
        ..told
    })
}

async fn of_hub(arguments: &Arguments) -> Result<HubExplanation, AnyError> {
    let cluster = arguments.connection.connect().await?;
    let hub = Hub::of(&cluster.get("LynqHub", &arguments.name).await?);
    let forms = cluster.list("LynqForm").await?;
    let mut forms: Vec<Form> = forms.iter().map(Form::of).collect();
    forms.retain(|form| form.hub_id == hub.name);
    let of_hub = snapshot::is_forced(&hub.annotations).then(|| format!("hub {}", hub.name));
    let of_forms = forms
        .iter()
        .filter(|form| snapshot::is_forced(&form.annotations))
        .map(|form| format!("form {}", form.name));
    let now = clock::now();
    let leader = cluster.leader(&hub.name, now).await;
    let spec = hub.spec.as_ref().ok();
    let asked = HubAsked {
        namespace: &cluster.namespace,
        name: &hub.name,
        generation: hub.generation,
        status: &hub.status,
        sync_interval: spec.map(|spec| spec.source.sync_interval.as_str()),
        forced: of_hub.into_iter().chain(of_forms).collect(),
        forms: forms.iter().map(status::of_form).collect(),
        leader: &leader,
        now,
    };
    Ok(asked.explain())
}

async fn ask(arguments: &Arguments) -> Result<Explanation, AnyError> {
    let cluster = arguments.connection.connect().await?;
    let namespace = &cluster.namespace;
    let object = cluster.get(arguments.kind.kind(), &arguments.name).await?;
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
    let told = form.as_ref().map(Form::told);
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

//! `lynqgate pause`, `resume`, `retry`, `promote`, `undo`, `force`, `release` and `confirm`: say what they change, ask, and change one object.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::time::Duration;

use clap_complete::engine::ArgValueCandidates;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::names;
use crate::cli::Output;
use crate::cli::complete;
use crate::cli::connection::{self, AnyError, Connected, Connection};
use crate::cli::history;
use crate::cli::output::{print, tell};
use crate::cli::subject::Subject;
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::clock;
use crate::cluster::objects::ApiError;
use crate::controller::rollout::snapshot::is_forced;
use crate::decide::child::ObjectKey;
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::history::Reverted;
use crate::decide::rollout::steer::{self, Forced, Refusal, Steering};

/// Between two looks at a node that is being released.
const EVERY: Duration = Duration::from_millis(500);
/// The gate releases a forced node within this time.
const RELEASED_WITHIN: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub struct OfForm {
    /// Name of the LynqForm.
    #[arg(add = ArgValueCandidates::new(complete::forms))]
    form: String,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
pub struct Undo {
    #[command(flatten)]
    of: OfForm,
    /// Number of the revision (lynqgate history). Default: the last one that completed a rollout.
    #[arg(long, value_name = "REVISION")]
    to: Option<i64>,
}

#[derive(clap::Args)]
pub struct OfNode {
    /// Name of the LynqNode.
    #[arg(add = ArgValueCandidates::new(complete::nodes))]
    node: String,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
pub struct OfHub {
    /// Name of the LynqHub.
    #[arg(add = ArgValueCandidates::new(complete::hubs))]
    hub: String,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
pub struct Force {
    /// hub, form, node or statefulset.
    kind: Subject,
    /// Name of the object.
    #[arg(add = ArgValueCandidates::new(complete::any))]
    name: String,
    /// Remove the force, so that the windows apply again.
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    common: Common,
}

// What every command has that changes something. As a doc comment it would be the help of each.
#[derive(clap::Args)]
pub struct Common {
    /// Do not ask for a confirmation.
    #[arg(short, long)]
    pub(super) yes: bool,
    /// Send a dry run: the API server checks the change and stores nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    pub(super) output: Output,
    #[command(flatten)]
    pub(super) connection: Connection,
}

pub enum Verb<'a> {
    Pause(&'a OfForm),
    Resume(&'a OfForm),
    Retry(&'a OfForm),
    Promote(&'a OfForm),
    Undo(&'a Undo),
    Release(&'a OfNode),
    Confirm(&'a OfHub),
    Force(&'a Force),
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("nothing was changed: give --yes where nobody can be asked")]
    NobodyAsked,
    #[error("nothing was changed")]
    NotAgreed,
    #[error("{key} was not changed: {reason}")]
    Api { key: ObjectKey, reason: ApiError },
    #[error(
        "lynqgate does not know whether {key} was changed: {reason}. Read it before you try again. If lynqgate's webhooks do not \
         answer, lynqgate check says why"
    )]
    Unknown { key: ObjectKey, reason: ApiError },
    #[error(
        "{key} is forced, and still held after {} s: lynqgate explain node {}. It stays forced until lynqgate force node {1} --off",
        RELEASED_WITHIN.as_secs(), key.name
    )]
    StillHeld { key: ObjectKey },
}

/// The object that the command changes, and how.
struct Step {
    key: ObjectKey,
    uid: Value,
    steered: Result<Steering, Refusal>,
    /// Printed before the question: why lynqgate holds what the user is about to confirm.
    known: Vec<String>,
}

impl Step {
    fn of(key: ObjectKey, object: &Value, steered: Result<Steering, Refusal>) -> Self {
        Step {
            key,
            uid: object["metadata"]["uid"].clone(),
            steered,
            known: vec![],
        }
    }
}

pub fn steer(verb: &Verb) -> Result<(), AnyError> {
    connection::run(steered(verb))
}

async fn steered(verb: &Verb<'_>) -> Result<(), AnyError> {
    let common = match verb {
        Verb::Pause(of) | Verb::Resume(of) | Verb::Retry(of) | Verb::Promote(of) => &of.common,
        Verb::Undo(undo) => &undo.of.common,
        Verb::Release(of) => &of.common,
        Verb::Confirm(of) => &of.common,
        Verb::Force(of) => &of.common,
    };
    let mut cluster = common.connection.connect().await?;
    let Step {
        key,
        uid,
        steered,
        known,
    } = step(verb, &cluster).await?;
    let Steering { effect, mut patch } = steered?;
    if !common.dry_run && !common.yes {
        known.iter().for_each(tell);
        ask(&effect)?;
    }
    if common.dry_run {
        cluster.objects = cluster.objects.dry_run();
    }
    // The user confirmed the change of this object, and not of a later one with the same name.
    patch["metadata"]["uid"] = uid;
    change(&cluster, &key, &patch).await?;
    if matches!(verb, Verb::Release(_)) && !common.dry_run {
        until_live(&cluster, &key).await?;
        patch["metadata"]["annotations"] = json!({names::FORCE_ROLLOUT: null});
        change(&cluster, &key, &patch).await?;
    }
    let dry = if common.dry_run { " (dry run)" } else { "" };
    match common.output {
        Output::Text => print(format_args!("{key}: {effect}{dry}\n"))?,
        Output::Json => {
            let answer = json!({
                "kind": key.kind.kind, "namespace": &*key.namespace, "name": key.name,
                "effect": effect, "dryRun": common.dry_run,
            });
            print(serde_json::to_string_pretty(&answer)? + "\n")?;
        }
    }
    Ok(())
}

async fn step(verb: &Verb<'_>, cluster: &Connected) -> Result<Step, AnyError> {
    let own = |kind: &str, name: &str| ObjectKey::own(kind, &cluster.namespace, name);
    Ok(match verb {
        Verb::Pause(OfForm { form: name, .. })
        | Verb::Resume(OfForm { form: name, .. })
        | Verb::Retry(OfForm { form: name, .. })
        | Verb::Promote(OfForm { form: name, .. }) => {
            let object = cluster.get("LynqForm", name).await?;
            let form = Form::of(&object);
            let spec = form.spec.as_ref();
            let policy = spec.ok().and_then(|spec| spec.rollout.as_ref());
            let steered = match verb {
                Verb::Pause(_) => steer::pause(form.told(), policy),
                Verb::Resume(_) => steer::resume(form.told(), policy),
                Verb::Promote(_) => steer::promote(form.told(), policy),
                _ => steer::retry(form.told(), policy, clock::now()),
            };
            Step::of(own("LynqForm", name), &object, steered)
        }
        Verb::Undo(Undo { of, to }) => {
            let object = cluster.get("LynqForm", &of.form).await?;
            let form = Form::of(&object);
            let there = history::revisions(cluster, &form).await?;
            let now = history::revision_now(&form);
            let reverted = Reverted::of(&form.annotations);
            let (form, spec) = (form.told(), &object["spec"]);
            let steered = steer::undo(form, spec, reverted, now.as_deref(), &there, *to);
            // It sets back the form that the user was asked about.
            let version = &object["metadata"]["resourceVersion"];
            let steered = steered.map(|mut steering| {
                steering.patch["metadata"]["resourceVersion"] = version.clone();
                steering
            });
            Step::of(own("LynqForm", &of.form), &object, steered)
        }
        Verb::Release(OfNode { node: name, .. }) => {
            let object = cluster.get("LynqNode", name).await?;
            let steered = steer::release(&NodeDigest::of(&object, None));
            Step::of(own("LynqNode", name), &object, steered)
        }
        Verb::Confirm(OfHub { hub: name, .. }) => {
            let object = cluster.get("LynqHub", name).await?;
            let status = Hub::of(&object).status;
            let steered = steer::confirm(name, &status);
            let conditions = status.conditions.iter();
            let held = conditions.filter(|told| {
                matches!(&*told.type_, "DeletionsHeld" | "CreationsHeld") && told.status == "True"
            });
            Step {
                known: held.map(|told| told.message.to_string()).collect(),
                ..Step::of(own("LynqHub", name), &object, steered)
            }
        }
        Verb::Force(Force {
            kind, name, off, ..
        }) => {
            let key = kind.key(&cluster.namespace, name);
            let object = cluster.read(kind.kind(), &key).await?;
            let entry = Hub::of(&object);
            let (form, node) = (Form::of(&object), NodeDigest::of(&object, None));
            let what = match kind {
                Subject::Hub => Forced::Hub(name, &entry.status),
                Subject::Form => Forced::Form(form.told()),
                Subject::Node => Forced::Node(&node),
                Subject::StatefulSet => Forced::StatefulSet(name),
            };
            let steered = steer::force(what, is_forced(&entry.annotations), *off);
            Step::of(key, &object, steered)
        }
    })
}

/// Asks the user to agree to the effect.
pub fn ask(effect: &str) -> Result<(), AnyError> {
    if !stdin().is_terminal() {
        tell(format_args!("This {effect}."));
        return Err(Error::NobodyAsked.into());
    }
    write!(stderr(), "This {effect}.\nGo on? [y/N] ")?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Error::NotAgreed.into()),
    }
}

async fn change(cluster: &Connected, key: &ObjectKey, patch: &Value) -> Result<(), Error> {
    let changed = cluster.objects.merge_as(names::CLI_MANAGER, key, patch);
    let key = key.clone();
    match changed.await {
        Ok(_) => Ok(()),
        Err(reason @ ApiError::Unavailable(_)) => Err(Error::Unknown { key, reason }),
        Err(reason) => Err(Error::Api { key, reason }),
    }
}

/// As a rule, the gate releases the node with the write of the annotation.
async fn until_live(cluster: &Connected, key: &ObjectKey) -> Result<(), AnyError> {
    let began = clock::instant();
    while NodeDigest::of(&cluster.get("LynqNode", &key.name).await?, None).held() {
        if began.elapsed() > RELEASED_WITHIN {
            return Err(Error::StillHeld { key: key.clone() }.into());
        }
        sleep(EVERY).await;
    }
    Ok(())
}

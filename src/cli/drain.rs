//! `lynqgate drain`: asks for the maintenance of a Kubernetes node, or ends it, and follows how far it is. The operator does the work.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::api::names;
use crate::cli::connection::{self, AnyError};
use crate::cli::output::{print, tell};
use crate::cluster::client;
use crate::cluster::clock;
use crate::cluster::objects::{ApiError, Objects};
use crate::decide::child::{Kind, ObjectKey};
use crate::decide::maintenance::follow::{Followed, Wanted, follow, line};
use crate::decide::maintenance::{KubernetesNode, Request};

/// Between two reads of the Kubernetes node.
const EVERY: Duration = Duration::from_secs(1);
/// An operator that runs has said something by then.
const SILENT_MAX: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub struct Arguments {
    /// Name of the Kubernetes node.
    node: String,
    /// Duration of the maintenance: 2h, 90m, 1h30m, 600s. lynqgate cordons and drains the Kubernetes node for that time.
    #[arg(long = "for", value_name = "DURATION", value_parser = interval, required_unless_present = "end")]
    for_: Option<i32>,
    /// End the maintenance: lynqgate uncordons the Kubernetes node if it was schedulable before.
    #[arg(long, conflicts_with = "for_")]
    end: bool,
    /// Stop waiting after this time: the maintenance continues, and the exit status is 3.
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    timeout: Option<i32>,
    /// Kubeconfig to use. Default: the KUBECONFIG variable, or ~/.kube/config.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "lynqgate takes no Kubernetes nodes into maintenance in this cluster: there is no ValidatingAdmissionPolicy {}. \
         Install kustomize/components/node-maintenance",
        names::MAINTENANCE_POLICY
    )]
    Off,
    #[error("there is no Kubernetes node {0:?}")]
    NoNode(String),
    #[error("Kubernetes node {0}: nobody has asked for its maintenance, or it has ended")]
    NotAsked(String),
    #[error("Kubernetes node {0} was deleted")]
    Deleted(String),
    #[error(
        "Kubernetes node {0}: somebody ended its maintenance, or its time is over, before it was drained"
    )]
    Ended(String),
    #[error("Kubernetes node {0}: somebody asked for its maintenance again")]
    AskedAgain(String),
    #[error("{what}: {reason}")]
    Api { what: String, reason: ApiError },
}

/// The time of `--timeout` is over: no failure, and not done.
#[derive(Debug, thiserror::Error)]
#[error("Kubernetes node {node} is not {what} after {seconds} s; its maintenance continues")]
pub struct Unfinished {
    node: String,
    what: &'static str,
    seconds: i32,
}

pub fn drain(arguments: &Arguments) -> Result<(), AnyError> {
    connection::run(follow_to_the_end(arguments))
}

/// Whole seconds, as the annotation takes them.
fn interval(text: &str) -> Result<i32, String> {
    const WANTED: &str = "give a duration from 1s to 999999999s, such as 2h, 90m or 1h30m";
    let duration: SignedDuration = text.parse().map_err(|_| WANTED.to_owned())?;
    match Request::of(Some(&duration.as_secs().to_string())) {
        Request::Window(seconds) => Ok(seconds),
        Request::None | Request::Unreadable(_) => Err(WANTED.to_owned()),
    }
}

async fn follow_to_the_end(arguments: &Arguments) -> Result<(), AnyError> {
    let path = arguments.kubeconfig.as_ref();
    let path = path.map(|path| path.display().to_string());
    let (kube, _) = client::connect(path.as_deref(), None).await?;
    let objects = Objects::new(kube);
    let of_node = key("v1", "Node", &arguments.node);
    is_on(&objects).await?;
    let node = read(&objects, &of_node).await?;
    let node = node.ok_or_else(|| Error::NoNode(arguments.node.clone()))?;
    let wanted = match arguments.for_ {
        Some(_) => Wanted::Drained,
        None => Wanted::Ended,
    };
    if wanted == Wanted::Ended && node.request == Request::None {
        match follow(&node, wanted) {
            Followed::Going => {}
            _ => return Err(Error::NotAsked(node.name).into()),
        }
    }
    let value = arguments.for_.map(|seconds| seconds.to_string());
    let asked = json!({"metadata": {"uid": node.uid, "annotations": {names::MAINTENANCE: value}}});
    let written = objects.merge_as(names::DRAIN_MANAGER, &of_node, &asked);
    let written = written.await;
    written.map_err(|reason| of_api(&of_node, reason))?;
    let end = until(&objects, &of_node, wanted, line(&node));
    match arguments.timeout {
        None => end.await?,
        Some(seconds) => {
            match timeout(Duration::from_secs(seconds.unsigned_abs().into()), end).await {
                Ok(ended) => ended?,
                Err(_) => {
                    return Err(Unfinished {
                        node: node.name,
                        what: match wanted {
                            Wanted::Drained => "drained",
                            Wanted::Ended => "released",
                        },
                        seconds,
                    }
                    .into());
                }
            }
        }
    }
    Ok(())
}

/// The component's policy tells it; who may not read policies is not held up.
async fn is_on(objects: &Objects) -> Result<(), Error> {
    let policy = "admissionregistration.k8s.io/v1";
    let policy = key(
        policy,
        "ValidatingAdmissionPolicy",
        names::MAINTENANCE_POLICY,
    );
    match objects.get(&policy).await {
        Ok(_) => Ok(()),
        Err(ApiError::NotFound(_)) => Err(Error::Off),
        Err(reason) => {
            tell(format_args!(
                "cannot read whether lynqgate does maintenance: {reason}"
            ));
            Ok(())
        }
    }
}

/// `before` is what the operator said before it was asked.
async fn until(
    objects: &Objects,
    key: &ObjectKey,
    wanted: Wanted,
    before: Option<String>,
) -> Result<(), AnyError> {
    let name = || key.name.clone();
    let (since, mut said, mut warned) = (clock::instant(), before.clone(), false);
    loop {
        let node = read(objects, key)
            .await?
            .ok_or_else(|| Error::Deleted(name()))?;
        let now = line(&node);
        if let Some(line) = now.as_ref().filter(|_| now != said) {
            print(format_args!("{line}\n"))?;
        }
        said = now;
        match (follow(&node, wanted), wanted) {
            (Followed::Going, _) => {}
            (Followed::Done, Wanted::Drained) => {
                let end = format!("lynqgate drain {} --end", key.name);
                return Ok(print(format_args!(
                    "Kubernetes node {} is drained. End its maintenance before its time: {end}\n",
                    key.name
                ))?);
            }
            (Followed::Done, Wanted::Ended) => {
                let then = match node.unschedulable {
                    true => "It stays cordoned, as it was before",
                    false => "It takes pods again",
                };
                let name = &key.name;
                return Ok(print(format_args!(
                    "The maintenance of Kubernetes node {name} has ended. {then}\n"
                ))?);
            }
            (Followed::Withdrawn, Wanted::Drained) => return Err(Error::Ended(name()).into()),
            (Followed::Withdrawn, Wanted::Ended) => return Err(Error::AskedAgain(name()).into()),
        }
        if said == before && !warned && since.elapsed() > SILENT_MAX {
            tell("no answer yet: does lynqgate run, with --node-maintenance?");
            warned = true;
        }
        sleep(EVERY).await;
    }
}

async fn read(objects: &Objects, key: &ObjectKey) -> Result<Option<KubernetesNode>, Error> {
    match objects.get(key).await {
        Ok(object) => Ok(Some(KubernetesNode::of(&object))),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(reason) => Err(of_api(key, reason)),
    }
}

fn of_api(key: &ObjectKey, reason: ApiError) -> Error {
    Error::Api {
        what: format!("Kubernetes node {}", key.name),
        reason,
    }
}

fn key(api_version: &str, kind: &str, name: &str) -> ObjectKey {
    ObjectKey {
        kind: Kind::new(api_version, kind).into(),
        namespace: "".into(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_whole_seconds() {
        for (text, seconds) in [("2h", 7200), ("1h30m", 5400), ("90s", 90), ("1500ms", 1)] {
            assert_eq!(interval(text), Ok(seconds), "{text}");
        }
        for text in ["", "2", "0s", "-1h", "500ms", "1000000h", "soon"] {
            let refused = interval(text).unwrap_err();
            assert!(refused.starts_with("give a duration"), "{text}: {refused}");
        }
    }
}

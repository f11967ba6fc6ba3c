//! `lynqgate migrate --dry-run`: reads what Lynq left in a cluster, and says what lynqgate would make of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::Value;

use crate::cli::Output;
use crate::cli::output::{print, tell};
use crate::cluster::catalog::Hub;
use crate::cluster::client;
use crate::cluster::events::Events;
use crate::cluster::objects::{ApiError, Objects};
use crate::controller::World;
use crate::controller::hub::{FirstSync, first_sync};
use crate::controller::metrics::Metrics;
use crate::controller::node::takeover::foresee;
use crate::decide::child::{NodeKey, ObjectKey};
use crate::decide::content;
use crate::decide::hub_sync::NodeWrite;
use crate::decide::node::NodeDigest;
use crate::decide::rollout::Live;
use crate::decide::takeover::left;

#[derive(clap::Args)]
pub struct Arguments {
    /// Needed: the migration itself is the installation of lynqgate (docs/LYNQ.md), and nothing is written here.
    #[arg(long, required = true)]
    dry_run: bool,
    /// Only the hubs of this namespace.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// Kubeconfig to use. Default: the KUBECONFIG variable, ~/.kube/config, or the service account of the pod.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{what}: {reason}")]
    Api { what: String, reason: ApiError },
    #[error("{0} of the hubs cannot be looked at: see above")]
    Hubs(usize),
}

type AnyError = Box<dyn std::error::Error>;

/// Nodes that are looked at at a time.
const NODES_MAX: usize = 8;
/// Nodes between two words on how far it is.
const TOLD_EVERY: usize = 500;
/// Nodes of one form that are shown in the text.
const SHOWN_MAX: usize = 10;

/// What would become of a node.
#[derive(Serialize)]
#[serde(
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    tag = "outcome"
)]
enum Outcome {
    /// Nothing of what runs changes, and it takes no slot.
    TakenOver,
    /// Its objects are made, for there is no node yet.
    New {
        at_once: bool,
    },
    Changes {
        at_once: bool,
        changes: Vec<String>,
    },
    /// lynqgate has looked after it before.
    Known,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    namespace: String,
    hub: String,
    /// Why nothing can be said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// By form and node.
    forms: BTreeMap<String, BTreeMap<String, Outcome>>,
    /// Forms that cannot be rendered, and why: their nodes stay as they are.
    broken_forms: BTreeMap<String, String>,
    /// Nodes that the first sync deletes, and why.
    deletions: BTreeMap<String, String>,
    /// Deletions that wait for a confirmation.
    #[serde(skip_serializing_if = "Option::is_none")]
    deletions_held: Option<String>,
    /// Rows that get no node, and nodes that are somebody else's.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows_skipped: Option<String>,
    /// What does not render, and stays as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    render_failed: Option<String>,
}

pub fn migrate(arguments: &Arguments) -> Result<(), AnyError> {
    tokio::runtime::Runtime::new()?.block_on(look(arguments))
}

async fn look(arguments: &Arguments) -> Result<(), AnyError> {
    let path = arguments.kubeconfig.as_ref();
    let path = path.map(|path| path.display().to_string());
    let (kube, _) = client::connect(path.as_deref()).await?;
    let objects = Objects::new(kube.clone()).dry_run();
    let world = World::new(objects, Events::start(kube, None), Metrics::default());
    let namespace = arguments.namespace.as_deref().unwrap_or_default();
    let hubs = list(&world, "LynqHub", namespace).await?;
    for form in list(&world, "LynqForm", namespace).await? {
        world.forms.learn(&form);
    }
    let mut nodes = BTreeMap::new();
    for node in list(&world, "LynqNode", namespace).await? {
        let digest = world.nodes.learn(&node);
        nodes.insert(digest.key.clone(), node);
    }
    if hubs.is_empty() {
        tell("there is no LynqHub; give the namespace of one with -n, or leave -n out");
    }
    let (mut all, mut in_vain) = (vec![], 0);
    for hub in &hubs {
        let found = found(&world, &Hub::of(hub), &nodes).await?;
        in_vain += usize::from(found.problem.is_some());
        match arguments.output {
            Output::Text => print(found)?,
            Output::Json => all.push(found),
        }
    }
    if arguments.output == Output::Json {
        print(serde_json::to_string_pretty(&all)? + "\n")?;
    }
    match in_vain {
        0 => Ok(()),
        _ => Err(Error::Hubs(in_vain).into()),
    }
}

async fn list(world: &World, kind: &str, namespace: &str) -> Result<Vec<Value>, Error> {
    let mut all = vec![];
    let kind_of = ObjectKey::own(kind, "", "").kind;
    let listed = world.objects.list(&kind_of, namespace, |o| all.push(o));
    listed.await.map_err(|reason| Error::Api {
        what: format!("the {kind}s"),
        reason,
    })?;
    Ok(all)
}

async fn found(world: &World, hub: &Hub, nodes: &BTreeMap<NodeKey, Value>) -> Result<Found, Error> {
    let mut found = Found {
        namespace: hub.namespace.clone(),
        hub: hub.name.clone(),
        problem: None,
        forms: BTreeMap::new(),
        broken_forms: BTreeMap::new(),
        deletions: BTreeMap::new(),
        deletions_held: None,
        rows_skipped: None,
        render_failed: None,
    };
    let FirstSync { plan, broken } = match first_sync(world, hub).await {
        Ok(sync) => sync,
        Err(problem) => {
            found.problem = Some(problem);
            return Ok(found);
        }
    };
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    found.broken_forms = broken;
    found.deletions_held = plan.held.as_ref().map(ToString::to_string);
    found.rows_skipped = some(plan.skipped.to_string());
    found.render_failed = some(plan.render_errors.to_string());
    for deletion in plan.deletes {
        found.deletions.insert(deletion.name, deletion.reason);
    }
    let total = plan.writes.len();
    let looks = plan.writes.into_iter().map(|write| async move {
        let key = NodeKey {
            namespace: hub.namespace.clone(),
            name: write.name.clone(),
        };
        let outcome = outcome(world, &write, nodes.get(&key)).await;
        let outcome = outcome.map_err(|reason| Error::Api {
            what: format!("the objects of lynqnode {key}"),
            reason,
        })?;
        Ok((write.form, key.name, outcome))
    });
    let mut looks = stream::iter(looks).buffer_unordered(NODES_MAX);
    let mut looked = 0;
    while let Some((form, node, outcome)) = looks.try_next().await? {
        let of_form = found.forms.entry(form).or_default();
        of_form.insert(node, outcome);
        looked += 1;
        if looked % TOLD_EVERY == 0 {
            tell(format_args!(
                "looked at {looked} of {total} nodes of hub {}",
                hub.name
            ));
        }
    }
    Ok(found)
}

async fn outcome(
    world: &World,
    write: &NodeWrite,
    stored: Option<&Value>,
) -> Result<Outcome, ApiError> {
    let at_once = write.at_once;
    let Some(stored) = stored else {
        return Ok(Outcome::New { at_once });
    };
    let mut node = NodeDigest::of(stored, None);
    if node.live != Live::Unknown {
        return Ok(Outcome::Known);
    }
    let mut desired = stored.clone();
    desired["spec"] = write.object["spec"].clone();
    node.desired = content::hash(Some(&desired["spec"])).to_string();
    if node.is_lynqs() {
        Arc::make_mut(&mut node.status).applied_resources = left::record(stored, &node);
    }
    let foreseen = foresee(&world.objects, &node, &desired, |_, _| {}).await?;
    let effects = foreseen
        .map(|foreseen| foreseen.effects)
        .unwrap_or_default();
    Ok(match effects.is_empty() {
        true => Outcome::TakenOver,
        false => Outcome::Changes {
            at_once,
            changes: effects.iter().map(ToString::to_string).collect(),
        },
    })
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lynqhub {}/{}", self.namespace, self.hub)?;
        if let Some(problem) = &self.problem {
            return writeln!(f, "  cannot be looked at: {problem}");
        }
        for (form, nodes) in &self.forms {
            let (mut kept, mut shown) = (0, vec![]);
            for (node, outcome) in nodes {
                let (at_once, what) = match outcome {
                    Outcome::TakenOver | Outcome::Known => {
                        kept += 1;
                        continue;
                    }
                    Outcome::New { at_once } => (at_once, "the node is made".to_owned()),
                    Outcome::Changes { at_once, changes } => (at_once, changes.join("; ")),
                };
                let when = match at_once {
                    true => "at once, as no window applies",
                    false => "waits for its turn",
                };
                shown.push(format!("{node} ({when}): {what}"));
            }
            let nodes = nodes.len();
            writeln!(
                f,
                "  form {form}: {kept} of {nodes} nodes are taken over as they are"
            )?;
            for line in shown.iter().take(SHOWN_MAX) {
                writeln!(f, "    {line}")?;
            }
            if let Some(more @ 1..) = shown.len().checked_sub(SHOWN_MAX) {
                writeln!(f, "    and {more} more: -o json has them all")?;
            }
        }
        for (form, why) in &self.broken_forms {
            writeln!(
                f,
                "  form {form} does not render, and its nodes stay as they are: {why}"
            )?;
        }
        for (node, why) in &self.deletions {
            writeln!(f, "  {node} is deleted: {why}")?;
        }
        for (name, said) in [
            ("deletions", &self.deletions_held),
            ("rows without a node", &self.rows_skipped),
            ("not rendered", &self.render_failed),
        ] {
            if let Some(said) = said {
                writeln!(f, "  {name}: {said}")?;
            }
        }
        let Found {
            forms,
            broken_forms,
            deletions,
            ..
        } = self;
        if forms.is_empty() && broken_forms.is_empty() && deletions.is_empty() {
            writeln!(
                f,
                "  nothing is written: all is as it should be, or there is no form or no active row"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_read_an_outcome() {
        let changes = Outcome::Changes {
            at_once: true,
            changes: vec!["x".to_owned()],
        };
        let read = |outcome| serde_json::to_value(outcome).unwrap();
        assert_eq!(
            read(changes),
            json!({"outcome": "changes", "atOnce": true, "changes": ["x"]})
        );
        assert_eq!(read(Outcome::TakenOver), json!({"outcome": "takenOver"}));
    }
}

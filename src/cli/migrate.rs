//! `lynqgate migrate --dry-run`: reads what Lynq left in a cluster, and says what lynqgate would make of it.

mod found;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use crate::cli::Output;
use crate::cli::connection::world;
use crate::cli::output::{print, tell};
use crate::cluster::catalog::Hub;
use crate::cluster::client;
use crate::cluster::objects::{ApiError, Objects};
use crate::controller::World;
use crate::controller::hub::{FirstSync, first_sync};
use crate::controller::node::takeover::foresee;
use crate::controller::rollout::snapshot::is_forced;
use crate::decide::child::{NodeKey, ObjectKey};
use crate::decide::hub::sync::{NodeWrite, RenderSource};
use crate::decide::node::digest::NodeDigest;
use crate::decide::node::takeover::left;
use crate::decide::rollout::Live;
use crate::decide::shared::content;
use found::{MigrationReport, NodeOutcome, Terms, When};

#[derive(clap::Args)]
pub struct Arguments {
    /// Required, because this command writes nothing: the installation of lynqgate is the migration (docs/LYNQ.md).
    #[arg(long, required = true)]
    dry_run: bool,
    /// Namespace of the hubs. Default: all.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Output format.
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
    #[error("{0} of the hubs cannot be checked: see above")]
    Hubs(usize),
}

type AnyError = Box<dyn std::error::Error>;

/// Nodes that are looked at at a time.
const NODES_MAX: usize = 8;
/// Nodes between two words on how far it is.
const TOLD_EVERY: usize = 500;
/// A node that is to be looked at.
struct NodeCheck {
    name: String,
    form: String,
    /// What the hub writes; None where it is written already, and waits.
    spec: Option<Value>,
}

impl NodeCheck {
    fn written(source: &RenderSource, write: NodeWrite) -> Self {
        let spec = source.object(&write)["spec"].take();
        NodeCheck {
            name: write.name.to_string(),
            form: write.form,
            spec: Some(spec),
        }
    }

    fn waiting(node: &NodeDigest) -> Self {
        NodeCheck {
            name: node.key.name.to_string(),
            form: node.form.clone(),
            spec: None,
        }
    }
}

pub fn migrate(arguments: &Arguments) -> Result<(), AnyError> {
    tokio::runtime::Runtime::new()?.block_on(look(arguments))
}

async fn look(arguments: &Arguments) -> Result<(), AnyError> {
    let path = arguments.kubeconfig.as_ref();
    let path = path.map(|path| path.display().to_string());
    let (kube, _) = client::connect(path.as_deref(), None).await?;
    let world = world(&Objects::new(kube));
    let namespace = arguments.namespace.as_deref().unwrap_or_default();
    let hubs = list(&world, "LynqHub", namespace).await?;
    for form in list(&world, "LynqForm", namespace).await? {
        world.forms.learn_new(&form, world.forms.asked());
    }
    let mut nodes = BTreeMap::new();
    for node in list(&world, "LynqNode", namespace).await? {
        let digest = world.nodes.learn_new(&node, world.nodes.asked());
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

async fn found(
    world: &World,
    hub: &Hub,
    nodes: &BTreeMap<NodeKey, Value>,
) -> Result<MigrationReport, Error> {
    let mut found = MigrationReport::of(hub);
    let of_hub = world
        .nodes
        .of_hub(&(hub.namespace.clone(), hub.name.clone()));
    if hub.deleting {
        found.goes(hub, &of_hub);
        return Ok(found);
    }
    let sync = match first_sync(world, hub).await {
        Ok(sync) => sync,
        Err(problem) => {
            found.problem = Some(problem);
            return Ok(found);
        }
    };
    let FirstSync {
        source,
        plan,
        broken,
    } = sync;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    found.broken_forms = broken;
    found.deletions_held = plan.held.as_ref().map(ToString::to_string);
    found.creations_held = plan.creations_held.as_ref().map(ToString::to_string);
    found.rows_skipped = some(plan.skipped.to_string());
    found.render_failed = some(plan.render_errors.to_string());
    for deletion in plan.deletes {
        let name = deletion.name.to_string();
        found.deletions.insert(name, deletion.reason);
    }
    let terms = terms(world, hub, plan.held.is_some());
    let paused = terms
        .iter()
        .filter(|(_, terms)| terms.policy.paused && !terms.forced);
    found.paused_forms = paused.map(|(form, _)| form.clone()).collect();
    let written: BTreeSet<Arc<str>> = plan.writes.iter().map(|write| write.name.clone()).collect();
    let check = |write| NodeCheck::written(&source, write);
    let mut all: Vec<NodeCheck> = plan.writes.into_iter().map(check).collect();
    for node in of_hub {
        let name = &node.key.name;
        if node.deleting {
            match plan.unwritten.contains(&(node.form.clone(), name.clone())) {
                true => found.tell(&node.form, name, NodeOutcome::MadeAnew),
                false => found.goes_already(name),
            }
        } else if !written.contains(name)
            && !found.deletions.contains_key(&**name)
            && node.held()
            && node.rendered_hash.is_some()
        {
            all.push(NodeCheck::waiting(&node));
        }
    }
    let total = all.len();
    let terms = &terms;
    let checks = all.into_iter().map(|check| async move {
        let key = NodeKey::new(hub.namespace.as_str(), check.name.as_str());
        let outcome = outcome(world, &check, nodes.get(&key), terms.get(&check.form)).await;
        let outcome = outcome.map_err(|reason| Error::Api {
            what: format!("the objects of lynqnode {key}"),
            reason,
        })?;
        Ok((check.form, key.name, outcome))
    });
    let mut checks = stream::iter(checks).buffer_unordered(NODES_MAX);
    let mut looked = 0;
    while let Some((form, node, outcome)) = checks.try_next().await? {
        found.tell(&form, &node, outcome);
        looked += 1;
        if looked % TOLD_EVERY == 0 {
            tell(format_args!(
                "checked {looked} of {total} nodes of hub {}",
                hub.name
            ));
        }
    }
    Ok(found)
}

/// By form; of those that can be read.
fn terms(world: &World, hub: &Hub, held: bool) -> BTreeMap<String, Terms> {
    let of_hub = world.forms_of(&(hub.namespace.clone(), hub.name.clone()));
    let skew = hub
        .spec
        .as_ref()
        .ok()
        .and_then(|spec| spec.rollout.as_ref());
    let skew = skew.map(|rollout| rollout.max_skew).unwrap_or_default();
    let terms = of_hub.iter().filter_map(|form| {
        let terms = Terms {
            policy: form.spec.as_ref().ok()?.rollout.clone().unwrap_or_default(),
            skew,
            forced: is_forced(&hub.annotations) || is_forced(&form.annotations),
            held,
        };
        Some((form.name.clone(), terms))
    });
    terms.collect()
}

async fn outcome(
    world: &World,
    check: &NodeCheck,
    stored: Option<&Value>,
    terms: Option<&Terms>,
) -> Result<NodeOutcome, ApiError> {
    let when =
        |node: Option<&NodeDigest>| terms.map_or(When::InTurn, |terms| When::of(terms, node));
    let Some(stored) = stored else {
        return Ok(NodeOutcome::new(when(None)));
    };
    let mut node = NodeDigest::of(stored, None);
    let mut desired = stored.clone();
    match &check.spec {
        _ if node.live != Live::Unknown && check.spec.is_some() => return Ok(NodeOutcome::Known),
        _ if node.live != Live::Unknown => return Ok(NodeOutcome::waits(&node)),
        None => {}
        Some(spec) => {
            desired["spec"] = spec.clone();
            node.desired = content::hash(Some(spec)).to_string();
        }
    }
    if node.holds_lynqs_templates() {
        let record = left::record(stored, &node);
        let status = Arc::make_mut(&mut node.status);
        (status.applied_resources, status.applied_kinds) = record;
    }
    let foreseen = foresee(&world.objects, &node, &desired, |_, _| {}).await?;
    let effects = foreseen
        .map(|foreseen| foreseen.effects)
        .unwrap_or_default();
    Ok(match effects.is_empty() {
        true => NodeOutcome::TakenOver,
        false => NodeOutcome::changes(when(Some(&node)), &effects),
    })
}

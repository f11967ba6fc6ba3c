//! `lynqgate explain`: reads a hub with its forms and nodes once, and says what the release planner makes of them; or a StatefulSet,
//! and says what the partition loop does.

mod stateful_set;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::api::conditions;
use crate::api::names;
use crate::cli::Output;
use crate::cli::output::{print, tell};
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::client;
use crate::cluster::clock;
use crate::cluster::lease::{lease_key, shards_of};
use crate::cluster::objects::{ApiError, Objects};
use crate::controller::Rendered;
use crate::controller::rollout::{edited_of, snapshot};
use crate::decide::child::ObjectKey;
use crate::decide::node::digest::NodeDigest;
use crate::decide::operator::shards::shard_of;
use crate::decide::rollout::explain::{Asked, Explanation, Leader, of_nobody};
use crate::decide::rollout::{self, Plan, Snapshot};

#[derive(clap::Args)]
pub struct Arguments {
    /// node, form or statefulset.
    kind: Subject,
    /// Its name.
    name: String,
    /// Its namespace. Default: that of the kubeconfig's context.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// Kubeconfig to use. Default: the KUBECONFIG variable, or ~/.kube/config.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the operator.
    #[arg(long, default_value = "lynq-system")]
    operator_namespace: String,
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

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "there is no {kind} {name:?} in namespace {namespace:?}; give another with -n; of a form that is gone its nodes tell: lynqgate explain node"
    )]
    NotFound {
        kind: &'static str,
        name: String,
        namespace: String,
    },
    #[error("{what}: {reason}")]
    Api { what: String, reason: ApiError },
    #[error("lynqform {name}: {reason}")]
    Form { name: String, reason: String },
}

impl Error {
    fn not_found(kind: &'static str, namespace: &str, name: &str) -> Self {
        Error::NotFound {
            kind,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        }
    }
}

type AnyError = Box<dyn std::error::Error>;

pub fn explain(arguments: &Arguments) -> Result<(), AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match arguments.kind {
        Subject::StatefulSet => show(arguments, &runtime.block_on(stateful_set::ask(arguments))?),
        Subject::Node | Subject::Form => show(arguments, &runtime.block_on(ask(arguments))?),
    }
}

fn show<T: Serialize + fmt::Display>(arguments: &Arguments, answer: &T) -> Result<(), AnyError> {
    match arguments.output {
        Output::Text => print(answer)?,
        Output::Json => print(serde_json::to_string_pretty(answer)? + "\n")?,
    }
    Ok(())
}

impl Arguments {
    /// Where to ask, and for what namespace.
    async fn connect(&self) -> Result<(Objects, String), AnyError> {
        let path = self.kubeconfig.as_ref();
        let path = path.map(|path| path.display().to_string());
        let (kube, _) = client::connect(path.as_deref()).await?;
        let of_context = kube.default_namespace().to_owned();
        let namespace = self.namespace.clone().unwrap_or(of_context);
        Ok((Objects::new(kube), namespace))
    }
}

async fn ask(arguments: &Arguments) -> Result<Explanation, AnyError> {
    let (objects, namespace) = arguments.connect().await?;
    let namespace = namespace.as_str();
    let is_node = arguments.kind == Subject::Node;
    let kind = if is_node { "LynqNode" } else { "LynqForm" };
    let asked_about = get(&objects, kind, namespace, &arguments.name).await?;
    let hub_name = match is_node {
        true => NodeDigest::of(&asked_about, None).hub,
        false => Form::of(&asked_about).hub_id,
    };
    let hub_name = hub_name.as_str();
    if hub_name.is_empty() && is_node {
        return Ok(of_nobody(&NodeDigest::of(&asked_about, None)));
    }
    let hub = match hub_name {
        "" => Err(Error::not_found("LynqHub", namespace, hub_name)),
        _ => get(&objects, "LynqHub", namespace, hub_name).await,
    };
    let hub = match hub {
        Ok(object) => Some(Hub::of(&object)),
        Err(Error::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let found = Found::read(&objects, namespace, hub_name, hub).await?;
    let now = clock::now();
    let of_hub = (namespace, hub_name);
    let (leader, led_since) = leader(&objects, &arguments.operator_namespace, of_hub, now).await;
    let (snapshot, plan) = found.plan(led_since, now);
    let hub = found.hub.as_ref();
    let failed = found.nodes.iter().filter(|node| node.has_failed());
    let failed = failed.map(|node| node.form.clone()).collect();
    let asked = Asked {
        namespace,
        snapshot: &snapshot,
        plan: &plan,
        told: &found.of_condition("Held", "True"),
        invalid: &found.of_condition("Valid", "False"),
        unread: hub
            .and_then(|hub| says(hub, "Ready", "False"))
            .map(str::to_owned),
        unwritten: hub.and_then(|hub| says(hub, "WriteFailed", "True")),
        failed: &failed,
        leader: &leader,
        now,
    };
    let explained = match is_node {
        true => Some(asked.node(&NodeDigest::of(&asked_about, None))),
        false => asked.form(&arguments.name),
    };
    Ok(explained.ok_or_else(|| Error::Form {
        name: arguments.name.clone(),
        reason: Form::of(&asked_about)
            .spec
            .err()
            .unwrap_or_else(|| "it is being deleted".to_owned()),
    })?)
}

/// A hub with its forms and nodes, as one reading finds them.
struct Found {
    hub: Option<Hub>,
    forms: Vec<Arc<Form>>,
    nodes: Vec<Arc<NodeDigest>>,
    rendered: BTreeMap<(String, String), Rendered>,
}

impl Found {
    async fn read(
        objects: &Objects,
        namespace: &str,
        hub_name: &str,
        hub: Option<Hub>,
    ) -> Result<Self, Error> {
        let node_objects = list(objects, "LynqNode", namespace).await?;
        let nodes = node_objects
            .iter()
            .map(|object| Arc::new(NodeDigest::of(object, None)))
            .filter(|node| node.hub == hub_name);
        // A snapshot takes them in this order.
        let mut nodes: Vec<Arc<NodeDigest>> = nodes.collect();
        nodes.sort_by(|one, other| one.key.cmp(&other.key));
        let forms: Vec<Arc<Form>> = list(objects, "LynqForm", namespace)
            .await?
            .iter()
            .map(|object| Arc::new(Form::of(object)))
            .filter(|form| form.hub_id == hub_name && !form.deleting)
            .collect();
        Ok(Found {
            rendered: rendered(hub.as_ref(), &forms, &node_objects),
            nodes,
            hub,
            forms,
        })
    }

    /// What the operator plans, which leads since `led_since`.
    fn plan(&self, led_since: Option<Timestamp>, now: Timestamp) -> (Snapshot, Plan) {
        let seen = snapshot::SnapshotInputs {
            hub: self.hub.as_ref(),
            forms: &self.forms,
            rendered: &self.rendered,
        };
        let mut snapshot = snapshot::of(&seen, self.nodes.iter(), &mut snapshot::Views::default());
        snapshot.deletions_held = self
            .hub
            .as_ref()
            .is_some_and(|hub| conditions::is_true(&hub.status.conditions, "DeletionsHeld"));
        for slot in &snapshot.slots {
            // What was before the operator's start it has not seen.
            let node = snapshot.nodes.get_mut(&slot.node);
            if let Some(node) = node.filter(|node| node.uid == slot.uid) {
                node.watched_since = led_since;
            }
        }
        let mut plan = rollout::plan(&snapshot, now);
        for (form, edited) in edited_of(self.nodes.iter().map(AsRef::as_ref)) {
            if let Some(state) = plan.forms.remove(&form) {
                plan.forms.insert(form, state.with_edited(&edited));
            }
        }
        (snapshot, plan)
    }

    /// The reason and the message of each form's condition that has this status.
    fn of_condition(&self, type_: &str, status: &str) -> BTreeMap<String, (String, String)> {
        let told = self.forms.iter().filter_map(|form| {
            let mut conditions = form.status.conditions.iter();
            let told = conditions.find(|c| c.type_ == type_ && c.status == status)?;
            let said = (told.reason.to_string(), told.message.to_string());
            Some((form.name.clone(), said))
        });
        told.collect()
    }
}

fn says<'a>(hub: &'a Hub, type_: &str, status: &str) -> Option<&'a str> {
    let mut told = hub.status.conditions.iter();
    let told = told.find(|c| c.type_ == type_ && c.status == status)?;
    Some(&told.message)
}

/// The forms whose every node was written from what they are now: either their statuses say so, or, for the operator writes
/// those after the releases, the nodes.
fn rendered(
    hub: Option<&Hub>,
    forms: &[Arc<Form>],
    nodes: &[Value],
) -> BTreeMap<(String, String), Rendered> {
    let of_form = |form: &Form| {
        let generation = form.generation.to_string();
        let mut nodes = nodes
            .iter()
            .filter(|node| node["spec"]["templateRef"] == form.name.as_str())
            .map(|node| &node["metadata"]["annotations"][names::TEMPLATE_GENERATION])
            .peekable();
        form.status.all_written(form.generation)
            || nodes.peek().is_some() && nodes.all(|written| *written == generation.as_str())
    };
    let as_rendered = |form: &Arc<Form>| {
        let rendered = Rendered {
            generation: form.generation,
            spec: Some(form.spec.as_ref().ok()?.clone()),
            rows_hash: hub.and_then(|hub| hub.status.rows_hash.clone()),
            ..Rendered::default()
        };
        Some(((form.namespace.clone(), form.name.clone()), rendered))
    };
    let rendered = forms.iter().filter(|form| of_form(form));
    rendered.filter_map(as_rendered).collect()
}

async fn get(
    objects: &Objects,
    kind: &'static str,
    namespace: &str,
    name: &str,
) -> Result<Value, Error> {
    let key = ObjectKey::own(kind, namespace, name);
    objects.get(&key).await.map_err(|reason| match reason {
        ApiError::NotFound(_) => Error::not_found(kind, namespace, name),
        reason => Error::Api {
            what: format!("{kind} {name}"),
            reason,
        },
    })
}

async fn list(objects: &Objects, kind: &str, namespace: &str) -> Result<Vec<Value>, Error> {
    let mut all = vec![];
    let kind_of = ObjectKey::own(kind, "", "").kind;
    let listed = objects.list(&kind_of, namespace, |object| all.push(object));
    listed.await.map_err(|reason| Error::Api {
        what: format!("the {kind}s of namespace {namespace}"),
        reason,
    })?;
    Ok(all)
}

/// Whether a replica leads the shard of the hub, or of the StatefulSet, and since when. An operator that runs without leader
/// election has no lease, nor has one in another namespace there: then somebody leads, as far as one can tell.
async fn leader(
    objects: &Objects,
    namespace: &str,
    (of, name): (&str, &str),
    now: Timestamp,
) -> (Leader, Option<Timestamp>) {
    let first = lease_key(namespace, 0);
    let mut key = first.clone();
    let read = match objects.get(&first).await {
        Ok(lease) => match shard_of(of, name, shards_of(&lease)) {
            0 => Ok(lease),
            shard => {
                key = lease_key(namespace, shard);
                objects.get(&key).await
            }
        },
        failed => failed,
    };
    let missing = |since| Leader::Missing {
        lease: key.name.clone(),
        since,
    };
    let lease = match read {
        Ok(lease) => lease,
        // There are shards, and no replica has ever led this one.
        Err(ApiError::NotFound(_)) if key != first => return (missing(None), None),
        Err(ApiError::NotFound(_)) => {
            tell(format_args!(
                "whether an operator runs is not known, and the answer supposes it: there is no lease {namespace}/{} \
                 (--operator-namespace names the operator's namespace)",
                first.name
            ));
            return (Leader::Leads, None);
        }
        // Who looks after a tenant need not be allowed to look into the operator's namespace.
        Err(reason) => {
            tell(format_args!(
                "whether an operator runs could not be read, and the answer supposes it: lease {namespace}/{}: {reason}",
                key.name
            ));
            return (Leader::Leads, None);
        }
    };
    let spec = &lease["spec"];
    let time = |field: &str| -> Option<Timestamp> { spec[field].as_str()?.parse().ok() };
    let renewed = time("renewTime");
    let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or_default();
    let held = spec["holderIdentity"]
        .as_str()
        .is_some_and(|holder| !holder.is_empty());
    // Twice as long: the clocks of this machine and the operator's may differ a little.
    let fresh = renewed.is_some_and(|at| now.duration_since(at).as_secs() <= 2 * seconds);
    match held && fresh {
        true => (Leader::Leads, time("acquireTime")),
        false => (missing(renewed), None),
    }
}

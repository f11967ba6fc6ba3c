//! `lynqgate explain`: shows what the operator wrote about a node or a form into the statuses; or reads a StatefulSet once, and says
//! what the partition loop does.

mod stateful_set;

use std::fmt;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::cli::Output;
use crate::cli::output::{print, tell};
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::client;
use crate::cluster::clock;
use crate::cluster::lease::{lease_key, shards_of};
use crate::cluster::objects::{ApiError, Objects};
use crate::controller::rollout::snapshot;
use crate::decide::child::ObjectKey;
use crate::decide::node::digest::NodeDigest;
use crate::decide::operator::shards::shard_of;
use crate::decide::rollout::explain::{Asked, Explanation, FormTold, Leader, of_nobody};
use crate::decide::rollout::status::Force;

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
    let about = match arguments.kind {
        Subject::Node => "LynqNode",
        _ => "LynqForm",
    };
    let object = get(&objects, about, &namespace, &arguments.name).await?;
    let node = (arguments.kind == Subject::Node).then(|| NodeDigest::of(&object, None));
    let form = match &node {
        Some(node) if node.hub.is_empty() => return Ok(of_nobody(node)),
        Some(node) => found(get(&objects, "LynqForm", &namespace, &node.form).await)?,
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
        name => found(get(&objects, "LynqHub", &namespace, name).await)?,
    };
    let hub = hub.map(|object| Hub::of(&object));
    let form = form.filter(|form| form.hub_id == hub_name);
    let now = clock::now();
    let of_hub = (namespace.as_str(), hub_name.as_str());
    let leader = leader(&objects, &arguments.operator_namespace, of_hub, now).await;
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
        namespace: &namespace,
        form: told,
        hub: hub.as_ref().map(|hub| &hub.status),
        force,
        leader: &leader,
        now,
    };
    match (node, told) {
        (Some(node), _) => Ok(asked.node(&node)),
        (None, Some(form)) => Ok(asked.form(form)),
        (None, None) => Err(Error::not_found("LynqForm", &namespace, &arguments.name).into()),
    }
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

/// Around what is asked about, an object may be gone.
fn found(read: Result<Value, Error>) -> Result<Option<Value>, Error> {
    match read {
        Err(Error::NotFound { .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// Whether a replica leads the shard of the hub, or of the StatefulSet. An operator that runs without leader
/// election has no lease, nor has one in another namespace there: then somebody leads, as far as one can tell.
async fn leader(
    objects: &Objects,
    namespace: &str,
    (of, name): (&str, &str),
    now: Timestamp,
) -> Leader {
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
        lease: format!("{namespace}/{}", key.name),
        since,
    };
    let lease = match read {
        Ok(lease) => lease,
        // There are shards, and no replica has ever led this one.
        Err(ApiError::NotFound(_)) if key != first => return missing(None),
        Err(ApiError::NotFound(_)) => {
            tell(format_args!(
                "whether an operator runs is not known, and the answer supposes it: there is no lease {namespace}/{} \
                 (--operator-namespace names the operator's namespace)",
                first.name
            ));
            return Leader::Leads;
        }
        // Who looks after a tenant need not be allowed to look into the operator's namespace.
        Err(reason) => {
            tell(format_args!(
                "whether an operator runs could not be read, and the answer supposes it: lease {namespace}/{}: {reason}",
                key.name
            ));
            return Leader::Leads;
        }
    };
    let spec = &lease["spec"];
    let renewed: Option<Timestamp> = spec["renewTime"].as_str().and_then(|at| at.parse().ok());
    let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or_default();
    let held = spec["holderIdentity"]
        .as_str()
        .is_some_and(|holder| !holder.is_empty());
    // Twice as long: the clocks of this machine and the operator's may differ a little.
    let fresh = renewed.is_some_and(|at| now.duration_since(at).as_secs() <= 2 * seconds);
    match held && fresh {
        true => Leader::Leads,
        false => missing(renewed),
    }
}

//! How a command reaches the cluster, and what several of them read there.

use std::cell::OnceCell;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use jiff::Timestamp;
use serde_json::Value;

use crate::cli::output::tell;
use crate::cluster::client::{self, ConnectError};
use crate::cluster::events::Events;
use crate::cluster::lease::{lease_key, lease_of, shards_of};
use crate::cluster::objects::{ApiError, Objects};
use crate::controller::World;
use crate::controller::decisions::Decide;
use crate::controller::hub::Databases;
use crate::controller::metrics::Metrics;
use crate::decide::child::ObjectKey;
use crate::decide::operator::shards::shard_of;
use crate::decide::rollout::explain::Leader;

#[derive(clap::Args)]
pub struct Connection {
    /// Namespace of the objects. Default: the namespace of the kubeconfig's context.
    #[arg(short, long, value_parser = NonEmptyStringValueParser::new())]
    namespace: Option<String>,
    #[command(flatten)]
    access: Access,
    /// Namespace in which lynqgate runs.
    #[arg(long, default_value = "lynq-system")]
    operator_namespace: String,
}

// Which cluster: all that a command needs that asks about no namespace. (A doc comment would be the help of the command.)
#[derive(clap::Args)]
pub struct Access {
    /// Kubeconfig to use. Default: the KUBECONFIG variable, or ~/.kube/config.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use. Default: the current one.
    #[arg(long)]
    context: Option<String>,
}

/// The cluster, the namespace that is asked about, and the operator's.
pub struct Connected {
    pub objects: Objects,
    pub namespace: String,
    pub operator_namespace: String,
    /// User name of the requests.
    pub user: String,
    /// A command that reads again and again warns once.
    warned: OnceCell<()>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no {kind} {name:?} in namespace {namespace:?}; give another with -n{hint}")]
    NotFound {
        kind: &'static str,
        name: String,
        namespace: String,
        hint: &'static str,
    },
    #[error("{what}: {reason}")]
    Api { what: String, reason: ApiError },
}

pub type AnyError = Box<dyn std::error::Error>;

/// Runs a command to its end, on this thread.
pub fn run<T>(command: impl Future<Output = Result<T, AnyError>>) -> Result<T, AnyError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(command)
}

/// What a command needs that does a part of a loop's work. Its writes are dry runs.
pub fn world(objects: &Objects) -> Arc<World> {
    World::new(
        Arc::new(Decide),
        "",
        objects.dry_run(),
        Events::start(objects.client.clone(), None),
        Metrics::default(),
        Databases::default(),
    )
}

impl Error {
    pub fn not_found(kind: &'static str, namespace: &str, name: &str) -> Self {
        Error::NotFound {
            kind,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            hint: match kind {
                "LynqForm" => "; for a deleted form, see its nodes: lynqgate explain node NAME",
                _ => "",
            },
        }
    }
}

/// Whether the same read may go through in a moment.
pub fn may_pass(error: &AnyError) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(|error| matches!(error, Error::Api { reason, .. } if reason.may_pass()))
}

impl Access {
    /// The client, and the user name of its requests.
    pub async fn connect(&self) -> Result<(kube::Client, String), ConnectError> {
        let path = self.kubeconfig.as_ref();
        let path = path.map(|path| path.display().to_string());
        client::connect(path.as_deref(), self.context.as_deref()).await
    }
}

impl Connection {
    /// The namespace, if the user gave one.
    pub fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub async fn connect(&self) -> Result<Connected, AnyError> {
        let (kube, user) = self.access.connect().await?;
        let of_context = kube.default_namespace().to_owned();
        Ok(Connected {
            objects: Objects::new(kube),
            namespace: self.namespace.clone().unwrap_or(of_context),
            operator_namespace: self.operator_namespace.clone(),
            user,
            warned: OnceCell::new(),
        })
    }
}

impl Connected {
    fn warn(&self, text: impl Display) {
        if self.warned.set(()).is_ok() {
            tell(text);
        }
    }

    /// One of the three kinds.
    pub async fn get(&self, kind: &'static str, name: &str) -> Result<Value, Error> {
        let key = ObjectKey::own(kind, &self.namespace, name);
        self.read(kind, &key).await
    }

    pub async fn read(&self, kind: &'static str, key: &ObjectKey) -> Result<Value, Error> {
        let read = self.objects.get(key).await;
        read.map_err(|reason| match reason {
            ApiError::NotFound(_) => Error::not_found(kind, &key.namespace, &key.name),
            reason => Error::Api {
                what: format!("{kind} {}", key.name),
                reason,
            },
        })
    }

    /// All of one of the three kinds.
    pub async fn list(&self, kind: &'static str) -> Result<Vec<Value>, Error> {
        let mut all = vec![];
        let of_kind = ObjectKey::own(kind, "", "").kind;
        let listed = (self.objects).list(&of_kind, &self.namespace, |object| all.push(object));
        listed.await.map_err(|reason| Error::Api {
            what: format!("{kind}s of namespace {}", self.namespace),
            reason,
        })?;
        Ok(all)
    }

    /// Around what is asked about, an object may be gone.
    pub async fn find(&self, kind: &'static str, name: &str) -> Result<Option<Value>, Error> {
        match self.get(kind, name).await {
            Err(Error::NotFound { .. }) => Ok(None),
            read => read.map(Some),
        }
    }

    /// Whether a replica leads the shard of the hub, or of the StatefulSet, of this name. An operator that runs without leader
    /// election has no lease, nor has one in another namespace there: then somebody leads, as far as one can tell.
    pub async fn leader(&self, of: &str, now: Timestamp) -> Leader {
        let namespace = &self.operator_namespace;
        let first = lease_key(namespace, 0);
        let mut key = first.clone();
        let read = match self.objects.get(&first).await {
            Ok(lease) => match shard_of(&self.namespace, of, shards_of(&lease)) {
                0 => Ok(lease),
                shard => {
                    key = lease_key(namespace, shard);
                    self.objects.get(&key).await
                }
            },
            failed => failed,
        };
        let missing = |since| Leader::Missing {
            lease: format!("{namespace}/{}", key.name),
            since,
        };
        let lease = match read {
            Ok(lease) => lease_of(&lease),
            // There are shards, and no replica has ever led this one.
            Err(ApiError::NotFound(_)) if key != first => return missing(None),
            Err(ApiError::NotFound(_)) => {
                self.warn(format_args!(
                    "cannot tell whether an operator runs: there is no Lease {namespace}/{} (give its namespace with --operator-namespace)",
                    first.name
                ));
                return Leader::Leads;
            }
            // Who looks after a tenant need not be allowed to look into the operator's namespace.
            Err(reason) => {
                self.warn(format_args!(
                    "cannot tell whether an operator runs: Lease {namespace}/{}: {reason}",
                    key.name
                ));
                return Leader::Leads;
            }
        };
        match lease.is_held(now) {
            true => Leader::Leads,
            false => missing(lease.renewed_at()),
        }
    }
}

//! Self-issued TLS certificates for Kubernetes admission webhooks, kept, rotated and trusted without cert-manager.
//! This crate must not know what the webhooks are for, nor how requests are served.
//!
//! Every replica of a webhook server runs the same loop. The authorities (`active`, `next`, `retired`) are in one
//! Secret, changed by compare-and-swap only, so that replicas that start at once agree on one. Each replica mints
//! its own serving certificate from `active`, in memory, and writes the authorities' certificates into the
//! `caBundle` of every webhook of the named configurations, by server-side apply of that one field.
//!
//! - `lifetimes`: how long authorities and certificates are valid.
//! - `status`: the state that callers can read.
//! - `plan`: the rotation protocol, pure.
//! - `authority`: X.509 and the Secret's entries.
//! - `resolver`: the certificate that rustls serves.
//! - `cluster`: calls to the API server.
//! - `reconcile`: the loop around them.

// `expect` says why it cannot fail.
#![warn(clippy::unwrap_used)]

mod authority;
mod cluster;
mod lifetimes;
// The bans of clippy.toml; the tests beside the plan may do more.
#[cfg_attr(
    not(test),
    forbid(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]
mod plan;
mod reconcile;
mod resolver;
mod status;

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use kube::Client;
use rustls::ServerConfig;
use rustls::pki_types::DnsName;
use thiserror::Error;
use tokio::sync::watch;

pub use lifetimes::{Lifetimes, LifetimesError};
pub use status::{ConfigurationKind, ConfigurationRef, Reason, Status};

/// Which certificates to issue, and where the Secret and the webhooks are.
#[derive(Clone, Debug)]
pub struct Config {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret. It is created if it does not exist, and filled if it is empty.
    pub secret_name: String,
    /// Owner of the `caBundle` fields in managedFields: the same for all replicas and versions, and used for
    /// nothing else on these configurations.
    pub field_manager: String,
    /// For webhooks called through a Service: `<service>.<namespace>.svc`.
    pub dns_names: Vec<String>,
    /// For webhooks called by URL: the address in it.
    pub ip_addresses: Vec<IpAddr>,
    /// Names of the MutatingWebhookConfigurations. All of their webhooks must be served with this certificate.
    pub mutating: Vec<String>,
    /// Names of the ValidatingWebhookConfigurations, likewise.
    pub validating: Vec<String>,
    /// How long things live; usually the default.
    pub lifetimes: Lifetimes,
}

/// Why a [`Config`] cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No client could accept such a certificate.
    #[error("webhook certificates: neither a DNS name nor an IP address is given")]
    NoNames,
    /// A certificate cannot contain this name.
    #[error("webhook certificates: `{0}` is not a DNS name")]
    DnsName(String),
    /// No API server would trust the certificate.
    #[error("webhook certificates: no webhook configuration is named")]
    NoConfigurations,
    /// See [`Lifetimes`].
    #[error("webhook certificates: {0}")]
    Lifetimes(#[from] LifetimesError),
    /// rustls refuses the protocol versions.
    #[error("webhook certificates: {0}")]
    Tls(#[from] rustls::Error),
}

/// The certificate of this replica. Clones are the same certificate.
#[derive(Clone, Debug)]
pub struct WebhookCerts {
    server_config: Arc<ServerConfig>,
    status: watch::Receiver<Status>,
}

impl WebhookCerts {
    /// Returns the handle, and the loop that keeps the certificate: a future for the caller to spawn, which ends
    /// only by being dropped. It may be dropped at any point; what was being written is then either written or
    /// not, and both are fine.
    pub fn start(
        client: Client,
        config: Config,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), ConfigError> {
        config.validate()?;
        let resolver = Arc::new(resolver::LeafResolver::default());
        let server_config = Arc::new(resolver::server_config(resolver.clone())?);
        let (sender, status) = watch::channel(Status {
            reason: Reason::SecretUnread,
            secret_problem: None,
            api_problem: None,
            leaf_not_after: None,
            ca_not_after: None,
        });
        let configurations = config.configurations();
        let Config {
            namespace,
            secret_name,
            field_manager,
            dns_names,
            ip_addresses,
            lifetimes,
            ..
        } = config;
        let cluster = cluster::Cluster {
            client,
            namespace,
            secret_name,
            field_manager,
        };
        let names = authority::Names {
            dns: dns_names,
            ip: ip_addresses,
        };
        let reconciler =
            reconcile::Reconciler::new(cluster, configurations, names, lifetimes, resolver, sender);
        Ok((
            Self {
                server_config,
                status,
            },
            reconciler.run(),
        ))
    }

    /// For the TLS listener. It serves the newest certificate at each handshake; until the first was made,
    /// handshakes fail.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.server_config.clone()
    }

    /// The current status.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// The status as it changes. The channel closes when the loop is dropped.
    pub fn watch_status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }
}

impl Config {
    fn validate(&self) -> Result<(), ConfigError> {
        if self.dns_names.is_empty() && self.ip_addresses.is_empty() {
            return Err(ConfigError::NoNames);
        }
        if let Some(name) = self
            .dns_names
            .iter()
            .find(|name| DnsName::try_from(name.as_str()).is_err())
        {
            return Err(ConfigError::DnsName(name.clone()));
        }
        if self.mutating.is_empty() && self.validating.is_empty() {
            return Err(ConfigError::NoConfigurations);
        }
        Ok(self.lifetimes.validate()?)
    }

    fn configurations(&self) -> Vec<ConfigurationRef> {
        let of = |kind, names: &[String]| -> Vec<ConfigurationRef> {
            names
                .iter()
                .map(|name| ConfigurationRef {
                    kind,
                    name: name.clone(),
                })
                .collect()
        };
        let mut all = of(ConfigurationKind::Mutating, &self.mutating);
        all.extend(of(ConfigurationKind::Validating, &self.validating));
        all
    }
}

/// Compiles the usage in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

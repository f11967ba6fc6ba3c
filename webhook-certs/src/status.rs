//! The state of the certificates for callers, in sentences for people and in fixed labels for metrics. It must not contain
//! secrets: all of it may be logged.

use std::fmt;

use jiff::Timestamp;
use thiserror::Error;

/// How the certificates are, for readiness, metrics and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// [`Reason::Ready`], or the first thing that is missing.
    pub reason: Reason,
    /// The Secret cannot be used. The last certificate made from it stays in use and is even renewed, but the
    /// authority is not: somebody must act before `ca_not_after`.
    pub secret_problem: Option<String>,
    /// The last calls to the API server failed.
    pub api_problem: Option<String>,
    /// End of the serving certificate.
    pub leaf_not_after: Option<Timestamp>,
    /// End of the authority in use.
    pub ca_not_after: Option<Timestamp>,
}

impl Status {
    /// Whether calls to the webhooks can be expected to succeed.
    pub fn ready(&self) -> bool {
        self.reason == Reason::Ready
    }
}

/// Why webhook calls can or cannot be expected to succeed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The serving certificate is valid, and its authority was read back in every bundle.
    #[error("ready")]
    Ready,
    /// Nothing was read yet, or the API server refuses the read.
    #[error("the Secret with the authorities has not been read yet")]
    SecretUnread,
    /// The Secret cannot be used, and there is no earlier certificate.
    #[error("there is no certificate to serve: the Secret is unusable: {0}")]
    SecretUnusable(String),
    /// The first authority is being made.
    #[error("there is no certificate to serve yet")]
    NoCertificate,
    /// Its authority could not be renewed in time.
    #[error("the serving certificate expired at {0}")]
    LeafExpired(Timestamp),
    /// The clocks of this machine and of the authority's issuer differ too much.
    #[error("the serving certificate is not valid before {0}: check this machine's clock")]
    LeafNotYetValid(Timestamp),
    /// Nothing was read yet, or the API server refuses the read.
    #[error("{0} has not been read yet")]
    ConfigurationUnread(ConfigurationRef),
    /// The loop waits for it.
    #[error("{0} does not exist: apply the manifest that holds it")]
    ConfigurationMissing(ConfigurationRef),
    /// The bundle will soon be written, or the API server rejects the write.
    #[error("{0} has a webhook whose caBundle lacks the authority of the serving certificate")]
    BundleLacksCa(ConfigurationRef),
}

impl Reason {
    /// A fixed word for a metric label or a condition's reason.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::SecretUnread => "SecretUnread",
            Self::SecretUnusable(_) => "SecretUnusable",
            Self::NoCertificate => "NoCertificate",
            Self::LeafExpired(_) => "LeafExpired",
            Self::LeafNotYetValid(_) => "LeafNotYetValid",
            Self::ConfigurationUnread(_) => "ConfigurationUnread",
            Self::ConfigurationMissing(_) => "ConfigurationMissing",
            Self::BundleLacksCa(_) => "BundleLacksCa",
        }
    }

    /// Whether it lasts until somebody does something.
    pub(crate) fn needs_somebody(&self) -> bool {
        matches!(
            self,
            Self::SecretUnusable(_)
                | Self::LeafExpired(_)
                | Self::LeafNotYetValid(_)
                | Self::ConfigurationMissing(_)
        )
    }
}

/// Which kind of webhook configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigurationKind {
    /// A MutatingWebhookConfiguration.
    Mutating,
    /// A ValidatingWebhookConfiguration.
    Validating,
}

/// A webhook configuration by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigurationRef {
    /// Its kind.
    pub kind: ConfigurationKind,
    /// `metadata.name`.
    pub name: String,
}

impl ConfigurationRef {
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            ConfigurationKind::Mutating => "MutatingWebhookConfiguration",
            ConfigurationKind::Validating => "ValidatingWebhookConfiguration",
        }
    }
}

impl fmt::Display for ConfigurationRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind_name(), self.name)
    }
}

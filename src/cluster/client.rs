//! The connection to the API server, and the operator's user name there.

use std::net::SocketAddr;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{Config, InferConfigError, KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use serde_json::{Value, json};
use tower::util::MapResponseLayer;

use crate::cluster::shallow::shallow;
use crate::cluster::watch::WATCH_TIMEOUT;

/// The time limit of one request. Watches have their own.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time without data on a connection that is being read: longer than a watch lasts.
const SILENT_MAX: Duration = WATCH_TIMEOUT.saturating_add(Duration::from_secs(20));

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(
        "no way to the API server: {0}; run inside a cluster, or point KUBECONFIG or --kubeconfig to a file"
    )]
    NoConfig(Box<InferConfigError>),
    #[error("kubeconfig {path}: {reason}")]
    BadFile { path: String, reason: String },
    #[error("the API server at {url} cannot be used: {reason}")]
    Unusable { url: String, reason: String },
}

/// The addresses of the API server, as the operator reaches it.
pub async fn addresses(kubeconfig: Option<&str>) -> Result<Vec<SocketAddr>, ConnectError> {
    let url = configuration(kubeconfig, None).await?.cluster_url;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = match url.port_u16() {
        Some(port) => port,
        None if url.scheme_str() == Some("http") => 80,
        None => 443,
    };
    let found = tokio::net::lookup_host((host, port)).await;
    Ok(found.into_iter().flatten().collect())
}

async fn configuration(
    kubeconfig: Option<&str>,
    context: Option<&str>,
) -> Result<Config, ConnectError> {
    if (kubeconfig, context) == (None, None) {
        let inferred = Config::infer().await;
        return inferred.map_err(|e| ConnectError::NoConfig(Box::new(e)));
    }
    let bad = |reason: kube::config::KubeconfigError| ConnectError::BadFile {
        path: kubeconfig
            .unwrap_or("(KUBECONFIG or ~/.kube/config)")
            .to_owned(),
        reason: reason.to_string(),
    };
    let file = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(file.map_err(bad)?, &options).await;
    config.map_err(bad)
}

/// A client, and the user name of its requests. Without `kubeconfig`, uses the KUBECONFIG variable, the file in the home
/// directory, or the pod's service account; without a context, the current one.
pub async fn connect(
    kubeconfig: Option<&str>,
    context: Option<&str>,
) -> Result<(kube::Client, String), ConnectError> {
    let mut config = configuration(kubeconfig, context).await?;
    let url = config.cluster_url.to_string();
    let unusable = |reason: String| ConnectError::Unusable {
        url: url.clone(),
        reason,
    };
    // Every loop has its own backoff; a client that retries inside a request would hold up the loop's other work.
    config.default_retry = false;
    // A list, or the beginning of a watch, has no other limit: one that is never answered would end what its kind's cache hears.
    config.read_timeout = Some(SILENT_MAX);
    config.reset_reader_on_write = true;
    let client = ClientBuilder::try_from(config)
        .map_err(|e| unusable(e.to_string()))?
        .with_layer(&MapResponseLayer::new(shallow))
        .build();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = Request::new("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .create(
            &kube::api::PostParams::default(),
            review.to_string().into_bytes(),
        )
        .map_err(|e| unusable(e.to_string()))?;
    let answer: Value = tokio::time::timeout(REQUEST_TIMEOUT, client.request(request))
        .await
        .map_err(|_| unusable(format!("no answer in {} s", REQUEST_TIMEOUT.as_secs())))?
        .map_err(|e| unusable(e.to_string()))?;
    let user = answer
        .pointer("/status/userInfo/username")
        .and_then(Value::as_str);
    match user {
        Some(user) => Ok((client, user.to_owned())),
        None => Err(unusable(
            "it does not say who we are (SelfSubjectReview)".to_owned(),
        )),
    }
}

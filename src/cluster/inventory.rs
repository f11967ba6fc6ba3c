//! What only commands ask the API server for: every kind that it serves, its version, and the log of a pod.

use kube::core::Request;
use kube::core::subresource::LogParams;
use kube::discovery::{Discovery, verbs};

use crate::cluster::client::REQUEST_TIMEOUT;
use crate::cluster::objects::{ApiError, Objects, Served, timed};

/// Every kind whose objects can be listed and deleted, each in its most stable version.
pub async fn deletable_kinds(objects: &Objects) -> Result<Vec<Served>, ApiError> {
    let all = Discovery::new(objects.client.clone()).run_aggregated();
    let all = timed(REQUEST_TIMEOUT, all).await?;
    let mut kinds = vec![];
    for group in all.groups() {
        for (resource, capabilities) in group.resources_by_stability() {
            let has = |verb: &str| capabilities.supports_operation(verb);
            if has(verbs::LIST) && has(verbs::DELETE) {
                kinds.push(objects.learn(Served::of(resource, &capabilities)));
            }
        }
    }
    kinds.sort_by_cached_key(Served::kind);
    Ok(kinds)
}

/// The version of the API server.
pub async fn version(objects: &Objects) -> Result<String, ApiError> {
    let info = timed(REQUEST_TIMEOUT, objects.client.apiserver_version()).await?;
    Ok(info.git_version)
}

/// The last lines of a container's log.
pub async fn log(
    objects: &Objects,
    namespace: &str,
    pod: &str,
    container: &str,
    lines: i64,
) -> Result<String, ApiError> {
    let params = LogParams {
        container: Some(container.to_owned()),
        tail_lines: Some(lines),
        ..LogParams::default()
    };
    let pods = Request::new(format!("/api/v1/namespaces/{namespace}/pods"));
    let request = pods.logs(pod, &params);
    let request = request.map_err(|error| ApiError::Refused(error.to_string()))?;
    timed(REQUEST_TIMEOUT, objects.client.request_text(request)).await
}

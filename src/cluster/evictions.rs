//! Evictions of pods by policy/v1, and what the API server made of each. It never deletes a pod itself.

use http::Request;
use kube::core::Status;
use serde_json::{Value, json};

use crate::cluster::api_error::ApiError;
use crate::cluster::client::REQUEST_TIMEOUT;
use crate::cluster::objects::Objects;
use crate::decide::maintenance::drain::Pod;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evicted {
    Accepted,
    /// The pod is not there any more.
    Gone,
    /// A PodDisruptionBudget refuses it now.
    Budget,
    /// Its namespace is being deleted, and the pod with it.
    Terminating,
    /// Nothing is wrong with it: the same request may go through in a moment.
    Again,
    Failed(String),
}

/// Evicts this very pod, not another of its name.
pub async fn evict(objects: &Objects, pod: &Pod) -> Evicted {
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}/eviction",
        pod.namespace, pod.name
    );
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod.namespace, "name": pod.name},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    });
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(eviction.to_string().into_bytes())
        .expect("names of objects make a path");
    let sent = objects.client.request::<Value>(request);
    match tokio::time::timeout(REQUEST_TIMEOUT, sent).await {
        Ok(Ok(_)) => Evicted::Accepted,
        Ok(Err(kube::Error::Api(status))) => refused(*status),
        Ok(Err(_)) | Err(_) => Evicted::Again,
    }
}

fn refused(status: Status) -> Evicted {
    let details = status.details.iter();
    let mut causes = details.flat_map(|details| &details.causes);
    match status.code {
        404 => Evicted::Gone,
        // Another pod of its name, or a writer that was faster: the next list tells.
        409 => Evicted::Again,
        429 if causes.any(|cause| cause.reason == "DisruptionBudget") => Evicted::Budget,
        403 if causes.any(|cause| cause.reason == "NamespaceTerminating") => Evicted::Terminating,
        _ => match ApiError::from(kube::Error::Api(Box::new(status))) {
            ApiError::Unavailable(_) | ApiError::Conflict(_) => Evicted::Again,
            error => Evicted::Failed(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_are_told_apart_by_code_and_cause() {
        let cause = |reason: &str| json!({"causes": [{"reason": reason, "message": "x"}]});
        for (status, expected) in [
            (json!({"code": 404, "reason": "NotFound"}), Evicted::Gone),
            (json!({"code": 409, "reason": "Conflict"}), Evicted::Again),
            (
                json!({"code": 429, "reason": "TooManyRequests", "details": cause("DisruptionBudget")}),
                Evicted::Budget,
            ),
            (
                json!({"code": 429, "reason": "TooManyRequests"}),
                Evicted::Again,
            ),
            (
                json!({"code": 403, "reason": "Forbidden", "details": cause("NamespaceTerminating")}),
                Evicted::Terminating,
            ),
            (
                json!({"code": 403, "reason": "Forbidden", "message": "pods is forbidden"}),
                Evicted::Failed("pods is forbidden".to_owned()),
            ),
            (
                json!({"code": 503, "reason": "ServiceUnavailable"}),
                Evicted::Again,
            ),
        ] {
            let answered: Status = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(refused(answered), expected, "{status}");
        }
    }
}

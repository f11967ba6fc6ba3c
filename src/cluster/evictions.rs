//! Evicts pods through policy/v1 and classifies the API server's answer. It never deletes a pod directly.

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
    /// The pod no longer exists.
    Gone,
    /// A PodDisruptionBudget refuses it now.
    Budget,
    /// The pod's namespace is being deleted, which deletes the pod too.
    Terminating,
    /// A retry of the same request may succeed.
    Again,
    Failed(String),
}

/// Evicts the pod of this uid, never another pod of its name.
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
        // Another pod has the name, or another writer was faster: the next list shows which.
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

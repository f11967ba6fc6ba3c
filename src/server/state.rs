//! /debug/state: what the last pass of each hub's release loop saw and planned, for `lynqgate replay`.

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::cluster::process::compute;
use crate::decide::rollout::replay::{Recording, to_json};

pub const PATH: &str = "/debug/state";

/// The last pass of each hub; None in a replica that does not lead.
pub type Recordings = Arc<dyn Fn() -> Option<Vec<Arc<Recording>>> + Send + Sync>;

pub fn router(recordings: Recordings) -> Router {
    Router::new().route(
        PATH,
        get(move |uri: Uri| async move { answer(&uri, recordings()) }),
    )
}

/// Planning and writing 10,000 nodes takes a while.
fn answer(uri: &Uri, mut recordings: Option<Vec<Arc<Recording>>>) -> Response {
    if let Some(query) = uri.query() {
        let hub = query
            .strip_prefix("hub=")
            .map(|hub| hub.replace("%2F", "/"));
        let Some(hub) = hub.filter(|hub| hub.split('/').count() == 2) else {
            let text = format!(
                "{query:?} is not understood: {PATH}?hub=NAMESPACE/NAME asks for one hub, {PATH} for all"
            );
            return (StatusCode::BAD_REQUEST, text).into_response();
        };
        if let Some(all) = &mut recordings {
            all.retain(|recording| recording.hub() == hub);
            if all.is_empty() {
                let text = format!(
                    "no pass of LynqHub {hub} is recorded here; check its namespace and name, and with --shards ask the replica that leads its shard"
                );
                return (StatusCode::NOT_FOUND, text).into_response();
            }
        }
    }
    match compute(|| to_json(recordings.as_deref())) {
        Ok(json) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

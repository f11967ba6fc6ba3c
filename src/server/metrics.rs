//! /metrics: what the operator counts, as Prometheus reads it.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

pub const PATH: &str = "/metrics";

pub fn router(registry: Arc<Registry>) -> Router {
    let scrape = move || async move {
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => (
                [(
                    CONTENT_TYPE,
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                )],
                text,
            )
                .into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    };
    Router::new().route(PATH, get(scrape))
}

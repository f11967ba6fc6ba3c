//! Liveness, readiness and metrics, over plain HTTP.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

/// Why this process is not ready; None when it is.
pub type NotReady = Arc<dyn Fn() -> Option<String> + Send + Sync>;

pub fn probes(not_ready: NotReady) -> Router {
    let readyz = move || async move {
        match not_ready() {
            None => (StatusCode::OK, "ok".to_owned()),
            Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
        }
    };
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
}

pub fn metrics(registry: Arc<Registry>) -> Router {
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
    Router::new().route("/metrics", get(scrape))
}

pub async fn serve(
    listener: TcpListener,
    app: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    if let Err(error) = axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await
    {
        tracing::error!(%error, "a listener ended");
    }
}

//! Liveness and readiness, over plain HTTP.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
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

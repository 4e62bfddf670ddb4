//! `--http`: `/metrics` for Prometheus and `/health` for whoever restarts things, on the control plane's thread. Reading only.

use crate::metrics;
use crate::shared::Shared;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use std::sync::Arc;

/// Answers until the runtime ends.
pub(crate) async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/health", get(async || "ok\n"))
        .with_state(shared);
    let served = async { axum::serve(tokio::net::TcpListener::from_std(listener)?, router).await };
    if let Err(error) = served.await {
        tracing::error!("the HTTP port is closed: {error}");
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&shared))
}

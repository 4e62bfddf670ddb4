//! `--http`: `/metrics` for Prometheus and `/health` for whoever restarts things, on the control plane's thread. Reading only.
//!
//! Borrowers need the descriptors that connections take here: there are few at once, each has one answer and little time, whether its peer is slow or gone.

use crate::metrics;
use crate::shared::Shared;
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Connections at once; others wait with the kernel.
const CONNECTIONS_MAX: usize = 16;
/// For a question and its answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// How long to leave the listener alone when the system has no descriptor or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Answers until the runtime ends.
pub(crate) async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/health", get(async || "ok\n"))
        .with_state(shared);
    match TcpListener::from_std(listener) {
        Ok(listener) => accept(listener, router, ANSWERED_WITHIN).await,
        Err(error) => tracing::error!("the HTTP port is closed: {error}"),
    }
}

async fn accept(listener: TcpListener, router: Router, within: Duration) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) {
                    sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        let router = router.clone();
        tokio::spawn(async move {
            // Who has no answer by then gets none.
            let _ = timeout(within, answer(socket, router)).await;
            drop(place);
        });
    }
}

async fn answer(socket: TcpStream, router: Router) {
    let service = TowerToHyperService::new(router);
    let answered =
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(socket), service).await;
    if let Err(why) = answered {
        tracing::debug!("an HTTP connection broke: {why}");
    }
}

async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&shared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// They take all places, say nothing or half of something, and never leave.
    #[test]
    fn those_who_vanish_keep_nobody_from_an_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = listener.local_addr().unwrap();
            let router = Router::new().route("/health", get(async || "ok\n"));
            tokio::spawn(accept(listener, router, Duration::from_millis(200)));
            let mut vanished = Vec::new();
            for number in 0..3 * CONNECTIONS_MAX {
                let mut socket = TcpStream::connect(at).await.unwrap();
                if number % 2 == 0 {
                    socket.write_all(b"GET /health HT").await.unwrap();
                }
                vanished.push(socket);
            }
            let mut socket = TcpStream::connect(at).await.unwrap();
            socket.write_all(b"GET /health HTTP/1.1\r\nHost: loam\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            // It ends though nobody asked for that.
            let read = timeout(Duration::from_secs(20), socket.read_to_string(&mut answer));
            read.await.expect("no answer").unwrap();
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{answer}");
            for mut socket in vanished {
                assert_eq!(socket.read(&mut [0; 64]).await.unwrap_or(0), 0, "it is still open");
            }
        });
    }
}

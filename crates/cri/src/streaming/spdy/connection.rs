//! A connection that goes over to SPDY: the answer that says so, and the one who writes on it.

use std::io;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// The protocol to which the connection is upgraded.
const SPDY: &str = "SPDY/3.1";
/// The header with the protocols within it.
pub const VERSION: &str = "x-stream-protocol-version";

/// Whether a client wants to go over to SPDY.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let wanted = headers.get(header::UPGRADE).and_then(|v| v.to_str().ok());
    wanted.is_some_and(|wanted| wanted.eq_ignore_ascii_case(SPDY))
}

/// Answers that the connection goes over, and does `work` on it.
pub fn go_over<F, W>(mut request: Request, protocol: &'static str, work: W) -> Response
where
    F: Future<Output = io::Result<()>> + Send + 'static,
    W: FnOnce(TokioIo<Upgraded>) -> F + Send + 'static,
{
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(connection) => {
                if let Err(error) = work(TokioIo::new(connection)).await {
                    tracing::debug!(%error, protocol, "a session over SPDY ended");
                }
            }
            Err(error) => tracing::debug!(%error, protocol, "a connection was not upgraded"),
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    headers.insert(VERSION, HeaderValue::from_static(protocol));
    response
}

/// Writes frames until there will be no more.
pub async fn write(mut to: impl AsyncWrite + Unpin + Send, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = frames.recv().await {
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

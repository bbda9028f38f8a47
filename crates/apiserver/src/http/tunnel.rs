//! Port-forward through a WebSocket: the client's SPDY lies in its messages, and goes on to the kubelet as plain SPDY, which
//! kubelets and runtimes of every kind speak (KEP-4006).

use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The WebSocket's protocol.
const TUNNELLED: &str = "SPDY/3.1+portforward.k8s.io";
/// The protocol within SPDY.
const FORWARDED: &str = "portforward.k8s.io";
/// Longest message to the client, bytes.
const PIECE: usize = 32 * 1024;

/// Whether a client wants SPDY in a WebSocket.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let offered = headers.get_all("sec-websocket-protocol").iter().filter_map(|v| v.to_str().ok());
    offered.flat_map(|v| v.split(',')).any(|protocol| protocol.trim() == TUNNELLED)
}

/// What asks a kubelet for plain SPDY.
pub fn ask(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert("x-stream-protocol-version", HeaderValue::from_static(FORWARDED));
}

/// Joins the client's WebSocket with a kubelet that has switched to SPDY.
pub fn join(client: WebSocketUpgrade, answer: http::Response<hyper::body::Incoming>) -> Response {
    let kubelet = hyper::upgrade::on(answer);
    client.protocols([TUNNELLED]).on_upgrade(|socket| async move {
        match kubelet.await {
            Ok(kubelet) => carry(socket, TokioIo::new(kubelet)).await,
            Err(error) => tracing::debug!(%error, "the kubelet did not go on with SPDY"),
        }
    })
}

async fn carry(socket: WebSocket, kubelet: TokioIo<hyper::upgrade::Upgraded>) {
    let (mut to_client, mut from_client) = socket.split();
    let (mut from_kubelet, mut to_kubelet) = tokio::io::split(kubelet);
    let inward = async {
        while let Some(Ok(message)) = from_client.next().await {
            match message {
                Message::Binary(bytes) => to_kubelet.write_all(&bytes).await?,
                Message::Close(_) | Message::Text(_) => break,
                Message::Ping(_) | Message::Pong(_) => {}
            }
        }
        to_kubelet.shutdown().await
    };
    let outward = async {
        let mut buffer = vec![0; PIECE];
        loop {
            let read = match from_kubelet.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            let piece = Bytes::copy_from_slice(&buffer[..read]);
            if to_client.send(Message::Binary(piece)).await.is_err() {
                return;
            }
        }
        // Go's clients take a close without a code for a broken stream.
        let normal = CloseFrame { code: close_code::NORMAL, reason: "".into() };
        let _ = to_client.send(Message::Close(Some(normal))).await;
    };
    // Whoever ends first ends both: SPDY has its own farewell.
    tokio::select! {
        _ = inward => {}
        () = outward => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_is_known_by_its_protocol() {
        let offering = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("sec-websocket-protocol", HeaderValue::from_static(text));
            is_wanted(&headers)
        };
        assert!(
            offering("SPDY/3.1+portforward.k8s.io")
                && offering("v4.channel.k8s.io, SPDY/3.1+portforward.k8s.io")
        );
        assert!(!offering("v5.channel.k8s.io") && !is_wanted(&HeaderMap::new()));
    }
}

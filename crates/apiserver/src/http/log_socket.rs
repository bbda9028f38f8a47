//! Logs as the messages of a WebSocket. The kubelet sends them as a plain body.

use axum::body::Body;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, header};
use http_body_util::BodyExt;

/// The protocols; without one, messages are bytes, too.
const BINARY: &str = "binary.k8s.io";
const TEXT: &str = "base64.binary.k8s.io";

/// Whether a client wants a WebSocket.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// Sends `body` to the client, piece by piece as it comes.
pub fn send(client: WebSocketUpgrade, body: Body) -> Response {
    let client = client.protocols([BINARY, TEXT]);
    let text = client.selected_protocol().is_some_and(|name| name == TEXT);
    client.on_upgrade(move |socket| carry(socket, body, text))
}

fn message(piece: Bytes, text: bool) -> Message {
    if text { Message::Text(STANDARD.encode(piece).into()) } else { Message::Binary(piece) }
}

async fn carry(socket: WebSocket, mut body: Body, text: bool) {
    let (mut to_client, mut from_client) = socket.split();
    let outward = async {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(piece) = frame.into_data() else { continue };
            if to_client.send(message(piece, text)).await.is_err() {
                return;
            }
        }
        // Go's clients take a close without a code for a broken stream.
        let normal = CloseFrame { code: close_code::NORMAL, reason: "".into() };
        let _ = to_client.send(Message::Close(Some(normal))).await;
    };
    // A client that follows a log ends by going.
    let gone = async { while let Some(Ok(_)) = from_client.next().await {} };
    tokio::select! {
        () = outward => {}
        () = gone => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_bytes_or_their_base64() {
        assert_eq!(
            message(Bytes::from_static(b"alive\n"), false),
            Message::Binary(Bytes::from_static(b"alive\n"))
        );
        assert_eq!(message(Bytes::from_static(b"alive\n"), true), Message::Text("YWxpdmUK".into()));
    }

    #[test]
    fn only_a_websocket_is_one() {
        let with = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::UPGRADE, value.parse().unwrap());
            headers
        };
        assert!(
            is_wanted(&with("WebSocket")) && !is_wanted(&with("SPDY/3.1")) && !is_wanted(&HeaderMap::new())
        );
    }
}

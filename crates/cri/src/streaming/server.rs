//! The HTTP server of the streams.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::StatusCode;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::channel::{ERROR, FromClient, PROTOCOLS, Protocol, STDERR, STDOUT, failure, message, status};
use super::spdy::connection::{go_over, is_wanted};
use super::tokens::Session;
use super::{forward, standard};
use crate::container::ExecOptions;
use crate::error::{CriError, chain};
use crate::keeper::{Kind, Stream, StreamEnd, StreamReader, StreamWriter};
use crate::runtime::Runtime;

/// A session in which nothing moves for so long ends (upstream's number).
pub const IDLE: Duration = Duration::from_secs(4 * 60 * 60);
/// How long the last words may take.
pub const FAREWELL: Duration = Duration::from_secs(10);

/// Serves streams on a port of `config.streaming_address` until `stop`; the base address is in the runtime then.
///
/// # Errors
/// If the address cannot be bound.
pub async fn serve(runtime: Runtime, stop: CancellationToken) -> Result<SocketAddr, CriError> {
    let address = SocketAddr::new(runtime.config().streaming_address, 0);
    let failed = |e| CriError::io("listen for streams on", std::path::Path::new(&address.to_string()))(e);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    *runtime.inner.streaming_base.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
        format!("http://{bound}");
    let routes = Router::new()
        .route("/exec/{token}", any(session))
        .route("/attach/{token}", any(session))
        .route("/portforward/{token}", any(forward::answer))
        .with_state(runtime);
    tokio::spawn(async move {
        let server =
            axum::serve(listener, routes).with_graceful_shutdown(async move { stop.cancelled().await });
        if let Err(error) = server.await {
            tracing::error!(%error, "the server of streams has ended");
        }
    });
    Ok(bound)
}

async fn session(State(runtime): State<Runtime>, Path(token): Path<String>, request: Request) -> Response {
    if is_wanted(request.headers()) {
        return over_spdy(runtime, &token, request);
    }
    let (mut parts, _) = request.into_parts();
    let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade,
        Err(_) => {
            let why = "only WebSocket (v5.channel.k8s.io, v4.channel.k8s.io) and SPDY/3.1 are served here";
            return (StatusCode::BAD_REQUEST, why).into_response();
        }
    };
    let Some(session) = runtime.inner.tokens.take(&token) else {
        return (StatusCode::NOT_FOUND, "this token was used, is too old, or never was").into_response();
    };
    let upgrade = upgrade.protocols(PROTOCOLS);
    let name = upgrade.selected_protocol().and_then(|name| name.to_str().ok()).unwrap_or_default();
    let protocol = Protocol::of(name);
    upgrade.on_upgrade(move |socket| async move {
        let (to_client, from_client) = socket.split();
        let mut to_client = ToClient { socket: to_client, protocol };
        let wanted = Wanted::of(&session);
        let stream = match open(&runtime, session).await {
            Ok(opened) => opened,
            Err(error) => {
                to_client.say_last(&failure(&chain(&error))).await;
                return;
            }
        };
        let (reader, writer) = stream.split();
        let input = tokio::spawn(feed(from_client, protocol, writer, wanted.stdin));
        show(&mut to_client, reader, wanted, &input).await;
        input.abort();
    })
}

fn over_spdy(runtime: Runtime, token: &str, request: Request) -> Response {
    let Some(version) = standard::choose(request.headers()) else {
        let why = format!(
            "unable to upgrade: unable to negotiate protocol: server accepts {:?}",
            standard::PROTOCOLS
        );
        return (StatusCode::FORBIDDEN, why).into_response();
    };
    let Some(session) = runtime.inner.tokens.take(token) else {
        return (StatusCode::NOT_FOUND, "this token was used, is too old, or never was").into_response();
    };
    go_over(request, version, move |connection| standard::session(connection, runtime, session, version))
}

/// Which streams a client wants.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

impl Wanted {
    pub fn of(session: &Session) -> Self {
        match session {
            Session::Exec { stdin, stdout, stderr, .. } | Session::Attach { stdin, stdout, stderr, .. } => {
                Self { stdin: *stdin, stdout: *stdout, stderr: *stderr }
            }
            Session::Forward { .. } => Self { stdin: false, stdout: false, stderr: false },
        }
    }
}

/// Begins what a session stands for.
///
/// # Errors
/// What the runtime says.
pub async fn open(runtime: &Runtime, session: Session) -> Result<Stream, CriError> {
    match session {
        Session::Exec { container, command, terminal, stdin, .. } => {
            let options = ExecOptions { container, command, terminal, stdin };
            runtime.exec("Exec", options).await
        }
        Session::Attach { container, stdin, .. } => runtime.attach_to(&container, stdin).await,
        Session::Forward { sandbox, .. } => Err(CriError::State {
            call: "PortForward",
            object: sandbox,
            why: "its token is for another path".to_owned(),
        }),
    }
}

/// Brings what the client sends to the process. Its end is the client's.
async fn feed(
    mut from_client: SplitStream<WebSocket>,
    protocol: Protocol,
    mut writer: StreamWriter,
    stdin: bool,
) {
    while let Ok(Some(Ok(received))) = tokio::time::timeout(IDLE, from_client.next()).await {
        let meaning = match received {
            Message::Binary(bytes) => protocol.understand(&bytes),
            Message::Text(text) => protocol.understand(text.as_bytes()),
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        let sent = match meaning {
            FromClient::Stdin(bytes) if stdin => writer.stdin(&bytes).await,
            FromClient::EndOfStdin if stdin => writer.end_stdin().await,
            FromClient::Resize(size) => writer.resize(size).await,
            _ => Ok(()),
        };
        if sent.is_err() {
            break;
        }
    }
    // Kept open until the client goes: dropping it would end the process before its last words are out.
    while let Some(Ok(received)) = from_client.next().await {
        if matches!(received, Message::Close(_)) {
            return;
        }
    }
}

/// Brings what the process says to the client, to its last word.
async fn show(
    to_client: &mut ToClient,
    mut reader: StreamReader,
    wanted: Wanted,
    input: &tokio::task::JoinHandle<()>,
) {
    loop {
        if input.is_finished() {
            return;
        }
        let piece = match tokio::time::timeout(Duration::from_millis(500), reader.next()).await {
            // Looks again whether the client is still there.
            Err(_) => continue,
            Ok(piece) => piece,
        };
        match piece {
            Ok(Some(StreamEnd::Bytes(kind, bytes))) => {
                let (channel, wanted) =
                    if kind == Kind::Stderr { (STDERR, wanted.stderr) } else { (STDOUT, wanted.stdout) };
                if wanted && to_client.say(channel, &bytes).await.is_err() {
                    return;
                }
            }
            Ok(Some(StreamEnd::Exit(exit))) => return to_client.say_last(&status(&exit)).await,
            Ok(None) | Err(_) => {
                return to_client.say_last(&failure("the container's keeper is gone")).await;
            }
        }
    }
}

/// The client's end of a session.
struct ToClient {
    socket: SplitSink<WebSocket, Message>,
    protocol: Protocol,
}

impl ToClient {
    async fn say(&mut self, channel: u8, bytes: &[u8]) -> Result<(), axum::Error> {
        self.socket
            .send(match self.protocol.text(channel, bytes) {
                Some(text) => Message::Text(text.into()),
                None => Message::Binary(message(channel, bytes).into()),
            })
            .await
    }

    async fn say_last(&mut self, status: &serde_json::Value) {
        let farewell = async {
            if let Some(word) = self.protocol.last_word(status) {
                let _ = self.say(ERROR, word.as_bytes()).await;
            }
            // Go's clients take a close without a code for a broken stream.
            let normal = CloseFrame { code: close_code::NORMAL, reason: "".into() };
            let _ = self.socket.send(Message::Close(Some(normal))).await;
            let _ = self.socket.close().await;
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }
}

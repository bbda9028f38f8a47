//! Port-forward: connections to ports of a Pod, from within its network.
//!
//! - [`pairs`] over SPDY: kubectl, and every kubelet
//! - [`channels`] over a WebSocket with numbered channels: the Python client, kube-rs

mod channels;
mod pairs;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use tokio::net::TcpStream;
use trine_kernel::netns::Netns;

use super::spdy::connection::{go_over, is_wanted};
use super::tokens::Session;
use crate::runtime::Runtime;

/// The protocol in SPDY's streams.
const PROTOCOL: &str = "portforward.k8s.io";
/// How long connecting to a port may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Where the ports are.
#[derive(Debug, Clone)]
struct Pod {
    sandbox: String,
    /// `None`: the machine's own network.
    netns: Option<PathBuf>,
}

/// `/portforward/{token}`.
pub async fn answer(State(runtime): State<Runtime>, Path(token): Path<String>, request: Request) -> Response {
    let headers = request.headers();
    let spdy = is_wanted(headers);
    let websocket =
        headers.get(header::UPGRADE).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if !spdy && !websocket {
        return (StatusCode::BAD_REQUEST, "only SPDY/3.1 and WebSocket are served here").into_response();
    }
    let Some(Session::Forward { sandbox, ports }) = runtime.inner.tokens.take(&token) else {
        return (StatusCode::NOT_FOUND, "this token was used, is too old, or never was").into_response();
    };
    let netns = match runtime.sandbox(&sandbox) {
        Ok(found) => found.record().netns,
        Err(error) => return (StatusCode::NOT_FOUND, error.to_string()).into_response(),
    };
    let pod = Pod { sandbox, netns };
    if spdy {
        go_over(request, PROTOCOL, |c| pairs::session(c, pod))
    } else {
        over_channels(request, pod, ports).await
    }
}

async fn over_channels(request: Request, pod: Pod, ports: Vec<u16>) -> Response {
    if ports.is_empty() || ports.len() > channels::MOST {
        return (StatusCode::BAD_REQUEST, "query parameter \"port\" is required").into_response();
    }
    let (mut parts, _) = request.into_parts();
    match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => upgrade
            .protocols(channels::PROTOCOLS)
            .on_upgrade(move |socket| channels::session(socket, pod, ports)),
        Err(refusal) => refusal.into_response(),
    }
}

/// Connects as a process in the Pod would to `localhost`.
async fn connect(pod: Pod, port: u16) -> Result<TcpStream, String> {
    let task = tokio::task::spawn_blocking(move || {
        let dial = || {
            let local: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            let mut why = Vec::new();
            for address in local.map(|ip| SocketAddr::new(ip, port)) {
                match std::net::TcpStream::connect_timeout(&address, CONNECT) {
                    Ok(socket) => return Ok(socket),
                    Err(error) => why.push(format!("{address}: {error}")),
                }
            }
            Err(format!("failed to connect to localhost:{port} inside the Pod: {}", why.join("; ")))
        };
        match &pod.netns {
            None => dial(),
            Some(path) => Netns::open(path).and_then(|n| n.run(dial)).map_err(|e| e.to_string())?,
        }
    });
    let socket = task.await.map_err(|e| e.to_string())??;
    socket.set_nonblocking(true).map_err(|e| e.to_string())?;
    let _ = socket.set_nodelay(true);
    TcpStream::from_std(socket).map_err(|e| e.to_string())
}

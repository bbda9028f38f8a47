//! exec, attach and port-forward: the runtime names a URL, and the caller's bytes go there and back. The
//! protocol on top (WebSocket or SPDY) is between the caller and the runtime.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use trine_contracts::cri;

use super::server::Server;
use crate::pod::spec;
use crate::runtime::RunState;

/// Longest answer of the runtime that is not an upgrade.
const MAX_ANSWER: usize = 64 * 1024;

/// What the query asks for. Both the kubelet's own names and the API's are taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Send input.
    pub stdin: bool,
    /// Return output.
    pub stdout: bool,
    /// Return errors.
    pub stderr: bool,
    /// On a terminal.
    pub tty: bool,
    /// Ports to forward.
    pub ports: Vec<i32>,
}

/// Reads the query.
#[must_use]
pub fn options(query: &str) -> StreamOptions {
    let mut options = StreamOptions::default();
    for (key, value) in pairs(query) {
        let on = matches!(value.as_str(), "1" | "true");
        match key.as_str() {
            "command" => options.command.push(value),
            "input" | "stdin" => options.stdin |= on,
            "output" | "stdout" => options.stdout |= on,
            "error" | "stderr" => options.stderr |= on,
            "tty" => options.tty |= on,
            "port" | "ports" => options.ports.extend(value.split(',').filter_map(|p| p.parse::<i32>().ok())),
            _ => {}
        }
    }
    // A terminal has one output.
    options.stderr &= !options.tty;
    options
}

/// `a=b&c=d`, decoded.
fn pairs(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let mut out = Vec::with_capacity(text.len());
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'+' => out.push(b' '),
                b'%' => {
                    let digits: Vec<u8> = bytes.by_ref().take(2).collect();
                    let code = std::str::from_utf8(&digits).ok().and_then(|d| u8::from_str_radix(d, 16).ok());
                    out.extend(code);
                }
                other => out.push(other),
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    };
    let split = |pair: &str| match pair.split_once('=') {
        Some((key, value)) => (decode(key), decode(value)),
        None => (decode(pair), String::new()),
    };
    query.split('&').filter(|p| !p.is_empty()).map(split).collect()
}

type Refusal = (StatusCode, String);

/// Id of the running container.
async fn container_id(
    server: &Server,
    namespace: &str,
    pod: &str,
    container: &str,
) -> Result<String, Refusal> {
    let found = server
        .pods
        .get(namespace, pod)
        .ok_or_else(|| (StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist on this node")))?;
    let observed = server
        .runtime
        .observe(spec::uid(&found))
        .await
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.chain()))?;
    let view = observed.latest(container).filter(|v| v.state == RunState::Running);
    view.map(|v| v.id.clone()).ok_or_else(|| {
        (StatusCode::BAD_REQUEST, format!("container {container:?} of pod {pod:?} is not running"))
    })
}

fn answer(result: Result<Response, Refusal>) -> Response {
    result.unwrap_or_else(IntoResponse::into_response)
}

async fn run_exec(
    server: Server,
    (namespace, pod, container): (String, String, String),
    request: Request,
) -> Result<Response, Refusal> {
    let id = container_id(&server, &namespace, &pod, &container).await?;
    let options = options(request.uri().query().unwrap_or_default());
    if options.command.is_empty() {
        return Err((StatusCode::BAD_REQUEST, "you must specify at least 1 item for the command".to_owned()));
    }
    let exec = cri::ExecRequest {
        container_id: id,
        cmd: options.command,
        tty: options.tty,
        stdin: options.stdin,
        stdout: options.stdout,
        stderr: options.stderr,
    };
    let url = server.runtime.exec(exec).await;
    let url = url.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.chain()))?;
    proxy(&url, request).await
}

async fn run_attach(
    server: Server,
    (namespace, pod, container): (String, String, String),
    request: Request,
) -> Result<Response, Refusal> {
    let id = container_id(&server, &namespace, &pod, &container).await?;
    let options = options(request.uri().query().unwrap_or_default());
    let tty = server
        .pods
        .get(&namespace, &pod)
        .and_then(|p| spec::find(&p, &container).and_then(|c| c.tty))
        .unwrap_or_default();
    let attach = cri::AttachRequest {
        container_id: id,
        stdin: options.stdin,
        tty,
        stdout: options.stdout,
        stderr: options.stderr && !tty,
    };
    let url = server.runtime.attach(attach).await;
    let url = url.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.chain()))?;
    proxy(&url, request).await
}

/// `/exec/{namespace}/{pod}/{container}`.
pub async fn exec(
    State(server): State<Server>,
    Path(path): Path<(String, String, String)>,
    request: Request,
) -> Response {
    answer(run_exec(server, path, request).await)
}

/// The same with the UID in the path.
pub async fn exec_of_uid(
    State(server): State<Server>,
    Path((namespace, pod, _, container)): Path<(String, String, String, String)>,
    request: Request,
) -> Response {
    answer(run_exec(server, (namespace, pod, container), request).await)
}

/// `/attach/{namespace}/{pod}/{container}`.
pub async fn attach(
    State(server): State<Server>,
    Path(path): Path<(String, String, String)>,
    request: Request,
) -> Response {
    answer(run_attach(server, path, request).await)
}

/// The same with the UID in the path.
pub async fn attach_of_uid(
    State(server): State<Server>,
    Path((namespace, pod, _, container)): Path<(String, String, String, String)>,
    request: Request,
) -> Response {
    answer(run_attach(server, (namespace, pod, container), request).await)
}

/// `/portForward/{namespace}/{pod}`.
pub async fn port_forward(
    State(server): State<Server>,
    Path((namespace, pod)): Path<(String, String)>,
    request: Request,
) -> Response {
    let work = async {
        let found = server.pods.get(&namespace, &pod);
        let found = found
            .ok_or_else(|| (StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist on this node")))?;
        let failed = |error: crate::KubeletError| (StatusCode::INTERNAL_SERVER_ERROR, error.chain());
        let observed = server.runtime.observe(spec::uid(&found)).await.map_err(failed)?;
        let sandbox = observed.sandbox().filter(|s| s.ready);
        let sandbox =
            sandbox.ok_or_else(|| (StatusCode::BAD_REQUEST, format!("pod {pod:?} is not running")))?;
        let port = options(request.uri().query().unwrap_or_default()).ports;
        let url = server.runtime.port_forward(&sandbox.id, port).await.map_err(failed)?;
        proxy(&url, request).await
    };
    answer(work.await)
}

/// Headers that make the upgrade.
fn upgrade_headers(from: &HeaderMap) -> HeaderMap {
    let wanted = |name: &header::HeaderName| {
        let name = name.as_str();
        name == "upgrade"
            || name == "connection"
            || name.starts_with("sec-websocket-")
            || name.starts_with("x-stream-")
    };
    from.iter().filter(|(name, _)| wanted(name)).map(|(n, v)| (n.clone(), v.clone())).collect()
}

/// Passes the upgrade on to `url`, and then the bytes both ways.
async fn proxy(url: &str, mut request: Request) -> Result<Response, Refusal> {
    let bad = |text: String| (StatusCode::BAD_GATEWAY, text);
    let uri: http::Uri = url.parse().map_err(|e| bad(format!("the runtime's URL {url:?}: {e}")))?;
    let (Some(host), Some("http")) = (uri.host(), uri.scheme_str()) else {
        return Err(bad(format!("the runtime's URL {url:?} is not one of plain HTTP")));
    };
    let port = uri.port_u16().unwrap_or(80);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(|e| bad(format!("the runtime's streaming server {host}:{port}: {e}")))?;
    let _ = stream.set_nodelay(true);
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|e| bad(e.to_string()))?;
    tokio::spawn(connection.with_upgrades());
    let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut onward = http::Request::new(Empty::<Bytes>::new());
    *onward.method_mut() = request.method().clone();
    *onward.uri_mut() = path.parse().map_err(|_| bad(format!("the runtime's URL {url:?} has no path")))?;
    *onward.headers_mut() = upgrade_headers(request.headers());
    let authority = uri.authority().map(|a| a.as_str().to_owned()).unwrap_or_default();
    if let Ok(value) = authority.parse() {
        onward.headers_mut().insert(header::HOST, value);
    }
    let response = sender.send_request(onward).await.map_err(|e| bad(e.to_string()))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        return Ok((status, Body::from(body)).into_response());
    }
    let headers = upgrade_headers(response.headers());
    let ours = hyper::upgrade::on(&mut request);
    let theirs = hyper::upgrade::on(response);
    tokio::spawn(async move {
        let (Ok(ours), Ok(theirs)) = (ours.await, theirs.await) else { return };
        let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
        let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
    });
    let mut switched = Response::new(Body::empty());
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switched.headers_mut() = headers;
    Ok(switched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_the_query_are_understood() {
        let ours = options("command=sh&command=-c&command=echo%20a%2Bb+c&input=1&output=1&error=1&tty=1");
        assert_eq!(ours.command, ["sh", "-c", "echo a+b c"]);
        assert!(ours.stdin && ours.stdout && ours.tty && !ours.stderr);
        let api = options("command=ls&stdin=false&stdout=true&stderr=true");
        assert!(!api.stdin && api.stdout && api.stderr && !api.tty);
    }
}

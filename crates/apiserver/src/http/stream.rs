//! Logs, commands, attachments and ports: passed on to the kubelet of the Pod's node. Upgraded connections are joined as
//! bytes: what is spoken on them is between the client and the runtime.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::extract::ws::WebSocketUpgrade;
use axum::response::Response;
use http::{HeaderMap, HeaderName, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::serve::ServeError;
use super::{log_socket, tunnel};
use crate::pki::Identity;
use crate::registry::{Registry, text};
use crate::request::Target;
use crate::rotation::Newest;
use crate::status::ApiError;
use crate::verbs::update::parse;

/// How long connecting to a kubelet may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long a kubelet may take to answer, before the stream begins.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);
/// Longest refusal of a kubelet that is passed on, bytes. Upstream: 10,000.
const MAX_REFUSAL: usize = 10_000;
/// Headers of an upgrade that both sides have to see.
const UPGRADE_HEADERS: [&str; 7] = [
    "connection",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
    "x-stream-protocol-version",
];

/// How the kubelets are spoken to: with the API server's client certificate, and only if theirs is the authority's.
pub struct Kubelets {
    connector: TlsConnector,
}

impl Kubelets {
    /// With a client certificate.
    ///
    /// # Errors
    /// [`ServeError::Tls`].
    pub fn new(identity: watch::Receiver<Identity>, ca_pem: &str) -> Result<Self, ServeError> {
        let tls = |e: &dyn std::fmt::Display| ServeError::Tls { why: e.to_string() };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            roots.add(certificate.map_err(|e| tls(&e))?).map_err(|e| tls(&e))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let newest = Newest::of(identity, Arc::clone(&provider))?;
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| tls(&e))?
            .with_root_certificates(roots)
            .with_client_cert_resolver(newest);
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Passes a request on to the kubelet of the Pod's node, and its answer back.
    ///
    /// # Errors
    /// [`ApiError`] if the Pod has no node or container of that name, or the kubelet does not answer.
    pub async fn pass_on(
        &self,
        registry: &Registry,
        target: &Target,
        mut request: Request<Body>,
    ) -> Result<Response, ApiError> {
        if target.resource.plural != "pods" {
            return Err(ApiError::NoResource);
        }
        let name = target.name.as_deref().unwrap_or_default();
        let pod = parse(registry.get(&target.resource, &target.namespace, name)?.json())?;
        let query = request.uri().query().unwrap_or_default().to_owned();
        let namespace = &target.namespace;
        let verb = match target.subresource.as_deref() {
            Some("log") => Some("containerLogs"),
            Some("exec") => Some("exec"),
            Some("attach") => Some("attach"),
            Some("portforward") => None,
            _ => return Err(ApiError::MethodNotAllowed),
        };
        let path = match verb {
            Some(verb) => {
                let container = container(&pod, &query)?;
                format!("/{verb}/{namespace}/{name}/{container}?{}", kubelet_query(&query))
            }
            None => format!("/portForward/{namespace}/{name}?{query}"),
        };
        let (host, port) = kubelet_address(registry, &pod)?;
        let tunnelled = verb.is_none() && tunnel::is_wanted(request.headers());
        let as_messages = verb == Some("containerLogs") && log_socket::is_wanted(request.headers());
        let upgrade = request.headers().contains_key(header::UPGRADE);
        let mut asked = Request::builder().method(request.method().clone()).uri(path);
        if let Some(headers) = asked.headers_mut() {
            headers
                .insert(header::HOST, "kubelet".parse().map_err(|_| ApiError::Internal("host".to_owned()))?);
            if tunnelled {
                tunnel::ask(headers);
            } else if !as_messages {
                copy_headers(request.headers(), headers);
            }
        }
        let asked = asked.body(Body::empty()).map_err(|e| ApiError::BadRequest(e.to_string()))?;
        let unreachable = |e: &dyn std::fmt::Display| {
            ApiError::Unavailable(format!("kubelet {host}:{port} does not answer: {e}"))
        };
        let stream = self.connect(&host, port).await.map_err(|e| unreachable(&e))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| unreachable(&e))?;
        tokio::spawn(connection.with_upgrades());
        let answer = tokio::time::timeout(ANSWER_DEADLINE, sender.send_request(asked))
            .await
            .map_err(|e| unreachable(&e))?
            .map_err(|e| unreachable(&e))?;
        if upgrade && answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            if tunnelled {
                return Ok(tunnel::join(web_socket(request).await?, answer));
            }
            return Ok(join(hyper::upgrade::on(&mut request), answer));
        }
        let (parts, body) = answer.into_parts();
        if verb == Some("containerLogs") && !parts.status.is_success() {
            return Err(refusal(parts.status, body).await);
        }
        if as_messages {
            return Ok(log_socket::send(web_socket(request).await?, Body::new(body)));
        }
        Ok(Response::from_parts(parts, Body::new(body)))
    }

    pub(super) async fn connect(&self, host: &str, port: u16) -> std::io::Result<TlsStream<TcpStream>> {
        let connect = async {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
            self.connector.connect(name, stream).await
        };
        tokio::time::timeout(CONNECT_DEADLINE, connect).await.map_err(std::io::Error::other)?
    }
}

/// The client's wish for a WebSocket.
async fn web_socket(request: Request<Body>) -> Result<WebSocketUpgrade, ApiError> {
    let (mut parts, _) = request.into_parts();
    let client = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    client.map_err(|e| ApiError::BadRequest(e.to_string()))
}

/// What a kubelet says in plain words when it has no log, as clients expect to be told.
async fn refusal(code: StatusCode, body: hyper::body::Incoming) -> ApiError {
    let text = Limited::new(body, MAX_REFUSAL).collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim_end().to_owned();
    match code {
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => ApiError::BadRequest(text),
        StatusCode::SERVICE_UNAVAILABLE => ApiError::Unavailable(text),
        _ => ApiError::Internal(text),
    }
}

/// Joins both upgraded connections in a task, and answers the client as the kubelet answered.
pub(crate) fn join(
    on_client: hyper::upgrade::OnUpgrade,
    answer: http::Response<hyper::body::Incoming>,
) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    copy_headers(answer.headers(), response.headers_mut());
    if let Some(accept) = answer.headers().get("sec-websocket-accept") {
        response.headers_mut().insert("sec-websocket-accept", accept.clone());
    }
    let on_kubelet = hyper::upgrade::on(answer);
    tokio::spawn(async move {
        match tokio::try_join!(on_client, on_kubelet) {
            Ok((client, kubelet)) => {
                let (mut client, mut kubelet) = (TokioIo::new(client), TokioIo::new(kubelet));
                if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut kubelet).await {
                    tracing::debug!(%error, "stream ended");
                }
            }
            Err(error) => tracing::debug!(%error, "stream was not upgraded"),
        }
    });
    response
}

fn copy_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for name in UPGRADE_HEADERS {
        for value in from.get_all(name) {
            to.append(HeaderName::from_static(name), value.clone());
        }
    }
}

/// The query as a kubelet reads it: upstream's kubelet calls the standard streams `input`, `output` and `error`.
fn kubelet_query(query: &str) -> String {
    let mut parts: Vec<String> = query.split('&').filter(|p| !p.is_empty()).map(str::to_owned).collect();
    for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error")] {
        if parts.iter().any(|p| p == &format!("{ours}=true") || p == &format!("{ours}=1")) {
            parts.push(format!("{theirs}=1"));
        }
    }
    parts.join("&")
}

/// The container that a request names, or the only one.
fn container(pod: &Value, query: &str) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<String> {
        let items = pod["spec"][list].as_array();
        items.into_iter().flatten().map(|c| text(&c["name"]).to_owned()).collect()
    };
    let all: Vec<String> =
        ["containers", "initContainers", "ephemeralContainers"].into_iter().flat_map(names).collect();
    let pod_name = text(&pod["metadata"]["name"]);
    let asked = query.split('&').find_map(|p| p.strip_prefix("container="));
    match asked.filter(|c| !c.is_empty()) {
        Some(asked) if all.iter().any(|c| c == asked) => Ok(asked.to_owned()),
        Some(asked) => {
            Err(ApiError::BadRequest(format!("container {asked} is not valid for pod {pod_name}")))
        }
        None => match names("containers").as_slice() {
            [only] => Ok(only.clone()),
            several => Err(ApiError::BadRequest(format!(
                "a container name must be specified for pod {pod_name}, choose one of: [{}]",
                several.join(" ")
            ))),
        },
    }
}

fn kubelet_address(registry: &Registry, pod: &Value) -> Result<(String, u16), ApiError> {
    let node_name = text(&pod["spec"]["nodeName"]);
    let pod_name = text(&pod["metadata"]["name"]);
    if node_name.is_empty() {
        return Err(ApiError::BadRequest(format!("pod {pod_name} does not have a host assigned")));
    }
    let nodes = registry.resource("", "v1", "nodes")?;
    let node = parse(registry.get(&nodes, "", node_name)?.json())?;
    let addresses = node["status"]["addresses"].as_array();
    let internal = addresses.into_iter().flatten().find(|a| a["type"] == "InternalIP");
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    match (internal, port.and_then(|p| u16::try_from(p).ok())) {
        (Some(address), Some(port)) => Ok((text(&address["address"]).to_owned(), port)),
        _ => Err(ApiError::Unavailable(format!("node {node_name} does not say where its kubelet listens"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_container_is_named_unless_there_is_one() {
        let one = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}});
        let two = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        assert_eq!(container(&one, "").unwrap(), "a");
        assert_eq!(container(&two, "follow=true&container=b").unwrap(), "b");
        assert!(container(&two, "").unwrap_err().to_string().contains("choose one of: [a b]"));
        assert!(container(&one, "container=x").is_err());
    }
}

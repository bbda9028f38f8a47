//! Listening on the first free port, TLS, and the routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{any, get};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::Client;
use trine_typed::mirror::Mirror;

use super::metrics::routes as metrics;
use super::{auth, configz, logs, pods, streams, summary, tls};
use crate::config::{Config, PORT_PROBES};
use crate::error::KubeletError;
use crate::node::Machine;
use crate::probes::Probes;
use crate::runtime::Runtime;
use crate::volumes::VolumeManager;

/// How long a caller may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What the routes need.
#[derive(Clone)]
pub struct Server {
    /// What the kubelet was told.
    pub config: Arc<Config>,
    /// The API, for authorization.
    pub client: Client,
    /// The runtime.
    pub runtime: Runtime,
    /// The Pods of this node.
    pub pods: Mirror<Pod>,
    /// What the machine is.
    pub machine: Machine,
    /// The probes, for how often each said what.
    pub probes: Arc<Probes>,
    /// The volumes, for the room in them.
    pub volumes: Arc<VolumeManager>,
}

/// A port that is ours, with its certificate, not served yet.
pub struct Listening {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    /// The port.
    pub port: u16,
}

/// Takes the first free port from the configured one upward.
///
/// # Errors
/// [`KubeletError::NoPort`]; [`KubeletError::Tls`].
pub async fn listen(config: &Config) -> Result<Listening, KubeletError> {
    let acceptor = TlsAcceptor::from(Arc::new(tls::server_config(config)?));
    let any = if config.node_ip.is_ipv4() { "0.0.0.0" } else { "::" };
    let last = if config.port == 0 { 0 } else { config.port.saturating_add(PORT_PROBES) };
    let mut port = config.port;
    loop {
        match TcpListener::bind((any, port)).await {
            Ok(listener) => {
                let port = listener.local_addr().map(|a| a.port()).unwrap_or(port);
                return Ok(Listening { listener, acceptor, port });
            }
            Err(source) if port >= last => return Err(KubeletError::NoPort { first: config.port, source }),
            Err(_) => port += 1,
        }
    }
}

fn routes(server: Server) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/pods", get(pods::pods))
        .route("/runningpods", get(pods::running))
        .route("/runningpods/", get(pods::running))
        .route("/stats/summary", get(summary::summary))
        .route("/stats/summary/", get(summary::summary))
        .route("/configz", get(configz::configz))
        .route("/metrics", get(metrics::own))
        .route("/metrics/resource", get(metrics::resource))
        .route("/metrics/cadvisor", get(metrics::cadvisor))
        .route("/metrics/probes", get(metrics::probes))
        .route("/containerLogs/{namespace}/{pod}/{container}", get(logs::logs))
        .route("/exec/{namespace}/{pod}/{container}", any(streams::exec))
        .route("/exec/{namespace}/{pod}/{uid}/{container}", any(streams::exec_of_uid))
        .route("/attach/{namespace}/{pod}/{container}", any(streams::attach))
        .route("/attach/{namespace}/{pod}/{uid}/{container}", any(streams::attach_of_uid))
        .route("/portForward/{namespace}/{pod}", any(streams::port_forward))
        .layer(axum::middleware::from_fn_with_state(server.clone(), auth::check))
        .with_state(server)
}

impl Listening {
    /// Serves until `stop`.
    pub async fn serve(self, server: Server, stop: CancellationToken) {
        let router = routes(server);
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let work = connection(self.acceptor.clone(), router.clone(), stream, peer);
                    let stop = stop.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = work => {}
                            () = stop.cancelled() => {}
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn connection(acceptor: TlsAcceptor, router: Router, stream: TcpStream, peer: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%peer, %error, "no TLS"),
        Err(_) => return tracing::debug!(%peer, "TLS handshake timed out"),
    };
    let identity = tls::identity(stream.get_ref().1.peer_certificates());
    let router = match identity {
        Some(identity) => router.layer(axum::Extension(identity)),
        None => router,
    };
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    let service = TowerToHyperService::new(router);
    if let Err(error) = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
        tracing::debug!(%peer, %error, "connection ended");
    }
}

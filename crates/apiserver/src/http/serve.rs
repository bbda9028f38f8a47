//! The TLS listener, and the same server without a network for the parts of this very process.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use http::{HeaderValue, Request, header};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::route::Server;
use crate::pki::Identity;
use crate::rotation::Newest;
use crate::user::User;

/// How long a handshake may take.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// In whose name the parts of this process own what they write.
const IN_PROCESS: HeaderValue = HeaderValue::from_static("trine");
/// How long a connection may be without a whole request. Upstream's idle time.
const IDLE: Duration = Duration::from_secs(90);
/// How long requests that were begun before a stop may take to end. Upstream: as long as any, a minute.
const DRAIN: Duration = Duration::from_secs(10);
/// How long connections have after that for their last bytes.
const LAST_BYTES: Duration = Duration::from_millis(200);
/// Streams of one HTTP/2 connection; every watch is one.
const MAX_STREAMS: u32 = 1000;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours.
    #[error("api: cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The certificate or the authority cannot be used.
    #[error("api: cannot set up TLS: {why}")]
    Tls {
        /// What is wrong.
        why: String,
    },
}

fn tls(error: impl std::fmt::Display) -> ServeError {
    ServeError::Tls { why: error.to_string() }
}

/// Who may be at the other end: anybody, but a client certificate must be the authority's.
///
/// # Errors
/// [`ServeError::Tls`].
pub fn acceptor(identity: watch::Receiver<Identity>, ca_pem: &str) -> Result<TlsAcceptor, ServeError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate.map_err(tls)?).map_err(tls)?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(tls)?;
    let newest = Newest::with_authority(identity, Arc::clone(&provider), ca_pem)?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(tls)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(newest);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Listens.
///
/// # Errors
/// [`ServeError::Bind`].
pub async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Bind { address, source })
}

/// Accepts connections until `stop`. Then nobody new is let in, watches end, and what was begun comes to its end.
pub async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    server: Arc<Server>,
    stop: CancellationToken,
) {
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => {
                drop(listener);
                if tokio::time::timeout(DRAIN, server.gate.protection().drained()).await.is_err() {
                    tracing::warn!("requests were not done before the stop");
                }
                connections.close();
                let _ = tokio::time::timeout(LAST_BYTES, connections.wait()).await;
                cut.cancel();
                return connections.wait().await;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (acceptor, server) = (acceptor.clone(), Arc::clone(&server));
                let (stop, cut) = (stop.clone(), cut.clone());
                connections.spawn(async move {
                    tokio::select! {
                        () = connection(stream, acceptor, server, stop) => {}
                        () = cut.cancelled() => {}
                    }
                    tracing::trace!(%peer, "connection ended");
                });
            }
            Err(error) => {
                // Out of descriptors, for instance: wait for some to be closed.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, server: Arc<Server>, stop: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let peer = stream.peer_addr().ok();
    let stream = match tokio::time::timeout(HANDSHAKE_DEADLINE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|c| c.first());
    let user = certificate.and_then(|c| User::from_certificate(c));
    let service = service_fn(move |mut request: Request<hyper::body::Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let answer = Arc::clone(&server).answer(request.map(Body::new), user.clone());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder.http2().max_concurrent_streams(MAX_STREAMS);
    let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = stop.cancelled() => {
            // What was asked is answered, and the client told to ask elsewhere.
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "connection broken");
    }
}

/// The server as a service of one user, for clients in this process: no network, no TLS, the same answers.
#[derive(Clone)]
pub struct InProcess {
    server: Arc<Server>,
    user: User,
}

impl InProcess {
    /// Requests are `user`'s.
    #[must_use]
    pub fn new(server: Arc<Server>, user: User) -> Self {
        Self { server, user }
    }
}

impl<B> tower::Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut request = request.map(Body::new);
        request.headers_mut().entry(header::USER_AGENT).or_insert(IN_PROCESS);
        let answer = Arc::clone(&self.server).answer(request, Some(self.user.clone()));
        Box::pin(async move { Ok(answer.await) })
    }
}

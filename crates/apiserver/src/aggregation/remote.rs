//! One server that serves a group and version, and how it is asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Request, Response, Uri, Version, header};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::client::TlsStream;

use super::Learned;
use super::order::Rank;
use super::trust::{Connectors, connectors};
use crate::http::proxy::{Place, choose, places};
use crate::registry::{Registry, text};
use crate::request::group_path;
use crate::rotation::Newest;

/// How long connecting may take. Upstream: 30 s.
const CONNECT_DEADLINE: Duration = Duration::from_secs(30);
/// A connection that is silent for this long is asked whether it lives, and given up if it does not say so. Upstream's numbers.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));

/// Why a server was not asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// The Service is not there, or nothing is behind it.
    #[error("{0}")]
    Nowhere(String),
    /// What it is to be believed by is wrong.
    #[error("{0}")]
    Trust(String),
    /// It does not answer.
    #[error("error trying to reach service: {0}")]
    Silent(String),
}

fn silent(error: impl std::fmt::Display) -> Unreachable {
    Unreachable::Silent(error.to_string())
}

/// A server, as an APIService names it.
pub struct Remote {
    /// The APIService's name, `VERSION.GROUP`.
    pub name: String,
    /// What it serves.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Which come first.
    pub rank: Rank,
    /// The APIService's `spec`.
    pub spec: Value,
    /// The Service's namespace and name.
    pub service: (String, String),
    port: u16,
    available: AtomicBool,
    connectors: Result<Connectors, String>,
    /// An open connection that takes many requests at once, and where it leads.
    open: Mutex<Option<(Place, http2::SendRequest<Body>)>>,
    learned: RwLock<Arc<Learned>>,
}

impl Remote {
    /// As an APIService says it; `None` for those that name no Service. `identity` is shown to the server.
    pub(super) fn read(object: &Value, identity: &Arc<Newest>) -> Option<Self> {
        let spec = &object["spec"];
        let service = spec["service"].as_object()?;
        let part = |name: &str| service.get(name).map(text).unwrap_or_default().to_owned();
        let port = service.get("port").and_then(Value::as_u64).and_then(|p| u16::try_from(p).ok());
        Some(Self {
            name: text(&object["metadata"]["name"]).to_owned(),
            group: text(&spec["group"]).to_owned(),
            version: text(&spec["version"]).to_owned(),
            rank: Rank {
                group: spec["groupPriorityMinimum"].as_i64().unwrap_or_default(),
                version: spec["versionPriority"].as_i64().unwrap_or_default(),
            },
            service: (part("namespace"), part("name")),
            port: port.unwrap_or(443),
            connectors: connectors(spec, identity),
            spec: spec.clone(),
            available: AtomicBool::new(false),
            open: Mutex::default(),
            learned: RwLock::default(),
        })
    }

    /// Whether its APIService says that it can be asked.
    #[must_use]
    pub fn available(&self) -> bool {
        self.available.load(Ordering::Relaxed)
    }

    pub(super) fn set_available(&self, available: bool) {
        self.available.store(available, Ordering::Relaxed);
    }

    /// What it serves, as it last said.
    #[must_use]
    pub fn learned(&self) -> Arc<Learned> {
        Arc::clone(&self.learned.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn learn(&self, learned: Arc<Learned>) {
        *self.learned.write().unwrap_or_else(PoisonError::into_inner) = learned;
    }

    /// `/apis/GROUP/VERSION`.
    #[must_use]
    pub fn root(&self) -> String {
        format!("/{}", group_path(&self.group, &self.version))
    }

    /// Where it may be asked.
    fn places(&self, registry: &Registry) -> Result<Vec<Place>, Unreachable> {
        let (namespace, name) = &self.service;
        places(registry, namespace, name, self.port).map_err(|e| Unreachable::Nowhere(e.to_string()))
    }

    /// One of the places at which it may be asked, for what is said of it.
    pub(super) fn place(&self, registry: &Registry) -> Result<Place, Unreachable> {
        self.choose(self.places(registry)?)
    }

    fn choose(&self, places: Vec<Place>) -> Result<Place, Unreachable> {
        let (_, name) = &self.service;
        choose(places, name).map_err(Unreachable::Nowhere)
    }

    async fn connect(&self, place: &Place, upgrade: bool) -> Result<TlsStream<TcpStream>, Unreachable> {
        let connectors = self.connectors.as_ref().map_err(|why| Unreachable::Trust(why.clone()))?;
        let connector = if upgrade { &connectors.one } else { &connectors.any };
        let (namespace, name) = &self.service;
        let expected = ServerName::try_from(format!("{name}.{namespace}.svc")).map_err(silent)?;
        let connect = async {
            let stream = TcpStream::connect((place.host.as_str(), place.port)).await?;
            stream.set_nodelay(true)?;
            connector.connect(expected, stream).await
        };
        let connected = tokio::time::timeout(CONNECT_DEADLINE, connect).await.map_err(silent)?;
        connected.map_err(|e| silent(format!("{}:{}: {e}", place.host, place.port)))
    }

    /// Sends a request whose URI is path and query; over a connection that is open already if it may.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub(super) async fn send(
        &self,
        registry: &Registry,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Unreachable> {
        let mut open = self.open.lock().await;
        let places = self.places(registry)?;
        if let Some((place, sender)) = open.as_mut()
            && places.contains(place)
            && sender.ready().await.is_ok()
        {
            let (place, mut sender) = (place.clone(), sender.clone());
            drop(open);
            return sender.send_request(absolute(request, &place)?).await.map_err(silent);
        }
        *open = None;
        let place = self.choose(places)?;
        let stream = self.connect(&place, false).await?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            drop(open);
            return once(stream, &place, request).await;
        }
        let (after, patience) = PING;
        let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(after))
            .keep_alive_timeout(patience)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(silent)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to an aggregated server broken");
            }
        });
        *open = Some((place.clone(), sender.clone()));
        drop(open);
        sender.send_request(absolute(request, &place)?).await.map_err(silent)
    }

    /// The same over a connection of its own, which may be upgraded.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub(super) async fn send_apart(
        &self,
        place: &Place,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Unreachable> {
        let stream = self.connect(place, true).await?;
        once(stream, place, request).await
    }
}

/// Sends one request in HTTP/1.1.
async fn once(
    stream: TlsStream<TcpStream>,
    place: &Place,
    mut request: Request<Body>,
) -> Result<Response<Incoming>, Unreachable> {
    let host = HeaderValue::from_str(&place.authority()).map_err(silent)?;
    request.headers_mut().insert(header::HOST, host);
    *request.version_mut() = Version::HTTP_11;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(silent)?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(silent)
}

/// The form of HTTP/2: the URI names the server, no header does.
fn absolute(mut request: Request<Body>, place: &Place) -> Result<Request<Body>, Unreachable> {
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let uri = Uri::builder().scheme("https").authority(place.authority()).path_and_query(path);
    *request.uri_mut() = uri.build().map_err(silent)?;
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(header::HOST);
    Ok(request)
}

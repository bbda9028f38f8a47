//! One webhook, as it is called.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::{Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::place::Place;
use super::{said, trust};
use crate::registry::{Registry, text};

/// How it names itself to webhooks.
const AGENT: &str = "kube-apiserver-admission";
/// The largest answer, bytes: a list of custom objects that was converted.
const MAX_ANSWER: usize = 64 << 20;
/// Connections that wait for the next call.
const MOST_IDLE: usize = 8;

type Sender = SendRequest<Full<Bytes>>;

/// One webhook. Its connections are kept for the next call, each with the address that it leads to: a Service's next endpoint
/// is another one.
pub struct Endpoint {
    place: Place,
    bundle: String,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    idle: Mutex<Vec<((String, u16), Sender)>>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.place.fmt(f)
    }
}

/// Why a kept connection, or a new one, did not bring an answer.
enum Failure {
    /// The other end had closed it before.
    Stale,
    Said(String),
}

impl Endpoint {
    /// Reads a `clientConfig`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(config: &Value) -> Result<Self, String> {
        Ok(Self {
            place: Place::read(config)?,
            bundle: text(&config["caBundle"]).to_owned(),
            tls: OnceLock::new(),
            idle: Mutex::default(),
        })
    }

    /// Sends JSON, and gives the JSON that comes back. `asked` is what the webhook is told about the time it has.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn post(&self, registry: &Registry, body: &Value, timeout: Duration) -> Result<Value, String> {
        let path = format!("{}?timeout={}s", self.place.path, timeout.as_secs());
        let on_the_way = |why: String| format!("Post \"https://{}{path}\": {why}", self.place.authority);
        let body = Bytes::from(body.to_string());
        let answer = tokio::time::timeout(timeout, self.exchange(registry, &path, body)).await;
        let (code, bytes) =
            answer.map_err(|_| on_the_way("context deadline exceeded".to_owned()))?.map_err(on_the_way)?;
        if !code.is_success() {
            return Err(said::refusal(code, &bytes));
        }
        serde_json::from_slice(&bytes)
            .map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))
    }

    async fn exchange(
        &self,
        registry: &Registry,
        path: &str,
        body: Bytes,
    ) -> Result<(http::StatusCode, Bytes), String> {
        let address = self.place.address(registry)?;
        while let Some(sender) = self.kept(&address) {
            match self.send(sender, &address, path, body.clone(), true).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Stale) => {}
                Err(Failure::Said(why)) => return Err(why),
            }
        }
        let sender = self.connect(&address).await?;
        match self.send(sender, &address, path, body, false).await {
            Ok(answer) => Ok(answer),
            Err(Failure::Stale) => Err("EOF".to_owned()),
            Err(Failure::Said(why)) => Err(why),
        }
    }

    fn kept(&self, address: &(String, u16)) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, sender)| !sender.is_closed());
        let at = idle.iter().position(|(leads_to, _)| leads_to == address)?;
        Some(idle.swap_remove(at).1)
    }

    fn keep(&self, address: &(String, u16), sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= MOST_IDLE {
            idle.remove(0);
        }
        idle.push((address.clone(), sender));
    }

    async fn connect(&self, address: &(String, u16)) -> Result<Sender, String> {
        let config = self.tls.get_or_init(|| trust::config(&self.bundle)).clone()?;
        let (host, port) = (address.0.as_str(), address.1);
        let stream = TcpStream::connect((host, port)).await.map_err(|e| said::connecting(&e, host, port))?;
        let _ = stream.set_nodelay(true);
        let name = &self.place.host;
        let server = ServerName::try_from(name.clone()).map_err(|e| format!("tls: {e}"))?;
        let stream = TlsConnector::from(config).connect(server, stream).await;
        let stream = stream.map_err(|e| said::handshake(&e, name))?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn send(
        &self,
        mut sender: Sender,
        address: &(String, u16),
        path: &str,
        body: Bytes,
        kept: bool,
    ) -> Result<(http::StatusCode, Bytes), Failure> {
        let said = |e: &dyn std::fmt::Display| Failure::Said(e.to_string());
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, &self.place.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, AGENT)
            .body(Full::new(body))
            .map_err(|e| said(&e))?;
        if sender.ready().await.is_err() {
            return Err(Failure::Stale);
        }
        let answer = match sender.send_request(request).await {
            Ok(answer) => answer,
            Err(e) if kept && (e.is_canceled() || e.is_closed() || e.is_incomplete_message()) => {
                return Err(Failure::Stale);
            }
            Err(e) => return Err(said(&e)),
        };
        let code = answer.status();
        let bytes =
            Limited::new(answer.into_body(), MAX_ANSWER).collect().await.map_err(|e| said(&e))?.to_bytes();
        self.keep(address, sender);
        Ok((code, bytes))
    }
}

//! Somebody who is called by the server: a real HTTPS server, whose answers a test gives.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::server::Api;

/// What is answered: code and body.
pub type Answer = (u16, Value);

/// Somebody who is called. Ends with the value.
pub struct Far {
    pub address: SocketAddr,
    /// Base64 of the PEM that signed its certificate.
    pub bundle: String,
    seen: Arc<Mutex<Vec<Value>>>,
    connections: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Drop for Far {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An address of this machine by which it is reached like another one.
pub fn own_address() -> IpAddr {
    let found = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("203.0.113.1:9")?;
        socket.local_addr()
    });
    found.map_or(IpAddr::from([127, 0, 0, 1]), |a| a.ip())
}

impl Far {
    /// Answers by `answer`, which is given the path and the body. A path that begins with `/slow` is answered after a while.
    pub async fn start(api: &Api, answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> Self {
        let names = ["127.0.0.1", "localhost", "hook.default.svc", "outside.default.svc"].map(str::to_owned);
        let (certificate, key) = api.server.issue("hook", &[], &names).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), listener.local_addr().unwrap().port());
        let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
        let connections: Arc<Mutex<usize>> = Arc::default();
        let (answer, record, count) = (Arc::new(answer), Arc::clone(&seen), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                *count.lock().unwrap() += 1;
                let (acceptor, answer, record) = (acceptor.clone(), Arc::clone(&answer), Arc::clone(&record));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let (answer, record) = (Arc::clone(&answer), Arc::clone(&record));
                        async move {
                            let path = request.uri().path().to_owned();
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            let body: Value = serde_json::from_slice(&body).unwrap();
                            if path.starts_with("/slow") {
                                tokio::time::sleep(std::time::Duration::from_secs(3)).await;
                            }
                            let (code, answer) = answer(&path, &body);
                            record.lock().unwrap().push(body);
                            http::Response::builder()
                                .status(code)
                                .header("content-type", "application/json")
                                .body(Full::new(Bytes::from(answer.to_string())))
                        }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { address, bundle: STANDARD.encode(api.server.ca_pem()), seen, connections, task }
    }

    /// The `clientConfig` that leads to a path by a URL.
    pub fn url(&self, path: &str) -> Value {
        json!({"url": format!("https://localhost:{}{path}", self.address.port()), "caBundle": self.bundle})
    }

    /// The `clientConfig` that leads to a path by the Service `name`.
    pub fn service(&self, name: &str, port: u16, path: &str) -> Value {
        json!({"service": {"namespace": "default", "name": name, "port": port, "path": path}, "caBundle": self.bundle})
    }

    /// What was asked since this was called last.
    pub fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

/// An AdmissionReview that answers another.
pub fn reviewed(review: &Value, response: &Value) -> Answer {
    let mut answer =
        json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response});
    answer["response"]["uid"] = review["request"]["uid"].clone();
    (200, answer)
}

/// An answer that allows, and patches.
pub fn patching(review: &Value, patch: &Value) -> Answer {
    let patch = STANDARD.encode(patch.to_string());
    reviewed(review, &json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

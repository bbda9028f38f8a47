//! TLS, certificates, streams to a kubelet.

use crate::server::*;
use futures::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(ca: &str) -> Arc<rustls::RootCertStore> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    Arc::new(roots)
}

/// A TLS connection that trusts the server's authority only, with a client certificate if there is one.
async fn connect(
    api: &Api,
    identity: Option<&(String, String)>,
    alpn: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(api.server.ca_pem()));
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some((cert, key)) => config
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = TcpStream::connect(api.server.addr()).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

/// A connection of the cluster's admin.
pub async fn as_admin(api: &Api) -> TlsStream<TcpStream> {
    let identity = api.server.issue("admin", &["system:masters"], &[]).unwrap();
    connect(api, Some(&identity), "http/1.1").await.unwrap()
}

async fn get(stream: TlsStream<TcpStream>, path: &str, two: bool) -> (u16, Value) {
    let request =
        http::Request::builder().uri(format!("https://localhost{path}")).body(Empty::<bytes::Bytes>::new());
    let (request, io) = (request.unwrap(), TokioIo::new(stream));
    let answer = if two {
        let (mut send, conn) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(conn);
        send.send_request(request).await.unwrap()
    } else {
        let (mut send, conn) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(conn);
        send.send_request(request).await.unwrap()
    };
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

#[tokio::test]
async fn certificates_say_who_asks_over_both_versions_of_http() {
    let api = Api::start().await;
    let admin = api.server.issue("someone", &["system:masters"], &[]).unwrap();
    for (alpn, two) in [("h2", true), ("http/1.1", false)] {
        let stream = connect(&api, Some(&admin), alpn).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
        assert_eq!(get(stream, "/api/v1/namespaces", two).await.0, 200, "{alpn}");
        let (code, status) = get(connect(&api, None, alpn).await.unwrap(), "/api/v1/namespaces", two).await;
        assert_eq!((code, &status["reason"]), (403, &"Forbidden".into()), "nobody known may not even ask");
        for path in ["/version", "/livez", "/readyz?verbose", "/healthz"] {
            assert_eq!(get(connect(&api, None, alpn).await.unwrap(), path, two).await.0, 200, "{path}");
        }
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (api, other) = (Api::start().await, Api::start().await);
    let stranger = other.server.issue("someone", &["system:masters"], &[]).unwrap();
    // With TLS 1.3 the refusal comes with the first read.
    let refused = match connect(&api, Some(&stranger), "http/1.1").await {
        Err(_) => true,
        Ok(mut stream) => {
            let asked = stream.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await;
            asked.is_err() || stream.read_u8().await.is_err()
        }
    };
    assert!(refused);
}

/// What a kubelet serves, as far as these tests need it: a log, and an upgrade that sends everything back.
async fn kubelet(api: &Api) -> SocketAddr {
    let (cert, key) =
        api.server.issue("system:node:n1", &["system:nodes"], &["127.0.0.1".to_owned()]).unwrap();
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(roots(api.server.ca_pem()), provider());
    let config = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                if head.starts_with("GET /containerLogs/default/p/main?") {
                    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";
                    return stream.write_all(answer.as_bytes()).await.unwrap();
                }
                assert!(head.starts_with("GET /exec/default/p/main?"), "{head}");
                let key = head.lines().find_map(|l| l.strip_prefix("sec-websocket-key: ")).unwrap();
                let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
                let answer = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
                let role = tokio_tungstenite::tungstenite::protocol::Role::Server;
                let mut socket =
                    tokio_tungstenite::WebSocketStream::from_raw_socket(stream, role, None).await;
                while let Some(Ok(message)) = socket.next().await {
                    if message.is_binary() {
                        socket.send(message).await.unwrap();
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn logs_and_upgraded_connections_go_to_the_kubelet_and_back() {
    let api = Api::start().await;
    let address = kubelet(&api).await;
    api.make("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}}}});
    assert_eq!(api.patch("/api/v1/nodes/n1/status", status).await.0, 200);
    api.make(PODS, pod("p")).await;
    let (code, early) = api.call("GET", &format!("{PODS}/p/log"), Value::Null).await;
    assert_eq!((code, text(&early["message"]).as_str()), (400, "pod p does not have a host assigned"));
    api.call("POST", &format!("{PODS}/p/binding"), json!({"target": {"name": "n1"}})).await;
    let (code, log) = api.call("GET", &format!("{PODS}/p/log"), Value::Null).await;
    assert_eq!((code, log), (200, "hello\n".into()));
    let admin = api.server.issue("someone", &["system:masters"], &[]).unwrap();
    let stream = connect(&api, Some(&admin), "http/1.1").await.unwrap();
    let mut request = tokio_tungstenite::tungstenite::client::IntoClientRequest::into_client_request(
        format!("wss://localhost{PODS}/p/exec?command=sh&stdin=true&stdout=true"),
    )
    .unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "v5.channel.k8s.io".parse().unwrap());
    let (mut socket, answer) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "v5.channel.k8s.io");
    socket.send(tokio_tungstenite::tungstenite::Message::binary(&b"\0input"[..])).await.unwrap();
    let back = tokio::time::timeout(DEADLINE, socket.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(back.into_data(), &b"\0input"[..]);
    for (protocol, expected) in [("binary.k8s.io", "hello\n"), ("base64.binary.k8s.io", "aGVsbG8K")] {
        let stream = connect(&api, Some(&admin), "http/1.1").await.unwrap();
        let mut request = tokio_tungstenite::tungstenite::client::IntoClientRequest::into_client_request(
            format!("wss://localhost{PODS}/p/log"),
        )
        .unwrap();
        request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
        let (mut socket, answer) = tokio_tungstenite::client_async(request, stream).await.unwrap();
        assert_eq!(answer.headers()["sec-websocket-protocol"], protocol);
        let log = tokio::time::timeout(DEADLINE, socket.next()).await.unwrap().unwrap().unwrap();
        assert_eq!((log.is_text(), log.into_text().unwrap().as_str()), (expected != "hello\n", expected));
        let end = tokio::time::timeout(DEADLINE, socket.next()).await.unwrap().unwrap().unwrap();
        assert!(end.is_close(), "{end:?}");
    }
}

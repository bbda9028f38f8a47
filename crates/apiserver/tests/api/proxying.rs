//! Requests that are passed on to Pods, against a little server that stands for one.

use std::sync::Arc;

use http_body_util::BodyExt;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::server::*;

const PAGE: &str = r#"<a href="/there">t</a>"#;

/// A server with a certificate that nobody knows, which answers everything with [`PAGE`]; its port.
async fn https() -> u16 {
    let made = rcgen::generate_simple_self_signed(["a.pod".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // What speaks no TLS is hung up on.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{PAGE}",
                PAGE.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    port
}

#[tokio::test]
async fn a_pod_is_reached_by_https_whoever_signed_and_its_links_lead_back() {
    let api = Api::start().await;
    let port = https().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(api.call("POST", pods, pod).await.0, 201);
    let status = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    let merge = [("content-type", "application/merge-patch+json")];
    let patched = api.send("PATCH", &format!("{pods}/p/status"), &merge, status.to_string()).await;
    assert_eq!(patched.status(), 200);
    let get = async |place: String| {
        let answer = api.send("GET", &format!("{pods}/{place}/proxy/"), &[], "").await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.into()).unwrap())
    };
    let base = format!("{pods}/https:p:{port}/proxy");
    assert_eq!(get(format!("https:p:{port}")).await, (200, format!("<a href=\"{base}/there\">t</a>")));
    assert_eq!(get(format!("p:{port}")).await.0, 503, "plain HTTP finds no server");
    assert_eq!(get(format!("ftp:p:{port}")).await.0, 400);
    assert_eq!(api.call("GET", &format!("{pods}/nobody/proxy/"), Value::Null).await.0, 404);
}

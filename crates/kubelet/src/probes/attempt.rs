//! One probe, with its deadline. `Err` holds the words of the `Unhealthy` event.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use trine_typed::k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe, TCPSocketAction};
use trine_typed::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::runtime::Runtime;

/// How much of a body is read (upstream: 10 KiB).
const MAX_BODY: usize = 10 * 1024;

/// What is probed.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The container's spec, for named ports.
    pub container: &'a Container,
    /// The Pod's address.
    pub ip: &'a str,
}

/// The number of a port.
fn port(target: &Target<'_>, port: &IntOrString) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => name.parse().ok().or_else(|| {
            let mut ports = target.container.ports.iter().flatten();
            ports.find(|p| p.name.as_deref() == Some(name)).map(|p| p.container_port)
        }),
    };
    number
        .and_then(|n| u16::try_from(n).ok())
        .filter(|n| *n > 0)
        .ok_or_else(|| "couldn't find port".to_owned())
}

fn host<'a>(own: Option<&'a str>, target: &Target<'a>) -> &'a str {
    own.filter(|h| !h.is_empty()).unwrap_or(target.ip)
}

/// `[...]` around an IPv6 address.
fn bracket(host: &str) -> String {
    if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) { format!("[{host}]") } else { host.to_owned() }
}

/// Performs the probe. An error of the kubelet itself is `Ok(None)`: it says nothing of the container.
pub async fn probe(
    runtime: &Runtime,
    probe: &Probe,
    target: &Target<'_>,
    id: &str,
    timeout: Duration,
) -> Option<Result<(), String>> {
    if let Some(exec) = &probe.exec {
        let result = runtime.exec_sync(id, exec.command.clone().unwrap_or_default(), timeout).await;
        return match result {
            Ok(output) if output.exit_code == 0 => Some(Ok(())),
            Ok(output) => {
                let text = [output.stdout, output.stderr].concat();
                Some(Err(String::from_utf8_lossy(&text).trim_end().to_owned()))
            }
            Err(error) if error.grpc_code() == Some(tonic::Code::DeadlineExceeded) => {
                Some(Err(format!("command timed out: {:?} after {}s", exec.command, timeout.as_secs())))
            }
            Err(error) => {
                tracing::debug!(error = error.chain(), "probe not performed");
                None
            }
        };
    }
    if let Some(get) = &probe.http_get {
        return Some(http_get(get, target, timeout).await);
    }
    if let Some(socket) = &probe.tcp_socket {
        return Some(tcp(socket, target, timeout).await);
    }
    if let Some(grpc) = &probe.grpc {
        let service = grpc.service.clone().unwrap_or_default();
        let address = format!("http://{}:{}", bracket(target.ip), grpc.port);
        return Some(grpc_health(&address, service, timeout).await);
    }
    None
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let stream = TcpStream::connect((host, port)).await;
    stream.map_err(|e| format!("dial tcp {}:{port}: connect: {}", bracket(host), words(&e)))
}

/// The system's words without the number.
fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

async fn tcp(socket: &TCPSocketAction, target: &Target<'_>, timeout: Duration) -> Result<(), String> {
    let port = port(target, &socket.port)?;
    let host = host(socket.host.as_deref(), target);
    match tokio::time::timeout(timeout, connect(host, port)).await {
        Ok(result) => result.map(drop),
        Err(_) => Err(format!("dial tcp {}:{port}: i/o timeout", bracket(host))),
    }
}

/// An HTTP(S) GET; any status from 200 to 399 is a success. Certificates are not looked at, as upstream.
///
/// # Errors
/// What went wrong, in words.
pub async fn http_get(get: &HTTPGetAction, target: &Target<'_>, timeout: Duration) -> Result<(), String> {
    let port = port(target, &get.port)?;
    let host = host(get.host.as_deref(), target);
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
    let path = get.path.as_deref().unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let url = format!("{scheme}://{}:{port}{path}", bracket(host));
    let status = match tokio::time::timeout(timeout, request(get, host, port, &path, &scheme)).await {
        Ok(result) => result.map_err(|e| format!("Get {url:?}: {e}"))?,
        Err(_) => {
            return Err(format!(
                "Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            ));
        }
    };
    if (200..400).contains(&status) {
        return Ok(());
    }
    Err(format!("HTTP probe failed with statuscode: {status}"))
}

async fn request(
    get: &HTTPGetAction,
    host: &str,
    port: u16,
    path: &str,
    scheme: &str,
) -> Result<u16, String> {
    let stream = connect(host, port).await?;
    let mut builder =
        http::Request::get(path).header("User-Agent", "kube-probe/1.37").header("Accept", "*/*");
    let mut named = false;
    for header in get.http_headers.iter().flatten() {
        named |= header.name.eq_ignore_ascii_case("host");
        builder = builder.header(&header.name, &header.value);
    }
    if !named {
        builder = builder.header("Host", format!("{}:{port}", bracket(host)));
    }
    let request = builder.header("Connection", "close").body(Empty::new()).map_err(|e| e.to_string())?;
    if scheme == "https" {
        let connector = tokio_rustls::TlsConnector::from(crate::api::tls::client_without_verification());
        let name = server_name(host)?;
        let stream = connector.connect(name, stream).await.map_err(|e| e.to_string())?;
        return send(TokioIo::new(stream), request).await;
    }
    send(TokioIo::new(stream), request).await
}

fn server_name(host: &str) -> Result<rustls::pki_types::ServerName<'static>, String> {
    rustls::pki_types::ServerName::try_from(host.to_owned()).map_err(|e| e.to_string())
}

async fn send<S>(io: S, request: http::Request<Empty<Bytes>>) -> Result<u16, String>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(io).await.map_err(|e| e.to_string())?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await;
    let status = match response {
        Ok(response) => {
            let status = response.status().as_u16();
            // A short body is read to its end, so the server sees a clean close.
            let mut body = response.into_body();
            let mut read = 0;
            while let Some(Ok(frame)) = body.frame().await {
                read += frame.data_ref().map(Bytes::len).unwrap_or_default();
                if read > MAX_BODY {
                    break;
                }
            }
            Ok(status)
        }
        Err(error) => Err(error.to_string()),
    };
    driver.abort();
    status
}

/// `grpc.health.v1.Health/Check`. The two messages are small enough to be written here: a string of field 1,
/// an enum of field 1.
async fn grpc_health(address: &str, service: String, timeout: Duration) -> Result<(), String> {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Check {
        #[prost(string, tag = "1")]
        service: String,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Checked {
        #[prost(int32, tag = "1")]
        status: i32,
    }
    let work = async {
        let endpoint = tonic::transport::Endpoint::new(address.to_owned()).map_err(|e| e.to_string())?;
        let channel = endpoint
            .connect()
            .await
            .map_err(|e| format!("timeout: failed to connect service {address:?}: {e}"))?;
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.map_err(|e| e.to_string())?;
        let codec: tonic_prost::ProstCodec<Check, Checked> = tonic_prost::ProstCodec::default();
        let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
        let request = tonic::Request::new(Check { service });
        let response =
            client.unary(request, path, codec).await.map_err(|e| format!("error: {}", e.message()))?;
        match response.into_inner().status {
            1 => Ok(()),
            other => Err(format!("service unhealthy (responded with {other})")),
        }
    };
    tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| {
        Err(format!("timeout: health rpc to {address:?} did not complete within {}s", timeout.as_secs()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn server(status: &'static str) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = [0; 1024];
                let _ = stream.read(&mut buffer).await;
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn http_is_judged_by_its_status_and_tcp_by_its_connection() {
        let container = Container::default();
        let target = Target { container: &container, ip: "127.0.0.1" };
        let second = Duration::from_secs(1);
        let get = |port: u16| HTTPGetAction { port: IntOrString::Int(i32::from(port)), ..Default::default() };
        for (status, fine) in
            [("200 OK", true), ("302 Found", true), ("404 Not Found", false), ("500 Oops", false)]
        {
            let port = server(status).await;
            assert_eq!(http_get(&get(port), &target, second).await.is_ok(), fine, "{status}");
            let socket = TCPSocketAction { port: IntOrString::Int(i32::from(port)), host: None };
            assert!(tcp(&socket, &target, second).await.is_ok());
        }
        // Nobody listens on port 1.
        let error = http_get(&get(1), &target, second).await.unwrap_err();
        assert_eq!(error, "Get \"http://127.0.0.1:1/\": dial tcp 127.0.0.1:1: connect: connection refused");
    }
}

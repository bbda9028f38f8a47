//! What goes wrong on the way, in the words of Go's library: they stand in refusals that people and tests read.

use std::io::ErrorKind;

use http::StatusCode;
use rustls::CertificateError;
use serde_json::Value;

/// Why there is no connection to an address.
pub(super) fn connecting(error: &std::io::Error, host: &str, port: u16) -> String {
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    match error.kind() {
        ErrorKind::ConnectionRefused => format!("dial tcp {address}: connect: connection refused"),
        ErrorKind::TimedOut => format!("dial tcp {address}: i/o timeout"),
        _ => format!("dial tcp {address}: {error}"),
    }
}

/// Why the other end is not believed, or does not speak TLS.
pub(super) fn handshake(error: &std::io::Error, host: &str) -> String {
    let of_tls = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(why)) = of_tls else {
        return format!("tls: {error}");
    };
    let why = match why {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired or is not yet valid".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("certificate is not valid for any names, but wanted to match {host}")
        }
        other => other.to_string(),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// What an answer that is no success says.
pub(super) fn refusal(code: StatusCode, body: &[u8]) -> String {
    let status: Option<Value> = serde_json::from_slice(body).ok();
    let own = status.as_ref().filter(|s| s["kind"] == "Status").and_then(|s| s["message"].as_str());
    if let Some(message) = own {
        return message.to_owned();
    }
    let text = String::from_utf8_lossy(body).trim().to_owned();
    match code {
        StatusCode::NOT_FOUND => "the server could not find the requested resource".to_owned(),
        StatusCode::BAD_REQUEST => "the server rejected our request for an unknown reason".to_owned(),
        StatusCode::UNAUTHORIZED => "the server has asked for the client to provide credentials".to_owned(),
        StatusCode::FORBIDDEN if text.is_empty() => "forbidden".to_owned(),
        StatusCode::FORBIDDEN => text,
        StatusCode::METHOD_NOT_ALLOWED => {
            "the server does not allow this method on the requested resource".to_owned()
        }
        StatusCode::TOO_MANY_REQUESTS => {
            "the server has received too many requests and has asked us to try again later".to_owned()
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            "the server is currently unable to handle the request".to_owned()
        }
        StatusCode::GATEWAY_TIMEOUT => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
                .to_owned()
        }
        code if code.is_server_error() => {
            format!("an error on the server ({text:?}) has prevented the request from succeeding")
        }
        code => {
            format!("the server responded with the status code {} but did not return more details", code.as_u16())
        }
    }
}

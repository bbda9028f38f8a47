//! Whom a connection to another server believes: a bundle of authorities, or anybody.

use std::sync::Arc;

use rustls::ClientConfig;
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::registry::text;
use crate::rotation::Newest;
use crate::webhook::{Verifier, verifier};

/// Ways to connect, by the protocols that are offered.
#[derive(Clone)]
pub(super) struct Connectors {
    /// HTTP/2, or 1.1.
    pub any: TlsConnector,
    /// HTTP/1.1 alone, in which connections are upgraded.
    pub one: TlsConnector,
}

/// Connects as the front proxy to servers that the APIService's `spec` says are to be believed.
///
/// # Errors
/// Why the bundle is none.
pub(super) fn connectors(spec: &Value, identity: &Arc<Newest>) -> Result<Connectors, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let believes = if spec["insecureSkipTLSVerify"] == true {
        Verifier::of_anybody(&provider)
    } else {
        verifier(text(&spec["caBundle"]), &provider)?
    };
    let mut one = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(believes))
        .with_client_cert_resolver(Arc::clone(identity) as Arc<_>);
    one.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut any = one.clone();
    any.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Connectors { any: Arc::new(any).into(), one: Arc::new(one).into() })
}

//! Whom a connection to another server believes: a bundle of authorities, or anybody.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::registry::text;
use crate::rotation::Newest;

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
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    let builder = if spec["insecureSkipTLSVerify"] == true {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
    } else {
        builder.with_root_certificates(roots(text(&spec["caBundle"]))?)
    };
    let mut one = builder.with_client_cert_resolver(Arc::clone(identity) as Arc<_>);
    one.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut any = one.clone();
    any.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Connectors { any: Arc::new(any).into(), one: Arc::new(one).into() })
}

fn roots(bundle: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let pem = STANDARD.decode(bundle).map_err(|e| format!("unable to load root certificates: {e}"))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let added =
            certificate.map_err(|e| e.to_string()).and_then(|c| roots.add(c).map_err(|e| e.to_string()));
        added.map_err(|e| format!("unable to load root certificates: {e}"))?;
    }
    if roots.is_empty() && !pem.is_empty() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
    }
    Ok(roots)
}

/// Believes any certificate, as `insecureSkipTLSVerify` asks for; that its owner has the key is seen all the same.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

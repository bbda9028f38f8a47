//! Certificates: ours, those that sign callers, and who a caller is.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

use tokio::sync::watch;

use crate::config::Config;
use crate::error::KubeletError;

/// Who calls, as the client certificate says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// Common name.
    pub user: String,
    /// Organizations.
    pub groups: Vec<String>,
}

fn tls_error<E>(what: &'static str) -> impl FnOnce(E) -> KubeletError
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |error| KubeletError::Tls { what, source: Box::new(error) }
}

/// The server's configuration. Callers may come without a certificate; they get nowhere, though.
///
/// # Errors
/// [`KubeletError::Tls`].
pub fn server_config(config: &Config) -> Result<ServerConfig, KubeletError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_slice_iter(config.client_ca_pem.as_bytes()) {
        roots.add(cert.map_err(tls_error("client CA"))?).map_err(tls_error("client CA"))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(tls_error("client CA"))?;
    let first = certified(&config.serving_cert_pem, &config.serving_key_pem, &provider)?;
    let serving = Serving {
        provider: provider.clone(),
        next: Mutex::new(config.serving_next.clone()),
        current: RwLock::new(first),
    };
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(tls_error("protocol versions"))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(serving));
    // Upgrades need HTTP/1.1.
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(server)
}

fn certified(cert: &str, key: &str, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, KubeletError> {
    let chain = CertificateDer::pem_slice_iter(cert.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(tls_error("serving certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(tls_error("serving key"))?;
    let key = provider.key_provider.load_private_key(key).map_err(tls_error("serving key"))?;
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}

/// Shows the newest certificate at each handshake.
#[derive(Debug)]
struct Serving {
    provider: Arc<CryptoProvider>,
    next: Mutex<Option<watch::Receiver<(String, String)>>>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(receiver) = next.as_mut()
            && receiver.has_changed().unwrap_or(false)
        {
            let (cert, key) = receiver.borrow_and_update().clone();
            match certified(&cert, &key, &self.provider) {
                Ok(fresh) => *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh,
                Err(error) => tracing::error!(error = error.chain(), "a new certificate cannot be used"),
            }
        }
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Who the first certificate of a verified chain names.
#[must_use]
pub fn identity(chain: Option<&[CertificateDer<'_>]>) -> Option<Identity> {
    let first = chain?.first()?;
    let (_, cert) = x509_parser::parse_x509_certificate(first).ok()?;
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute.as_str().map(str::to_owned).unwrap_or_default()
    };
    let user = cert.subject().iter_common_name().next().map(text)?;
    Some(Identity { user, groups: cert.subject().iter_organization().map(text).collect() })
}

/// Takes any certificate: HTTPS probes ask whether a server answers, not who it is.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
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
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A client that talks to any server, for HTTPS probes.
#[must_use]
pub fn client_without_verification() -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions");
    let verifier = Arc::new(AnyServer(provider));
    Arc::new(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

//! Whose certificates are believed: those that the configuration's bundle signed, or those that the machine believes.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

/// How to speak to a webhook: `bundle` is base64 of PEM, empty for the machine's own authorities.
pub(super) fn config(bundle: &str) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = verifier(bundle, &provider)?;
    believing(verifier).map_err(|e| unusable(&e))
}

/// How to speak, without a certificate of one's own, to those whom a verifier believes.
pub(crate) fn believing(verifier: Verifier) -> Result<Arc<ClientConfig>, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(&verifier.provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    Ok(Arc::new(builder.with_no_client_auth()))
}

fn unusable(why: &dyn std::fmt::Display) -> String {
    format!("unable to load root certificates: {why}")
}

/// Who believes what a bundle signed.
///
/// # Errors
/// Why the bundle is none.
pub(crate) fn verifier(bundle: &str, provider: &Arc<CryptoProvider>) -> Result<Verifier, String> {
    let roots: Vec<CertificateDer<'static>> = if bundle.is_empty() {
        rustls_native_certs::load_native_certs().certs
    } else {
        let pem = STANDARD.decode(bundle).map_err(|e| unusable(&e))?;
        let read = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let read = read.map_err(|e| unusable(&e))?;
        if read.is_empty() {
            return Err(unusable(&"unable to parse bytes as PEM block"));
        }
        read
    };
    Verifier::new(roots, provider).map_err(|e| unusable(&e))
}

/// As usual, and also a server whose very certificate is in the bundle: Go's library, for which bundles are written, believes
/// it even if it calls itself an authority.
#[derive(Debug)]
pub(crate) struct Verifier {
    usual: Option<Arc<WebPkiServerVerifier>>,
    /// Any certificate is believed; that its owner has the key is seen all the same.
    anybody: bool,
    roots: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(roots: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.iter().cloned());
        // Without a root that can be used nobody is believed.
        let usual =
            WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider)).build().ok();
        Ok(Self { usual, anybody: false, roots, provider: Arc::clone(provider) })
    }

    /// Believes everybody, as `insecureSkipTLSVerify` asks for.
    pub(crate) fn of_anybody(provider: &Arc<CryptoProvider>) -> Self {
        Self { usual: None, anybody: true, roots: Vec::new(), provider: Arc::clone(provider) }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.anybody {
            return Ok(ServerCertVerified::assertion());
        }
        let unknown = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let usual = match &self.usual {
            Some(usual) => usual.verify_server_cert(shown, between, name, stapled, now),
            None => Err(unknown()),
        };
        let error = match usual {
            Ok(verified) => return Ok(verified),
            Err(error) => error,
        };
        if !self.roots.iter().any(|root| root.as_ref() == shown.as_ref()) {
            return Err(error);
        }
        rustls::client::verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        let (_, certificate) = X509Certificate::from_der(shown).map_err(|_| unknown())?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let validity = certificate.validity();
        if !(validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&seconds) {
            return Err(rustls::Error::InvalidCertificate(CertificateError::Expired));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

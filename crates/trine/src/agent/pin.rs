//! Whose cluster it is: the SHA-256 of the public key of its authority (`SubjectPublicKeyInfo`, RFC 7469), as kubeadm hashes
//! it. A server proves itself with a certificate of that authority, which it shows behind its own, before anything is
//! said to it.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use trine_objects::pem;

/// How long the server may take to show its certificate.
const DEADLINE: Duration = Duration::from_secs(10);
const FORM: &str = "sha256:";

/// The hash of an authority's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin([u8; 32]);

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{FORM}{}", hex::encode(self.0))
    }
}

impl FromStr for Pin {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let bytes = text.strip_prefix(FORM).and_then(|digits| hex::decode(digits).ok());
        let bytes: Option<[u8; 32]> = bytes.and_then(|b| b.try_into().ok());
        Ok(Self(bytes.context("the authority's hash is sha256: and 64 hex digits")?))
    }
}

impl Pin {
    /// The hash of a certificate's key, PEM.
    ///
    /// # Errors
    /// If it is no certificate.
    pub fn of(pem: &str) -> anyhow::Result<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).context("the authority's certificate")?;
        Self::of_der(&der).context("the authority's certificate")
    }

    fn of_der(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
        let hash = ::ring::digest::digest(&::ring::digest::SHA256, certificate.public_key().raw);
        Some(Self(hash.as_ref().try_into().ok()?))
    }
}

/// Asks the server at `host:port` for its authority and checks it against the pin; gives it as PEM.
///
/// # Errors
/// If the server does not answer, or is not of that authority ([`is_stranger`]).
pub async fn authority(host: &str, port: u16, pin: Pin) -> anyhow::Result<String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Pinned { pin, provider: provider.clone(), found: Mutex::default() });
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_no_client_auth();
    let name =
        ServerName::try_from(host.to_owned()).with_context(|| format!("{host:?} is no name of a server"))?;
    let handshake = async {
        let stream = TcpStream::connect((host, port)).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    tokio::time::timeout(DEADLINE, handshake)
        .await
        .with_context(|| format!("{host}:{port} does not answer"))?
        .with_context(|| format!("{host}:{port} is not the server of this token's cluster"))?;
    let found = verifier.found.lock().unwrap_or_else(PoisonError::into_inner).take();
    found.context("the server showed no authority")
}

/// True if somebody answered who is of another authority: asking again will not help.
#[must_use]
pub fn is_stranger(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|e| e.downcast_ref::<std::io::Error>());
    let tls = io.and_then(|e| e.get_ref()).and_then(|e| e.downcast_ref::<rustls::Error>());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

/// Believes a server whose certificate leads to an authority with the pinned key.
#[derive(Debug)]
struct Pinned {
    pin: Pin,
    provider: Arc<CryptoProvider>,
    found: Mutex<Option<String>>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let unknown = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let authority =
            intermediates.iter().find(|c| Pin::of_der(c) == Some(self.pin)).ok_or_else(unknown)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|_| unknown())?;
        let verified = verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp, now)?;
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(pem::encode("CERTIFICATE", authority));
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

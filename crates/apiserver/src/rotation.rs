//! The server's own certificates are exchanged before they end, without a restart: who uses one is told of the next.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::http::serve::ServeError;
use crate::pki::{Authority, Identity, PkiError};
use crate::registry::now_unix;

/// How long a certificate holds. Upstream's installers: a year.
pub const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// How often it is looked whether one is due. By the clock of the day, so that a machine that slept catches up.
const LOOK: Duration = Duration::from_secs(600);

struct Kept {
    name: String,
    groups: Vec<String>,
    names: Vec<String>,
    /// When two thirds of its time are over, seconds since 1970.
    due: i64,
    sender: watch::Sender<Identity>,
}

/// Keeps certificates fresh.
pub struct Rotation {
    authority: Arc<Authority>,
    lifetime: Duration,
    kept: Mutex<Vec<Kept>>,
}

impl Rotation {
    /// Certificates are the authority's and hold for `lifetime`.
    #[must_use]
    pub fn new(authority: Arc<Authority>, lifetime: Duration) -> Self {
        Self { authority, lifetime, kept: Mutex::default() }
    }

    /// A certificate for `name` of the groups `groups`, and the next ones as long as somebody looks at the receiver.
    ///
    /// # Errors
    /// [`PkiError::Make`].
    pub fn keep(
        &self,
        name: &str,
        groups: &[&str],
        names: &[String],
    ) -> Result<watch::Receiver<Identity>, PkiError> {
        let first = self.authority.issue_for(name, groups, names, self.lifetime)?;
        let (sender, receiver) = watch::channel(first);
        let kept = Kept {
            name: name.to_owned(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            names: names.to_vec(),
            due: self.due(now_unix()),
            sender,
        };
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        Ok(receiver)
    }

    fn due(&self, now: i64) -> i64 {
        now + i64::try_from(self.lifetime.as_secs() * 2 / 3).unwrap_or(i64::MAX)
    }

    /// Exchanges what is due; gives how many were.
    pub fn renew(&self, now: i64) -> usize {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|k| !k.sender.is_closed());
        let mut renewed = 0;
        for one in kept.iter_mut().filter(|k| k.due <= now) {
            let groups: Vec<&str> = one.groups.iter().map(String::as_str).collect();
            match self.authority.issue_for(&one.name, &groups, &one.names, self.lifetime) {
                Ok(next) => {
                    tracing::info!(name = one.name, "certificate exchanged before it ends");
                    one.sender.send_replace(next);
                    one.due = self.due(now);
                    renewed += 1;
                }
                Err(error) => tracing::error!(%error, "a certificate is not exchanged; it is tried again"),
            }
        }
        renewed
    }

    /// Exchanges certificates when they are due, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK) => drop(self.renew(now_unix())),
            }
        }
    }
}

/// Shows the newest of a certificate at each handshake.
#[derive(Debug)]
pub struct Newest {
    provider: Arc<CryptoProvider>,
    receiver: Mutex<watch::Receiver<Identity>>,
    current: RwLock<Arc<CertifiedKey>>,
    /// Shown behind the certificate, PEM; may be empty.
    authority: String,
}

impl Newest {
    /// Of what `receiver` gives.
    ///
    /// # Errors
    /// [`ServeError::Tls`] if the first is none.
    pub fn of(
        receiver: watch::Receiver<Identity>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<Self>, ServeError> {
        Self::with_authority(receiver, provider, "")
    }

    /// The same with the authority's certificate behind each, so that who knows only the hash of its key can check it.
    ///
    /// # Errors
    /// [`ServeError::Tls`] if the first is none.
    pub fn with_authority(
        mut receiver: watch::Receiver<Identity>,
        provider: Arc<CryptoProvider>,
        ca_pem: &str,
    ) -> Result<Arc<Self>, ServeError> {
        let first = certified(&receiver.borrow_and_update(), ca_pem, &provider);
        let current = RwLock::new(first.map_err(|why| ServeError::Tls { why })?);
        let authority = ca_pem.to_owned();
        Ok(Arc::new(Self { provider, receiver: Mutex::new(receiver), current, authority }))
    }

    fn key(&self) -> Arc<CertifiedKey> {
        let mut receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner);
        if receiver.has_changed().unwrap_or(false) {
            match certified(&receiver.borrow_and_update(), &self.authority, &self.provider) {
                Ok(next) => *self.current.write().unwrap_or_else(PoisonError::into_inner) = next,
                Err(why) => tracing::error!(why, "a new certificate cannot be used"),
            }
        }
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn certified(
    identity: &Identity,
    ca_pem: &str,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, String> {
    let own = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes());
    let chain: Result<Vec<_>, _> = own.chain(CertificateDer::pem_slice_iter(ca_pem.as_bytes())).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).map_err(|e| e.to_string())?;
    let key = provider.key_provider.load_private_key(key).map_err(|e| e.to_string())?;
    Ok(Arc::new(CertifiedKey::new(chain.map_err(|e| e.to_string())?, key)))
}

impl ResolvesServerCert for Newest {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key())
    }
}

impl ResolvesClientCert for Newest {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.key())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    #[tokio::test]
    async fn the_next_handshake_shows_the_next_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::load_or_make(dir.path()).unwrap());
        let rotation = Rotation::new(Arc::clone(&authority), Duration::from_secs(90));
        let receiver = rotation.keep("server", &[], &["localhost".to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let newest = Newest::of(receiver, Arc::clone(&provider)).unwrap();
        let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(newest);
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.ca_pem().as_bytes()).unwrap()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(client));
        let shown = async || {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
            let (client, server) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
            server.unwrap();
            client.unwrap().get_ref().1.peer_certificates().unwrap()[0].to_vec()
        };
        let first = shown().await;
        assert_eq!((rotation.renew(now_unix()), shown().await), (0, first.clone()), "it is not due");
        assert_eq!(rotation.renew(now_unix() + 61), 1);
        assert_ne!(shown().await, first);
    }

    #[test]
    fn nobody_is_served_who_does_not_listen() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::load_or_make(dir.path()).unwrap());
        let rotation = Rotation::new(authority, Duration::from_secs(90));
        drop(rotation.keep("x", &[], &[]).unwrap());
        assert_eq!(rotation.renew(now_unix() + 3600), 0);
    }
}

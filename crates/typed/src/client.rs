//! A client from a kubeconfig file.

use std::path::{Path, PathBuf};

use std::time::Duration;

use kube::client::retry::RetryPolicy;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower::retry::RetryLayer;
use tower::{BoxError, Layer};

/// How often a request is sent again, and the first and the longest pause before it. A server may ask for a longer one.
const RETRIES: u32 = 3;
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is missing or broken.
    #[error("kubeconfig {path} cannot be used")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What `kube` said.
        source: kube::config::KubeconfigError,
    },
    /// The configuration was read, but TLS could not be set up from it.
    #[error("no client from kubeconfig {path}")]
    Client {
        /// The file.
        path: PathBuf,
        /// What `kube` said.
        source: Box<kube::Error>,
    },
}

/// A client with the current context of the kubeconfig at `path`.
///
/// # Errors
/// [`ClientError`].
pub async fn from_kubeconfig(path: &Path) -> Result<kube::Client, ClientError> {
    let broken = |source| ClientError::Kubeconfig { path: path.to_owned(), source };
    let file = Kubeconfig::read_from(path).map_err(broken)?;
    let config =
        kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(broken)?;
    of(config).map_err(|source| ClientError::Client { path: path.to_owned(), source: Box::new(source) })
}

/// A client that asks again a few times when the server says that it is busy, or not there for the moment. `kube`'s own asks
/// fifteen times, ever more slowly: an hour until somebody hears of it.
///
/// # Errors
/// If TLS cannot be set up.
pub fn of(mut config: kube::Config) -> kube::Result<kube::Client> {
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    let once = kube::Client::try_from(config)?;
    let Ok(policy) = RetryPolicy::new(RETRY.0, RETRY.1, RETRIES, true) else { return Ok(once) };
    let send = tower::service_fn(move |request| {
        let once = once.clone();
        async move { once.send(request).await.map_err(BoxError::from) }
    });
    Ok(kube::Client::new(RetryLayer::new(policy).layer(send), namespace))
}

//! A client from a kubeconfig file.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};

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
    kube::Client::try_from(config)
        .map_err(|source| ClientError::Client { path: path.to_owned(), source: Box::new(source) })
}

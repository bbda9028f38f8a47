//! gRPC over unix sockets: how every seam is dialled and served.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint};

/// Largest gRPC message in either direction, bytes (16 MiB, as the upstream CRI client).
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Deadline for opening the socket itself; calls carry their own.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A channel to `path` that connects at its first call, and again after the peer has restarted.
#[must_use]
pub fn connect(path: impl Into<PathBuf>) -> Channel {
    let path = path.into();
    // The authority is never resolved: the connector below ignores it.
    Endpoint::from_static("http://localhost").connect_timeout(CONNECT_TIMEOUT).connect_with_connector_lazy(
        tower::service_fn(move |_: http::Uri| {
            let path = path.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        }),
    )
}

/// Listens on `path` for `serve_with_incoming`.
///
/// A socket file that nobody answers on is removed first; one that is answered on is an error, so two
/// runtimes never share a path. The file gets mode 0600.
///
/// # Errors
/// `AddrInUse` if somebody answers on `path`; otherwise what the file system says.
pub async fn listen(path: &Path) -> io::Result<UnixListenerStream> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match UnixStream::connect(path).await {
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{} is served", path.display())));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(_) => std::fs::remove_file(path)?,
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(UnixListenerStream::new(listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sock");
        let first = listen(&path).await.unwrap();
        assert_eq!(listen(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(first);
        listen(&path).await.unwrap();
    }
}

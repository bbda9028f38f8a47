//! gRPC over unix sockets: how every seam is dialled and served.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
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

/// Longest path that the kernel takes as a socket's address, bytes. Drivers choose names that fit below `/var/lib/kubelet`.
const LONGEST: usize = 107;

/// A channel to `path` that connects at its first call, and again after the peer has restarted.
#[must_use]
pub fn connect(path: impl Into<PathBuf>) -> Channel {
    let path = path.into();
    // The authority is never resolved: the connector below ignores it.
    Endpoint::from_static("http://localhost").connect_timeout(CONNECT_TIMEOUT).connect_with_connector_lazy(
        tower::service_fn(move |_: http::Uri| {
            let path = path.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(dial(&path).await?)) }
        }),
    )
}

async fn dial(path: &Path) -> io::Result<UnixStream> {
    let (address, _folder) = address(path)?;
    UnixStream::connect(address).await
}

/// What a socket is reached by: a path that is too long by its folder, which is held open meanwhile.
fn address(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) if path.as_os_str().len() > LONGEST => {
            let folder = File::open(folder)?;
            let address = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
            Ok((address, Some(folder)))
        }
        _ => Ok((path.to_owned(), None)),
    }
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
    match dial(path).await {
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{} is served", path.display())));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(_) => std::fs::remove_file(path)?,
    }
    let (address, _folder) = address(path)?;
    let listener = UnixListener::bind(address)?;
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

    #[tokio::test]
    async fn a_path_that_is_too_long_for_an_address_is_served_and_dialled() {
        let dir = tempfile::tempdir().unwrap();
        for length in [LONGEST, LONGEST + 1, 200] {
            let fill = length - dir.path().as_os_str().len() - "//x.sock".len();
            let path = dir.path().join("d".repeat(fill)).join("x.sock");
            assert_eq!(path.as_os_str().len(), length);
            let incoming = listen(&path).await.unwrap();
            dial(&path).await.unwrap();
            assert_eq!(listen(&path).await.unwrap_err().kind(), io::ErrorKind::AddrInUse, "{length}");
            drop(incoming);
            listen(&path).await.unwrap();
        }
    }
}

//! The driver on its sockets.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use trine_contracts::csi::controller_server::ControllerServer;
use trine_contracts::csi::group_controller_server::GroupControllerServer;
use trine_contracts::csi::identity_server::IdentityServer;
use trine_contracts::csi::node_server::NodeServer;
use trine_contracts::deadline::Deadlines;
use trine_contracts::registration::registration_server::RegistrationServer;
use trine_contracts::socket;

use crate::config::{Config, DRIVER_NAME};
use crate::driver::Driver;
use crate::error::Cause;
use crate::service::{Registrar, Service};

/// How long calls under way may go on after the stop.
const GRACE: Duration = Duration::from_secs(5);

/// Why the driver does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The pool cannot be used.
    #[error("csi driver {DRIVER_NAME}: pool {pool}")]
    Pool {
        /// Its folder.
        pool: PathBuf,
        /// Why.
        source: Cause,
    },
    /// A socket cannot be listened on.
    #[error("csi driver {DRIVER_NAME}: socket {socket}")]
    Listen {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The server broke.
    #[error("csi driver {DRIVER_NAME}: server")]
    Server(#[from] tonic::transport::Error),
    /// Opening the pool was broken off.
    #[error("csi driver {DRIVER_NAME}: start")]
    Start(#[from] tokio::task::JoinError),
}

/// Serves until `stop`: first the CSI socket, then, so that whoever finds it finds the driver too, the
/// registration socket. Both files are gone afterwards.
///
/// # Errors
/// [`ServeError`].
pub async fn serve(config: Config, stop: CancellationToken) -> Result<(), ServeError> {
    let opened = tokio::task::spawn_blocking({
        let config = config.clone();
        move || Driver::open(config).and_then(|driver| driver.reconcile().map(|()| driver))
    });
    let pool = |source| ServeError::Pool { pool: config.pool_dir.clone(), source };
    let service = Service::new(Arc::new(opened.await?.map_err(pool)?));
    let incoming = listen(&config.socket).await?;
    let main = Server::builder()
        .layer(Deadlines)
        .add_service(IdentityServer::new(service.clone()))
        .add_service(ControllerServer::new(service.clone()))
        .add_service(GroupControllerServer::new(service.clone()))
        .add_service(NodeServer::new(service))
        .serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
    let registration = register(&config, stop.clone());
    let deadline = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    let served = tokio::select! {
        served = async { tokio::try_join!(async { main.await.map_err(ServeError::from) }, registration) } => served.map(drop),
        () = deadline => Ok(()),
    };
    let _ = std::fs::remove_file(&config.socket);
    served
}

/// The name of the registration socket. Upstream's kubelet sends its whole path, escaped, as the authority of its calls, and an
/// HTTP library of Rust refuses a host with an escape in it as malformed. Before an `@` there is no host, so it takes this one.
fn registration_socket() -> String {
    format!("{DRIVER_NAME}@reg.sock")
}

async fn register(config: &Config, stop: CancellationToken) -> Result<(), ServeError> {
    let Some(dir) = &config.registration_dir else { return Ok(()) };
    let path = dir.join(registration_socket());
    let incoming = listen(&path).await?;
    let registrar = RegistrationServer::new(Registrar { endpoint: config.socket.display().to_string() });
    let served = Server::builder()
        .add_service(registrar)
        .serve_with_incoming_shutdown(incoming, stop.cancelled_owned());
    let _remove = RemoveOnDrop(path);
    Ok(served.await?)
}

/// The registration socket goes even if the server is dropped in mid-call.
struct RemoveOnDrop(PathBuf);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn listen(path: &Path) -> Result<tokio_stream::wrappers::UnixListenerStream, ServeError> {
    socket::listen(path).await.map_err(|source| ServeError::Listen { socket: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use tonic::codegen::http::uri::Authority;

    use super::*;

    #[test]
    fn the_path_that_upstreams_kubelet_sends_as_an_authority_is_one() {
        let sent = |name: &str| format!("/var/lib/kubelet/plugins_registry/{name}").replace('/', "%2F");
        assert!(sent(&registration_socket()).parse::<Authority>().is_ok());
        assert!(
            sent("disk.csi.trine.dev-reg.sock").parse::<Authority>().is_err(),
            "then the name is free to choose"
        );
    }
}

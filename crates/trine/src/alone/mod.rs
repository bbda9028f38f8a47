//! One plane alone: the other side of its contract is somebody else's, a kubelet, a runtime, an API server, sidecars, a suite.
//! The planes of a node may share a data dir: they find each other's sockets in it, and `trine down` stops them all as it stops
//! a cluster.
//!
//! - [`node`] runtime, CSI driver, kubelet, proxy; [`cluster`] scheduler, controllers, CSI controllers, names
//! - [`plugins`] the network plugins, for a runtime that executes them
//! - [`authority`] what a kubeconfig says of the cluster's authority

pub mod authority;
pub mod cluster;
pub mod node;
pub mod plugins;

use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use crate::control;

async fn until_signalled<F: Future<Output = anyhow::Result<()>>>(
    serve: impl FnOnce(CancellationToken) -> F,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let mut served = std::pin::pin!(serve(stop.clone()));
    tokio::select! {
        ended = &mut served => return ended,
        signalled = control::ended() => signalled?,
    }
    stop.cancel();
    served.await
}

/// The path of a `unix://` endpoint; a path alone is one, too.
fn path_of(endpoint: &str) -> anyhow::Result<PathBuf> {
    let path = endpoint.strip_prefix("unix://").or(endpoint.strip_prefix("unix:")).unwrap_or(endpoint);
    anyhow::ensure!(path.starts_with('/'), "{endpoint} is no endpoint: unix:///path/of/the.sock is");
    std::path::absolute(path).with_context(|| endpoint.to_owned())
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The path of an endpoint that may be left out.
fn path_or(endpoint: Option<&String>, default: PathBuf) -> anyhow::Result<PathBuf> {
    endpoint.map_or(Ok(default), |endpoint| path_of(endpoint))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn an_endpoint_is_a_unix_socket_by_an_absolute_path() {
        for endpoint in ["unix:///run/a.sock", "unix:/run/a.sock", "/run/a.sock"] {
            assert_eq!(path_of(endpoint).unwrap(), Path::new("/run/a.sock"), "{endpoint}");
        }
        for endpoint in ["tcp://127.0.0.1:1", "a.sock", "unix://a.sock"] {
            assert!(path_of(endpoint).is_err(), "{endpoint}");
        }
    }
}

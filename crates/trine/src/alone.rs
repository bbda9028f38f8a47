//! `trine cri`, `trine csi-driver`, `trine dns`: one plane alone. The other side of its contract is somebody else's: a kubelet, sidecars, a suite.
//! A data dir belongs to one process, so each has its own; `trine down` stops it as it stops a cluster.

use std::path::PathBuf;

use anyhow::Context;
use tokio_util::sync::CancellationToken;

use crate::cli::args::{CriArgs, CsiDriverArgs, DnsArgs};
use crate::identity::Identity;
use crate::layout::Layout;
use crate::{builtin, control, daemon, node};

/// `trine cri`, until SIGINT or SIGTERM. Its Pods run on after it.
///
/// # Errors
/// If the data dir is in use, or the runtime cannot start.
pub async fn cri(args: &CriArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let _lock = daemon::claim(&layout)?;
    let (identity, _ranges) = Identity::claim(&layout)?;
    builtin::write_network(&layout, &identity.instance, builtin::first_node_range(&identity.pod_cidr)?)?;
    let mut config = node::cri_config(&layout, &identity, &args.registries);
    if let Some(endpoint) = &args.endpoint {
        config.socket = path_of(endpoint)?;
    }
    until_signalled(|stop| async move { Ok(trine_cri::serve(config, stop).await?) }).await
}

/// `trine csi-driver`, until SIGINT or SIGTERM. What is mounted stays.
///
/// # Errors
/// If the data dir is in use, or the driver cannot start.
pub async fn csi_driver(args: &CsiDriverArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let _lock = daemon::claim(&layout)?;
    let (identity, _ranges) = Identity::claim(&layout)?;
    let mut config = node::csi_driver_config(&layout, &identity);
    config.max_volumes = args.max_volumes;
    if let Some(node) = &args.node_id {
        config.node_id.clone_from(node);
    }
    if let Some(endpoint) = &args.endpoint {
        config.socket = path_of(endpoint)?;
    }
    until_signalled(|stop| async move { Ok(trine_csi_driver::serve(config, stop).await?) }).await
}

/// `trine dns`, until SIGINT or SIGTERM.
///
/// # Errors
/// If the kubeconfig cannot be used, or the address cannot be had.
pub async fn dns(args: DnsArgs) -> anyhow::Result<()> {
    let client = trine_typed::client::from_kubeconfig(&args.kubeconfig).await?;
    let config = trine_dns::Config {
        address: args.address,
        port: args.port,
        domain: args.domain,
        resolv_conf: args.resolv_conf,
        announce: args.announce.map(|node| trine_dns::Announcement { node }),
    };
    until_signalled(|stop| async move { Ok(trine_dns::run(client, config, stop).await?) }).await
}

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

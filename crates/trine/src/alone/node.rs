//! `trine cri`, `csi-driver`, `kubelet`, `proxy`, `policy`: what each node has.

use std::sync::Arc;

use anyhow::Context;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use trine_kernel::netlink::Cidrs;
use trine_typed::client::from_kubeconfig;
use trine_typed::k8s_openapi::api::core::v1::Node as NodeObject;
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, Client};
use trine_typed::mirror::Mirror;
use trine_typed::nodes::pod_ranges;

use super::{authority, path_of, path_or, read, until_signalled};
use crate::builtin::{self, Given};
use crate::cli::alone_args::{CriArgs, CsiDriverArgs, KubeletArgs, PolicyArgs, ProxyArgs};
use crate::families::NodeIps;
use crate::identity::Identity;
use crate::layout::Layout;
use crate::node::Pair;
use crate::{agent, daemon, node};

/// `trine cri`, until SIGINT or SIGTERM. Its Pods run on after it. The Pod range is its own choice until a kubelet tells it one.
///
/// # Errors
/// If the data dir is in use, or the runtime cannot start.
pub async fn cri(args: &CriArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let _lock = daemon::claim_plane(&layout, "cri")?;
    let (identity, _ranges) = Identity::claim(&layout)?;
    let range: Cidrs = match &identity.node_range {
        Some(range) => range.parse().context("the node's Pod range")?,
        None => builtin::first_node_range(&identity.pod_cidr.parse().context("the Pod range")?),
    };
    let mtu = identity.node_mtu;
    builtin::write_network(&layout, &identity.instance, Given { range: range.clone(), mtu })?;
    let (told, ranges) = watch::channel(Some(range));
    let mut config = node::cri_config(&layout, &identity, &args.registries);
    config.pod_range = Some(told);
    if let Some(endpoint) = &args.endpoint {
        config.socket = path_of(endpoint)?;
    }
    tokio::spawn(node::follow_given(layout, identity, ranges, watch::channel(mtu).1));
    until_signalled(|stop| async move { Ok(trine_cri::serve(config, stop).await?) }).await
}

/// `trine csi-driver`, until SIGINT or SIGTERM. What is mounted stays.
///
/// # Errors
/// If the data dir is in use, or the driver cannot start.
pub async fn csi_driver(args: &CsiDriverArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let _lock = daemon::claim_plane(&layout, "csi-driver")?;
    let identity = Identity::of_node(&layout, None)?;
    let mut config = node::csi_driver_config(&layout, &identity);
    config.max_volumes = args.max_volumes;
    config.pool = args.pool;
    if let Some(node) = &args.node_id {
        config.node_id.clone_from(node);
    }
    if let Some(endpoint) = &args.endpoint {
        config.socket = path_of(endpoint)?;
    }
    if let Some(dir) = &args.registration_dir {
        config.registration_dir = Some(std::path::absolute(dir)?);
    }
    until_signalled(|stop| async move { Ok(trine_csi_driver::serve(config, stop).await?) }).await
}

/// `trine kubelet`, until SIGINT or SIGTERM. Its Pods run on after it.
///
/// # Errors
/// If the data dir is in use, or the kubeconfig or a certificate cannot be used.
pub async fn kubelet(args: &KubeletArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let _lock = daemon::claim_plane(&layout, "kubelet")?;
    let identity = Identity::of_node(&layout, args.node_name.clone())?;
    let socket = path_or(args.container_runtime_endpoint.as_ref(), layout.cri_socket())?;
    let ips = NodeIps::told(&args.node_ip)?;
    let (client, ca_pem, mut serving) = match &args.kubeconfig {
        Some(path) => {
            let (_, serving) = watch::channel(shown(args, &identity.node)?);
            (from_kubeconfig(path).await?, authority::pem(path)?, serving)
        }
        None => {
            let joined = agent::join(&layout, &identity.node, ips.primary, &args.join).await?;
            (joined.client, joined.ca_pem, joined.serving)
        }
    };
    let (cert, key) = serving.borrow_and_update().clone();
    let config = trine_kubelet::Config {
        log_root: layout.pod_logs(),
        serving_cert_pem: cert,
        serving_key_pem: key,
        serving_next: Some(serving),
        client_ca_pem: args.client_ca_file.as_deref().map_or(Ok(ca_pem), read)?,
        cluster_dns: args.cluster_dns.clone(),
        cluster_domain: args.cluster_domain.clone(),
        cgroup_parent: args.cgroup_root.clone(),
        eviction_hard: args.words.thresholds(),
        logs: args.words.logs(),
        pod_networks: args.words.networks(),
        tell_pod_range: true,
        // Unlike a node of `up`, it does not know the cluster's families: only what it is told.
        other_node_ip: if args.node_ip.is_empty() { None } else { ips.other },
        ..trine_kubelet::Config::new(&identity.node, ips.primary, layout.kubelet(), socket)
    };
    until_signalled(|stop| async move { Ok(trine_kubelet::run(config, client, stop).await?) }).await
}

/// What a kubelet shows that has not joined by a token.
fn shown(args: &KubeletArgs, node: &str) -> anyhow::Result<Pair> {
    match (&args.tls_cert_file, &args.tls_private_key_file) {
        (Some(cert), Some(key)) => Ok((read(cert)?, read(key)?)),
        _ => agent::unsigned(node),
    }
}

/// `trine proxy`, until SIGINT or SIGTERM. What it has set up goes on until `trine down`.
///
/// # Errors
/// If the data dir is in use, or the kubeconfig or a range cannot be used.
pub async fn proxy(args: &ProxyArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let _lock = daemon::claim_plane(&layout, "proxy")?;
    let identity = Identity::of_node(&layout, args.node_name.clone())?;
    let client = from_kubeconfig(&args.kubeconfig).await?;
    let pods: Cidrs = args.cluster_cidr.parse().context("--cluster-cidr")?;
    let services: Cidrs = args.service_cidr.parse().context("--service-cidr")?;
    let config = trine_proxy::Config {
        node_name: identity.node,
        instance: identity.instance,
        ranges: trine_proxy::Ranges::pairs(&pods, &services, None),
        node_ips: NodeIps::told(&args.node_ip)?.all(),
        netns: None,
    };
    until_signalled(|stop| async move {
        let (told, range) = watch::channel(None);
        tokio::spawn(follow_node(client.clone(), config.node_name.clone(), pods, told, stop.clone()));
        Ok(node::proxy(client, config, range, stop).await?)
    })
    .await
}

/// `trine policy`, until SIGINT or SIGTERM. What it has set up goes on until `trine down`.
///
/// # Errors
/// If the data dir is in use, or the kubeconfig cannot be used.
pub async fn policy(args: &PolicyArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let _lock = daemon::claim_plane(&layout, "policy")?;
    let identity = Identity::of_node(&layout, args.node_name.clone())?;
    let client = from_kubeconfig(&args.kubeconfig).await?;
    let config = trine_policy::Config { node_name: identity.node, instance: identity.instance, netns: None };
    until_signalled(|stop| async move { Ok(trine_policy::run(client, config, stop).await?) }).await
}

/// Tells the Pod range that a node is given. A node without one, in a cluster whose network cuts none, has the whole.
async fn follow_node(
    client: Client,
    name: String,
    cluster: Cidrs,
    told: watch::Sender<Option<Cidrs>>,
    stop: CancellationToken,
) {
    let changed = Arc::new(Notify::new());
    let own = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let nodes: Mirror<NodeObject> = Mirror::start(Api::all(client), own, changed.clone(), stop.clone());
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = changed.notified() => {}
        }
        let Some(node) = nodes.get("", &name) else { continue };
        let given = pod_ranges(&node).join(",").parse().ok();
        let range = Some(given.unwrap_or_else(|| cluster.clone()));
        told.send_if_modified(|old| std::mem::replace(old, range.clone()) != range);
    }
}

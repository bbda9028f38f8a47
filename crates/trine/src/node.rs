//! The planes of a node: runtime, storage, kubelet, routes to the other nodes, proxy, policies, names. In `up` beside the control plane,
//! in `agent` alone.

use std::path::PathBuf;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use trine_kernel::netlink::Cidrs;
use trine_proxy::ProxyError;
use trine_typed::kube::Client;

use crate::builtin::{self, Given};
use crate::families::NodeIps;
use crate::identity::Identity;
use crate::layout::Layout;
use crate::node_words::NodeWords;
use crate::planes::{Plane, Planes};
use crate::registries::RegistryArgs;
use crate::settings::Settings;

/// A certificate and its key, both PEM.
pub type Pair = (String, String);

/// What a node is.
pub struct Node {
    /// Its files.
    pub layout: Layout,
    /// Its names. `node_range` is known on a first start of a server, which gives its own node the first range.
    pub identity: Identity,
    /// Its addresses.
    pub ips: NodeIps,
    /// What it knows of the cluster.
    pub settings: Settings,
    /// What the kubelet shows, and shows next.
    pub serving: watch::Receiver<Pair>,
    /// Who signs those that may call the kubelet, PEM.
    pub ca_pem: String,
    /// How it runs.
    pub words: NodeWords,
}

/// Its ways to the API server.
pub struct Ways {
    /// As the node itself.
    pub kubelet: Client,
    /// For Services, endpoints and nodes.
    pub network: Client,
    /// For policies, and the Pods that they judge.
    pub policies: Client,
    /// For names.
    pub names: Client,
    /// For claims and volumes.
    pub volumes: Client,
}

/// Starts the planes of a node.
///
/// # Errors
/// If the network's configuration cannot be written. The planes are supervised.
pub fn start(planes: &Planes, node: Node, ways: Ways) -> anyhow::Result<Vec<Plane>> {
    let range = node.identity.node_range.as_ref().map(|range| range.parse::<Cidrs>()).transpose()?;
    let mtu = node.identity.node_mtu;
    if let Some(range) = range.clone() {
        builtin::write_network(&node.layout, &node.identity.instance, Given { range, mtu })?;
    }
    let (ranges, range) = watch::channel(range);
    let (mtus, mtu) = watch::channel(mtu);
    tokio::spawn(follow_given(node.layout.clone(), node.identity.clone(), range.clone(), mtu));
    let mut started = Vec::new();
    // Before any Pod can be made: one that is made without it is held by nobody.
    let (config, client) = (policy_config(&node), ways.policies);
    started.push(planes.run("policy", move |stop| trine_policy::run(client.clone(), config.clone(), stop)));
    let config = cri_config(&node.layout, &node.identity, &node.words.registries);
    started.push(planes.run("cri", move |stop| trine_cri::serve(config.clone(), stop)));
    let config = csi_driver_config(&node.layout, &node.identity);
    started.push(planes.run("csi-driver", move |stop| trine_csi_driver::serve(config.clone(), stop)));
    let (config, client) = (kubelet_config(&node), ways.kubelet);
    started.push(planes.run("kubelet", move |stop| trine_kubelet::run(config.clone(), client.clone(), stop)));
    let me = overlay_config(&node);
    let (client, told) = (ways.network.clone(), trine_overlay::Told { range: ranges, mtu: mtus });
    started.push(
        planes.run("overlay", move |stop| trine_overlay::run(client.clone(), me.clone(), told.clone(), stop)),
    );
    let (config, client) = (proxy_config(&node), ways.network);
    started.push(planes.run("proxy", move |stop| proxy(client.clone(), config.clone(), range.clone(), stop)));
    let (config, client) = (dns_config(&node), ways.names);
    started.push(planes.run("dns", move |stop| trine_dns::run(client.clone(), config.clone(), stop)));
    let config = trine_csi_controllers::Config {
        socket: node.layout.csi_socket(),
        node_name: Some(node.identity.node.clone()),
        tell_claims: true,
        create_driver_object: false,
    };
    let client = ways.volumes;
    started.push(planes.run("csi-controllers", move |stop| {
        trine_csi_controllers::run(client.clone(), config.clone(), stop)
    }));
    Ok(started)
}

/// Runs the proxy with the node's own range, anew if that changes.
///
/// # Errors
/// What the proxy says.
pub async fn proxy(
    client: Client,
    config: trine_proxy::Config,
    mut range: watch::Receiver<Option<Cidrs>>,
    stop: CancellationToken,
) -> Result<(), ProxyError> {
    loop {
        let known = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            known = range.wait_for(Option::is_some) => known.ok().and_then(|range| range.clone()),
        };
        let end = stop.child_token();
        let config = config.clone().with_node_pods(known.as_ref());
        let mut running = std::pin::pin!(trine_proxy::run(client.clone(), config, end.clone()));
        tokio::select! {
            ended = &mut running => return ended,
            changed = range.changed() => {
                end.cancel();
                let ended = running.await;
                if changed.is_err() || stop.is_cancelled() {
                    return ended;
                }
            }
        }
    }
}

/// Writes the network's configuration, and the same into the identity, whenever the node's Pods are given another range or MTU.
pub async fn follow_given(
    layout: Layout,
    identity: Identity,
    mut range: watch::Receiver<Option<Cidrs>>,
    mut mtu: watch::Receiver<Option<u32>>,
) {
    loop {
        tokio::select! {
            changed = range.changed() => if changed.is_err() { return },
            // Where nobody tells an MTU, this never ends.
            () = told(&mut mtu) => {}
        }
        let Some(range) = range.borrow_and_update().clone() else { continue };
        let mtu = *mtu.borrow_and_update();
        let given = Given { range: range.clone(), mtu };
        let written = builtin::write_network(&layout, &identity.instance, given).and_then(|()| {
            let mut current = Identity::load(&layout)?.unwrap_or_else(|| identity.clone());
            (current.node_range, current.node_mtu) = (Some(range.to_string()), mtu);
            current.save(&layout)
        });
        match written {
            Ok(()) => tracing::info!(%range, mtu, "this node's Pods"),
            Err(error) => tracing::error!("this node's Pod range is not in force: {error:#}"),
        }
    }
}

async fn told<T>(by: &mut watch::Receiver<T>) {
    if by.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn overlay_config(node: &Node) -> trine_overlay::Me {
    trine_overlay::Me {
        instance: node.identity.instance.clone(),
        node: node.identity.node.clone(),
        cluster: node.settings.pod_cidr.iter().collect(),
        mode: node.settings.overlay,
        vni: node.settings.vni,
        checksums: node.settings.checksums,
    }
}

/// The runtime's settings for a data dir.
#[must_use]
pub fn cri_config(layout: &Layout, identity: &Identity, registries: &RegistryArgs) -> trine_cri::Config {
    trine_cri::Config {
        socket: layout.cri_socket(),
        state_dir: layout.cri_state(),
        images_dir: layout.images(),
        cni_conf_dir: layout.cni_conf(),
        cni_bin_dirs: vec![layout.cni_bin()],
        cni_state_dir: layout.cni_state(),
        instance: identity.instance.clone(),
        images: registries.options(layout),
        ..trine_cri::Config::default()
    }
}

/// The built-in driver's settings for a data dir.
#[must_use]
pub fn csi_driver_config(layout: &Layout, identity: &Identity) -> trine_csi_driver::Config {
    trine_csi_driver::Config {
        socket: layout.csi_socket(),
        registration_dir: Some(layout.plugins_registry()),
        pool_dir: layout.pool(),
        pool: trine_csi_driver::PoolKind::Auto,
        node_id: identity.node.clone(),
        max_volumes: trine_csi_driver::DEFAULT_MAX_VOLUMES,
        pool_bytes: None,
    }
}

fn proxy_config(node: &Node) -> trine_proxy::Config {
    trine_proxy::Config {
        node_name: node.identity.node.clone(),
        instance: node.identity.instance.clone(),
        ranges: trine_proxy::Ranges::pairs(
            &node.settings.pod_cidr,
            &node.settings.service_cidr,
            node.settings.nodes_cidr.as_ref(),
        ),
        node_ips: node.ips.all(),
        netns: None,
    }
}

fn policy_config(node: &Node) -> trine_policy::Config {
    trine_policy::Config {
        node_name: node.identity.node.clone(),
        instance: node.identity.instance.clone(),
        netns: None,
    }
}

fn dns_config(node: &Node) -> trine_dns::Config {
    trine_dns::Config {
        address: node.ips.primary,
        port: None,
        domain: node.settings.cluster_domain.clone(),
        resolv_conf: PathBuf::from("/etc/resolv.conf"),
        announce: Some(trine_dns::Announcement { node: node.identity.node.clone() }),
    }
}

fn kubelet_config(node: &Node) -> trine_kubelet::Config {
    let mut next = node.serving.clone();
    let (cert, key) = next.borrow_and_update().clone();
    trine_kubelet::Config {
        node_name: node.identity.node.clone(),
        node_ip: node.ips.primary,
        other_node_ip: node.ips.other,
        root: node.layout.kubelet(),
        log_root: node.layout.pod_logs(),
        cri_socket: node.layout.cri_socket(),
        serving_cert_pem: cert,
        serving_key_pem: key,
        serving_next: Some(next),
        client_ca_pem: node.ca_pem.clone(),
        port: trine_kubelet::config::DEFAULT_PORT,
        cluster_dns: node.settings.cluster_dns.clone(),
        cluster_domain: node.settings.cluster_domain.clone(),
        // The network's configuration is written by this process.
        tell_pod_range: false,
        resolv_conf: PathBuf::from("/etc/resolv.conf"),
        cgroup_parent: String::new(),
        eviction_hard: node.words.kubelet.thresholds(),
        logs: node.words.kubelet.logs(),
        pod_networks: node.words.kubelet.networks(),
        node_labels: Vec::new(),
    }
}

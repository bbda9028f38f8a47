//! What a fresh cluster is given: the built-in network's configuration, and the objects of the built-in driver.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use trine_kernel::netlink::{Cidr, Cidrs};
use trine_typed::kube::{Client, Error};

use crate::layout::Layout;
use crate::settings::Settings;

/// Prefix length of one node's Pod range of IPv4, and of IPv6.
pub const NODE_PREFIX: (u8, u8) = (24, 64);
/// How often, and how far apart, it is tried to make an object of a kind that has just been defined.
const DEFINED_LOOKS: u32 = 150;
const DEFINED_PAUSE: Duration = Duration::from_millis(200);
/// The ServiceAccount of `kube-system` that a node's proxy, routes and volumes are to the API server.
pub const NODE_ACCOUNT: &str = "trine-node";

/// What a node's Pods are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Their range, of each family.
    pub range: Cidrs,
    /// The MTU of their links in bytes, if it is not the kernel's default.
    pub mtu: Option<u32>,
}

/// Writes the built-in network's conflist. It sorts behind any other file, so that another network takes its place by
/// being there.
///
/// # Errors
/// What the file system says.
pub fn write_network(layout: &Layout, instance: &str, given: Given) -> anyhow::Result<()> {
    write_network_to(&layout.cni_conf(), &layout.cni_state(), instance, given).map(drop)
}

/// The same into another folder, for another runtime; addresses are kept in `state`. The file's path.
///
/// # Errors
/// What the file system says.
pub fn write_network_to(dir: &Path, state: &Path, instance: &str, given: Given) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let conflist = trine_cni::default_network(&trine_cni::DefaultNetwork {
        instance,
        pod_cidrs: &given.range.iter().collect::<Vec<_>>(),
        data_dir: state,
        mtu: given.mtu,
    });
    let path = dir.join("90-trine.conflist");
    let fresh = dir.join(".90-trine.new");
    std::fs::write(&fresh, serde_json::to_vec_pretty(&conflist)?)
        .and_then(|()| std::fs::rename(&fresh, &path))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The range that the first node is given out of the cluster's.
#[must_use]
pub fn first_node_range(cluster: &Cidrs) -> Cidrs {
    cluster.map(|range| {
        let prefix = if range.is_v6() { NODE_PREFIX.1 } else { NODE_PREFIX.0 };
        Cidr { addr: range.addr, len: range.len.max(prefix) }
    })
}

/// Creates the built-in StorageClass and CSIDriver, the kinds of snapshots and of further networks, the class of the driver's, the account of node planes
/// and the Service of the name servers if they are missing, and publishes what nodes must know.
///
/// # Errors
/// What the API server says.
pub async fn apply_objects(client: &Client, settings: &Settings) -> anyhow::Result<()> {
    let objects = trine_csi_controllers::objects(trine_csi_driver::DRIVER_NAME);
    let storage = "/apis/storage.k8s.io/v1";
    let account = json!({"metadata": {"name": NODE_ACCOUNT, "namespace": "kube-system"}});
    let all = [
        (format!("{storage}/storageclasses"), json!(objects.class)),
        (format!("{storage}/csidrivers"), json!(objects.driver)),
        ("/api/v1/namespaces/kube-system/serviceaccounts".to_owned(), account),
    ];
    let kinds = trine_csi_controllers::snapshot::definitions();
    let kinds = kinds.into_iter().chain(trine_csi_controllers::group::definitions());
    let kinds = futures::future::try_join_all(kinds.map(|kind| define(client, kind)));
    for (kind, plural, version, mut class) in [
        (
            "VolumeSnapshotClass",
            "volumesnapshotclasses",
            trine_csi_controllers::snapshot::kinds::API_VERSION,
            json!(objects.snapshot_class),
        ),
        (
            "VolumeGroupSnapshotClass",
            "volumegroupsnapshotclasses",
            trine_csi_controllers::group::kinds::API_VERSION,
            json!(objects.group_class),
        ),
    ] {
        class["apiVersion"] = json!(version);
        class["kind"] = json!(kind);
        tokio::spawn(create_when_defined(client.clone(), format!("/apis/{version}/{plural}"), class));
    }
    tokio::spawn(define_networks(client.clone()));
    let names = settings.cluster_dns.iter().map(|address| {
        let path = format!("/api/v1/namespaces/{}/services", trine_dns::announce::NAMESPACE);
        (path, trine_dns::announce::service(&address.to_string()))
    });
    // Together, so that the disk is waited for once.
    let made = futures::future::try_join_all(
        all.into_iter().chain(names).map(|(path, object)| create(client, path, object)),
    );
    tokio::try_join!(made, kinds, settings.publish(client)).map(drop)
}

/// Creates the StorageClass of the built-in driver if it is missing.
///
/// # Errors
/// What the API server says.
pub async fn create_class(client: &Client) -> anyhow::Result<()> {
    let class = json!(trine_csi_controllers::objects(trine_csi_driver::DRIVER_NAME).class);
    create(client, "/apis/storage.k8s.io/v1/storageclasses".to_owned(), class).await
}

/// Defines a kind, unless somebody has. It is kubectl's by name, so that whoever applies the community's definitions with kubectl
/// takes it over without a conflict.
async fn define(client: &Client, kind: Value) -> anyhow::Result<()> {
    let name = kind["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    if client.request::<Value>(http::Request::get(&path).body(Vec::new())?).await.is_ok() {
        return Ok(());
    }
    let request = http::Request::patch(format!("{path}?fieldManager=kubectl"))
        .header("content-type", "application/apply-patch+yaml")
        .body(kind.to_string().into_bytes())?;
    client.request::<Value>(request).await.with_context(|| format!("cannot define {name}")).map(drop)
}

/// Defines the kind by which Pods name further networks, behind the start: nothing of the cluster's own needs it.
async fn define_networks(client: Client) {
    for _ in 0..DEFINED_LOOKS {
        match define(&client, trine_contracts::networks::definition()).await {
            Ok(()) => return,
            Err(error) => tracing::debug!(%error, "networks are defined later"),
        }
        tokio::time::sleep(DEFINED_PAUSE).await;
    }
    tracing::warn!("NetworkAttachmentDefinition could not be defined");
}

/// Creates a class of the driver's snapshots, once its kind is served.
async fn create_when_defined(client: Client, path: String, class: Value) {
    for _ in 0..DEFINED_LOOKS {
        match create(&client, path.clone(), class.clone()).await {
            Ok(()) => return,
            Err(_) => tokio::time::sleep(DEFINED_PAUSE).await,
        }
    }
    tracing::warn!(path, "a class of the driver's snapshots could not be made: its kind is not served");
}

/// One that is there already is left. A Service that is there is refused for its address, not for its name, so whoever is refused looks.
async fn create(client: &Client, path: String, object: Value) -> anyhow::Result<()> {
    let request = http::Request::post(&path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())?;
    let error = match client.request::<Value>(request).await {
        Ok(_) => return Ok(()),
        Err(Error::Api(status)) if status.code == 409 => return Ok(()),
        Err(error) => error,
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let there = http::Request::get(format!("{path}/{name}")).body(Vec::new())?;
    match client.request::<Value>(there).await {
        Ok(_) => Ok(()),
        Err(_) => Err(error).with_context(|| format!("cannot create what is built in at {path}")),
    }
}

//! What a fresh cluster is given: the built-in network's configuration, and the objects of the built-in driver.

use anyhow::Context;
use serde_json::{Value, json};
use trine_kernel::netlink::Cidr;
use trine_typed::kube::{Client, Error};

use crate::identity::Identity;
use crate::layout::Layout;

/// Prefix length of one node's Pod range.
pub const NODE_PREFIX: u8 = 24;

/// Writes the built-in network's conflist. It sorts behind any other file, so that another network takes its place by
/// being there.
///
/// # Errors
/// What the file system says.
pub fn write_network(layout: &Layout, identity: &Identity) -> anyhow::Result<()> {
    let dir = layout.cni_conf();
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let conflist = trine_cni::default_network(&trine_cni::DefaultNetwork {
        instance: &identity.instance,
        pod_cidrs: &[first_node_range(&identity.pod_cidr)?],
        data_dir: &layout.cni_state(),
        mtu: None,
    });
    let path = dir.join("90-trine.conflist");
    let fresh = dir.join(".90-trine.new");
    std::fs::write(&fresh, serde_json::to_vec_pretty(&conflist)?)
        .and_then(|()| std::fs::rename(&fresh, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The range that the first node is given out of the cluster's.
fn first_node_range(cluster: &str) -> anyhow::Result<Cidr> {
    let cluster: Cidr = cluster.parse().context("the Pod range")?;
    Ok(Cidr { addr: cluster.addr, len: cluster.len.max(NODE_PREFIX) })
}

/// Creates the built-in StorageClass and CSIDriver if they are missing.
///
/// # Errors
/// What the API server says.
pub async fn apply_objects(client: &Client) -> anyhow::Result<()> {
    let objects = trine_csi_controllers::objects(trine_csi_driver::DRIVER_NAME);
    for (path, object) in [("storageclasses", json!(objects.class)), ("csidrivers", json!(objects.driver))] {
        let request = http::Request::post(format!("/apis/storage.k8s.io/v1/{path}"))
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())?;
        match client.request::<Value>(request).await {
            Ok(_) => {}
            Err(Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).with_context(|| format!("cannot create the built-in {path}")),
        }
    }
    Ok(())
}

//! NodeVolumeLimits: a CSI driver may cap the volumes of a node.

use std::collections::{BTreeMap, BTreeSet};

use crate::framework::Rejection;
use crate::pod_info::PodInfo;
use crate::snapshot::{NodeInfo, Snapshot};

/// # Errors
/// A driver's limit would be passed.
pub fn filter(wanted: &[(String, String)], node: &NodeInfo, snapshot: &Snapshot) -> Result<(), Rejection> {
    if !wanted.iter().any(|(driver, _)| limit(node, driver, snapshot).is_some()) {
        return Ok(());
    }
    let mut placed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (driver, handle) in node.pods.iter().flat_map(|p| volumes_by_driver(p, snapshot)) {
        placed.entry(driver).or_default().insert(handle);
    }
    for (driver, handle) in wanted {
        let handles = placed.entry(driver.clone()).or_default();
        handles.insert(handle.clone());
        if limit(node, driver, snapshot).is_some_and(|max| handles.len() > max) {
            return Err(Rejection::passing("node(s) exceed max volume count"));
        }
    }
    Ok(())
}

fn limit(node: &NodeInfo, driver: &str, snapshot: &Snapshot) -> Option<usize> {
    let drivers = &snapshot.csi_nodes.get(node.name())?.spec.drivers;
    let count = drivers.iter().find(|d| d.name == driver)?.allocatable.as_ref()?.count?;
    usize::try_from(count).ok()
}

/// The driver and the handle of each volume of a Pod that is bound.
#[must_use]
pub fn volumes_by_driver(pod: &PodInfo, snapshot: &Snapshot) -> Vec<(String, String)> {
    let namespace = pod.pod.metadata.namespace.as_deref().unwrap_or_default();
    let claims = pod.claims.iter().filter_map(|name| snapshot.claim(namespace, name));
    claims
        .filter_map(|claim| {
            let volume = claim.spec.as_ref()?.volume_name.as_ref()?;
            let csi = snapshot.volumes.get(volume)?.spec.as_ref()?.csi.as_ref()?;
            Some((csi.driver.clone(), csi.volume_handle.clone()))
        })
        .collect()
}

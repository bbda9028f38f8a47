//! Which volume a claim may get. Scheduler and volume binder have to agree. Source: upstream's `volume.FindMatchingVolume`.

use crate::placement::labels_match;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use trine_objects::quantity::Quantity;

/// Set on a claim when scheduler or user chose its volume and the binder has finished.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Set on a claim by the scheduler: provision for this node.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The provisioner of classes whose volumes are made by hand.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The size of a volume, in thousandths of a byte.
#[must_use]
pub fn capacity(volume: &PersistentVolume) -> i128 {
    let storage = volume.spec.as_ref().and_then(|s| s.capacity.as_ref()).and_then(|c| c.get("storage"));
    storage.map(amount).unwrap_or_default()
}

fn amount(quantity: &Text) -> i128 {
    quantity.0.parse::<Quantity>().map(|q| q.milli()).unwrap_or_default()
}

/// A volume that is available, and of the class, mode, labels, access and size that the claim asks for. Whose it is already
/// is for the caller to see.
#[must_use]
pub fn fits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(have), Some(want)) = (&volume.spec, &claim.spec) else { return false };
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let class = |class: &Option<String>| class.clone().unwrap_or_default();
    let asked = want.resources.as_ref().and_then(|r| r.requests.as_ref()).and_then(|r| r.get("storage"));
    let offered = have.access_modes.as_deref().unwrap_or_default();
    volume.metadata.deletion_timestamp.is_none()
        && volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Available")
        && class(&have.storage_class_name) == class(&want.storage_class_name)
        && mode(&have.volume_mode) == mode(&want.volume_mode)
        && want.selector.as_ref().is_none_or(|s| labels_match(s, volume.metadata.labels.as_ref()))
        && want.access_modes.iter().flatten().all(|m| offered.contains(m))
        && asked.is_none_or(|q| capacity(volume) >= amount(q))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_volume_fits_by_class_size_access_and_labels() {
        let volume = json!({"metadata": {"name": "v", "labels": {"disk": "fast"}}, "spec": {"storageClassName": "c",
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}, "status": {"phase": "Available"}});
        let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
        let fits = |spec: serde_json::Value| {
            fits(&volume, &serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": spec})).unwrap())
        };
        let class = "c";
        let size = |s: &str| json!({"requests": {"storage": s}});
        assert!(fits(
            json!({"storageClassName": class, "resources": size("1Gi"), "accessModes": ["ReadWriteOnce"]})
        ));
        assert!(fits(json!({"storageClassName": class, "selector": {"matchLabels": {"disk": "fast"}}})));
        assert!(fits(json!({"storageClassName": class, "selector": {"matchExpressions": [
            {"key": "disk", "operator": "In", "values": ["fast"]}]}})));
        for bad in [
            json!({}),
            json!({"storageClassName": class, "resources": size("2Gi")}),
            json!({"storageClassName": class, "accessModes": ["ReadWriteMany"]}),
            json!({"storageClassName": class, "volumeMode": "Block"}),
            json!({"storageClassName": class, "selector": {"matchLabels": {"disk": "slow"}}}),
            json!({"storageClassName": class, "selector": {"matchExpressions": [{"key": "disk", "operator": "DoesNotExist"}]}}),
        ] {
            assert!(!fits(bad.clone()), "{bad}");
        }
    }
}

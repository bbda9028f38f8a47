//! A claim as a `CreateVolume` request, and the driver's answer as a PersistentVolume. Pure.

use std::collections::{BTreeMap, HashMap};

use trine_contracts::csi;
use trine_contracts::csi::volume_capability::access_mode::Mode;
use trine_contracts::csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use trine_objects::quantity::Quantity;
use trine_typed::k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeSpec, SecretReference,
};
use trine_typed::k8s_openapi::api::storage::v1::StorageClass;
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::plan::{PROVISIONED_BY, VOLUME_FINALIZER, volume_name};
use super::topology::affinity;
use crate::driver::Offers;
use crate::secrets::{Of, Purpose, named};

/// Parameters under this prefix are for the provisioner, not for the driver.
const PREFIX: &str = "csi.storage.k8s.io/";
/// Annotations of a volume that say which secret its end needs; upstream writes them even if there is none.
pub(super) const DELETION_SECRET: &str = "volume.kubernetes.io/provisioner-deletion-secret-";
const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
const OLD_FS_TYPE: &str = "fstype";

/// The capability of one access mode.
#[must_use]
pub fn capability(
    access_mode: &str,
    block: bool,
    fs_type: &str,
    mount_flags: &[String],
    offers: &Offers,
) -> csi::VolumeCapability {
    let mode = match (access_mode, offers.single_node_multi_writer) {
        ("ReadWriteOnce", true) => Mode::SingleNodeMultiWriter,
        ("ReadWriteOncePod", true) => Mode::SingleNodeSingleWriter,
        ("ReadWriteOnce" | "ReadWriteOncePod", false) => Mode::SingleNodeWriter,
        ("ReadOnlyMany", _) => Mode::MultiNodeReaderOnly,
        ("ReadWriteMany", _) => Mode::MultiNodeMultiWriter,
        _ => Mode::Unknown,
    };
    let access_type = if block {
        AccessType::Block(BlockVolume {})
    } else {
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: mount_flags.to_vec(),
            volume_mount_group: String::new(),
        })
    };
    csi::VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(access_type),
    }
}

/// The request for `claim`.
///
/// # Errors
/// Text for the event.
pub fn create(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    offers: &Offers,
    topology: Option<csi::TopologyRequirement>,
    tell_claim: bool,
) -> Result<csi::CreateVolumeRequest, String> {
    let spec = claim.spec.as_ref().ok_or("the claim has no spec")?;
    let resources = spec.resources.as_ref();
    let requests = resources.and_then(|r| r.requests.as_ref());
    let limits = resources.and_then(|r| r.limits.as_ref());
    let required = bytes(requests)?.ok_or("the claim asks for no storage")?;
    let fs_type = fs_type(class)?;
    let block = spec.volume_mode.as_deref() == Some("Block");
    let flags = class.mount_options.clone().unwrap_or_default();
    let modes = spec.access_modes.iter().flatten();
    let mut parameters: HashMap<String, String> = HashMap::new();
    for (key, value) in class.parameters.iter().flatten() {
        if !key.starts_with(PREFIX) && key != OLD_FS_TYPE {
            parameters.insert(key.clone(), value.clone());
        }
    }
    if tell_claim {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        parameters.insert(format!("{PREFIX}pvc/name"), text(&claim.metadata.name));
        parameters.insert(format!("{PREFIX}pvc/namespace"), text(&claim.metadata.namespace));
        parameters.insert(format!("{PREFIX}pv/name"), volume_name(claim));
    }
    Ok(csi::CreateVolumeRequest {
        name: volume_name(claim),
        capacity_range: Some(csi::CapacityRange {
            required_bytes: required,
            limit_bytes: bytes(limits)?.unwrap_or_default(),
        }),
        volume_capabilities: modes.map(|mode| capability(mode, block, &fs_type, &flags, offers)).collect(),
        parameters,
        accessibility_requirements: topology,
        ..Default::default()
    })
}

fn fs_type(class: &StorageClass) -> Result<String, String> {
    let get = |key: &str| class.parameters.as_ref().and_then(|p| p.get(key));
    match (get(FS_TYPE), get(OLD_FS_TYPE)) {
        (Some(_), Some(_)) => {
            Err(format!("StorageClass parameters {FS_TYPE:?} and {OLD_FS_TYPE:?} are both set"))
        }
        (named, old) => Ok(named.or(old).cloned().unwrap_or_default()),
    }
}

fn bytes(amounts: Option<&BTreeMap<String, ApiQuantity>>) -> Result<Option<i64>, String> {
    let Some(amount) = amounts.and_then(|a| a.get("storage")) else { return Ok(None) };
    let wrong = || format!("{:?} is not a size", amount.0);
    let parsed: Quantity = amount.0.parse().map_err(|_| wrong())?;
    i64::try_from(parsed.value()).map(Some).map_err(|_| wrong())
}

/// The PersistentVolume for the driver's answer to `request`.
#[must_use]
pub fn persistent_volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    request: &csi::CreateVolumeRequest,
    volume: &csi::Volume,
    driver: &str,
) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let asked = request.capacity_range.as_ref().map_or(0, |r| r.required_bytes);
    // A driver that does not say how large the volume is made it as large as asked.
    let size = if volume.capacity_bytes == 0 { asked } else { volume.capacity_bytes };
    let fs_type = request.volume_capabilities.iter().find_map(|c| match &c.access_type {
        Some(AccessType::Mount(mount)) if !mount.fs_type.is_empty() => Some(mount.fs_type.clone()),
        _ => None,
    });
    let mut attributes: BTreeMap<String, String> =
        volume.volume_context.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    attributes.insert("storage.kubernetes.io/csiProvisionerIdentity".to_owned(), driver.to_owned());
    let of = Of::claim(claim, &volume_name(claim));
    let secret = |purpose| named(class.parameters.as_ref(), purpose, &of);
    let reference = |purpose| {
        secret(purpose)
            .map(|(name, namespace)| SecretReference { name: Some(name), namespace: Some(namespace) })
    };
    let (name, namespace) = secret(Purpose::Provision).unwrap_or_default();
    let annotations = BTreeMap::from([
        (PROVISIONED_BY.to_owned(), driver.to_owned()),
        (format!("{DELETION_SECRET}name"), name),
        (format!("{DELETION_SECRET}namespace"), namespace),
    ]);
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(volume_name(claim)),
            annotations: Some(annotations),
            finalizers: Some(vec![VOLUME_FINALIZER.to_owned()]),
            ..Default::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: Some(BTreeMap::from([(
                "storage".to_owned(),
                ApiQuantity(Quantity::from_bytes(size.unsigned_abs()).to_string()),
            )])),
            claim_ref: Some(claim_ref(claim)),
            csi: Some(CSIPersistentVolumeSource {
                driver: driver.to_owned(),
                volume_handle: volume.volume_id.clone(),
                fs_type,
                volume_attributes: Some(attributes),
                controller_publish_secret_ref: reference(Purpose::ControllerPublish),
                node_stage_secret_ref: reference(Purpose::NodeStage),
                node_publish_secret_ref: reference(Purpose::NodePublish),
                controller_expand_secret_ref: reference(Purpose::ControllerExpand),
                node_expand_secret_ref: reference(Purpose::NodeExpand),
                ..Default::default()
            }),
            mount_options: class.mount_options.clone().filter(|o| !o.is_empty()),
            node_affinity: affinity(&volume.accessible_topology),
            persistent_volume_reclaim_policy: Some(
                class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned()),
            ),
            storage_class_name: class.metadata.name.clone(),
            // Of the volume that was made, not of what the claim may say by now.
            volume_attributes_class_name: spec.volume_attributes_class_name.filter(|name| !name.is_empty()),
            volume_mode: Some(spec.volume_mode.unwrap_or_else(|| "Filesystem".to_owned())),
            ..Default::default()
        }),
        status: None,
    }
}

fn claim_ref(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    }
}

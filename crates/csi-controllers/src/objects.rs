//! The API objects of a driver of ours.

use std::collections::BTreeMap;

use crate::group;
use crate::group::kinds::VolumeGroupSnapshotClass;
use crate::snapshot::kinds::VolumeSnapshotClass;
use crate::snapshot::plan::DEFAULT_CLASS;
use trine_typed::k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, StorageClass};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The StorageClass of the built-in driver, and the class of its snapshots.
pub const CLASS_NAME: &str = "trine-disk";

/// What `kubectl get csidrivers,storageclasses` shows of a driver.
#[derive(Debug, Clone, PartialEq)]
pub struct Objects {
    /// How kubelet and controllers treat the driver.
    pub driver: CSIDriver,
    /// The default class: its volumes are made where the Pod will run.
    pub class: StorageClass,
    /// The default class of its snapshots.
    pub snapshot_class: VolumeSnapshotClass,
    /// The default class of snapshots of several volumes.
    pub group_class: VolumeGroupSnapshotClass,
}

/// The objects of `driver`.
#[must_use]
pub fn objects(driver: &str) -> Objects {
    let spec = CSIDriverSpec {
        attach_required: Some(true),
        // So that the driver's steps carry the Pod's name.
        pod_info_on_mount: Some(true),
        // The claim need not name a file system, so the kubelet must not make ownership depend on that.
        fs_group_policy: Some("File".to_owned()),
        // Set once CSIStorageCapacity objects are kept.
        storage_capacity: Some(false),
        requires_republish: Some(false),
        se_linux_mount: Some(false),
        volume_lifecycle_modes: Some(vec!["Persistent".to_owned()]),
        ..Default::default()
    };
    let default = ("storageclass.kubernetes.io/is-default-class".to_owned(), "true".to_owned());
    let class = StorageClass {
        metadata: ObjectMeta {
            name: Some(CLASS_NAME.to_owned()),
            annotations: Some(BTreeMap::from([default])),
            ..Default::default()
        },
        provisioner: driver.to_owned(),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        allow_volume_expansion: Some(true),
        ..Default::default()
    };
    let metadata = ObjectMeta { name: Some(driver.to_owned()), ..Default::default() };
    let snapshot_class = VolumeSnapshotClass {
        metadata: ObjectMeta {
            name: Some(CLASS_NAME.to_owned()),
            annotations: Some(BTreeMap::from([(DEFAULT_CLASS.to_owned(), "true".to_owned())])),
            ..Default::default()
        },
        driver: driver.to_owned(),
        parameters: None,
        deletion_policy: "Delete".to_owned(),
    };
    let group_class = VolumeGroupSnapshotClass {
        metadata: ObjectMeta {
            name: Some(CLASS_NAME.to_owned()),
            annotations: Some(BTreeMap::from([(group::plan::DEFAULT_CLASS.to_owned(), "true".to_owned())])),
            ..Default::default()
        },
        driver: driver.to_owned(),
        parameters: None,
        deletion_policy: "Delete".to_owned(),
    };
    Objects { driver: CSIDriver { metadata, spec }, class, snapshot_class, group_class }
}

//! The kinds of `snapshot.storage.k8s.io`, as far as these controllers read and write them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use trine_typed::k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use trine_typed::kube::Resource;

/// The group.
pub const GROUP: &str = "snapshot.storage.k8s.io";
/// Its version.
pub const VERSION: &str = "v1";
/// Both, as objects have them.
pub const API_VERSION: &str = "snapshot.storage.k8s.io/v1";

macro_rules! kind {
    ($group:expr, $version:expr, $kind:ident, $plural:literal, $scope:ty) => {
        impl Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use kind;

kind!(GROUP, VERSION, VolumeSnapshot, "volumesnapshots", NamespaceResourceScope);
kind!(GROUP, VERSION, VolumeSnapshotContent, "volumesnapshotcontents", ClusterResourceScope);
kind!(GROUP, VERSION, VolumeSnapshotClass, "volumesnapshotclasses", ClusterResourceScope);

/// What a user asks for: a snapshot of a claim, or one that is there already.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshot {
    /// Name and the rest.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: SnapshotSpec,
    /// What is there.
    pub status: Option<SnapshotStatus>,
}

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSpec {
    /// Of what.
    pub source: SnapshotSource,
    /// How; the driver's default class if it is not said.
    pub volume_snapshot_class_name: Option<String>,
}

/// One of both.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSource {
    /// A claim of the same namespace.
    pub persistent_volume_claim_name: Option<String>,
    /// A content that somebody has made.
    pub volume_snapshot_content_name: Option<String>,
}

/// What is there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotStatus {
    /// Its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// When it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// Whether volumes can be made of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The least size of such a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
    /// The group that it was taken in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_name: Option<String>,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
}

/// Why, and when it was so.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SnapshotError {
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The snapshot at the driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContent {
    /// Name and the rest.
    pub metadata: ObjectMeta,
    /// Whose, of what.
    pub spec: ContentSpec,
    /// What the driver says.
    pub status: Option<ContentStatus>,
}

/// Whose, of what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentSpec {
    /// Which snapshot it is for.
    pub volume_snapshot_ref: SnapshotRef,
    /// `Delete`, or `Retain`: whether the driver's snapshot goes with it.
    pub deletion_policy: String,
    /// The driver.
    pub driver: String,
    /// Its class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    /// What it is taken of, or the driver's handle of one that is there.
    pub source: ContentSource,
    /// The mode of the volume that it is taken of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
}

/// The snapshot that a content is for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotRef {
    /// Its group and version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// `VolumeSnapshot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its uid; not there until both are bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Which state of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

/// One of both.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentSource {
    /// The driver's handle of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
    /// The driver's handle of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
}

/// What the driver says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentStatus {
    /// Its handle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// When it was taken, nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// The least size of a volume made of it, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    /// Whether volumes can be made of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The driver's handle of the group that it was taken in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_handle: Option<String>,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
}

/// How a driver's snapshots are taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotClass {
    /// Name and the rest.
    pub metadata: ObjectMeta,
    /// The driver.
    pub driver: String,
    /// What the driver is told.
    pub parameters: Option<BTreeMap<String, String>>,
    /// `Delete` or `Retain`.
    pub deletion_policy: String,
}

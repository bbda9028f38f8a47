//! The kinds of `groupsnapshot.storage.k8s.io`, as far as these controllers read and write them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use trine_typed::k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use trine_typed::kube::Resource;

use crate::snapshot::kinds::{SnapshotError, SnapshotRef, kind};

/// The group.
pub const GROUP: &str = "groupsnapshot.storage.k8s.io";
/// Its version.
pub const VERSION: &str = "v1";
/// Both, as objects have them.
pub const API_VERSION: &str = "groupsnapshot.storage.k8s.io/v1";

kind!(GROUP, VERSION, VolumeGroupSnapshot, "volumegroupsnapshots", NamespaceResourceScope);
kind!(GROUP, VERSION, VolumeGroupSnapshotContent, "volumegroupsnapshotcontents", ClusterResourceScope);
kind!(GROUP, VERSION, VolumeGroupSnapshotClass, "volumegroupsnapshotclasses", ClusterResourceScope);

/// What a user asks for: a snapshot of the claims with some labels, or one that is there already.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeGroupSnapshot {
    /// Name and the rest.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: GroupSpec,
    /// What is there.
    pub status: Option<GroupStatus>,
}

/// What is asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSpec {
    /// Of what.
    pub source: GroupSource,
    /// How; the driver's default class if it is not said.
    pub volume_group_snapshot_class_name: Option<String>,
}

/// One of both.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSource {
    /// Claims of the same namespace.
    pub selector: Option<LabelSelector>,
    /// A content that somebody has made.
    pub volume_group_snapshot_content_name: Option<String>,
}

/// What is there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupStatus {
    /// Its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_group_snapshot_content_name: Option<String>,
    /// When it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// Whether volumes can be made of all its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
}

/// The group of snapshots at the driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeGroupSnapshotContent {
    /// Name and the rest.
    pub metadata: ObjectMeta,
    /// Whose, of what.
    pub spec: GroupContentSpec,
    /// What the driver says.
    pub status: Option<GroupContentStatus>,
}

/// Whose, of what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupContentSpec {
    /// Which group it is for.
    pub volume_group_snapshot_ref: SnapshotRef,
    /// `Delete`, or `Retain`: whether the driver's snapshots go with it.
    pub deletion_policy: String,
    /// The driver.
    pub driver: String,
    /// Its class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_class_name: Option<String>,
    /// What it is taken of, or the driver's handles of one that is there.
    pub source: GroupContentSource,
}

/// One of both.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupContentSource {
    /// The driver's handles of the volumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handles: Option<Vec<String>>,
    /// The driver's handles of snapshots that are there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_snapshot_handles: Option<Handles>,
}

/// The driver's handles of a group and of its members.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Handles {
    /// The group's.
    pub volume_group_snapshot_handle: String,
    /// Its members'.
    pub volume_snapshot_handles: Vec<String>,
}

/// What the driver says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupContentStatus {
    /// Its handle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_group_snapshot_handle: Option<String>,
    /// When it was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// Whether volumes can be made of all its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
    /// Its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_info_list: Option<Vec<Info>>,
}

/// What the driver says of a member.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Info {
    /// The driver's handle of the volume.
    pub volume_handle: String,
    /// The driver's handle of the snapshot.
    pub snapshot_handle: String,
    /// When it was taken, nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// Whether volumes can be made of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The least size of a volume made of it, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
}

/// How a driver's groups are taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeGroupSnapshotClass {
    /// Name and the rest.
    pub metadata: ObjectMeta,
    /// The driver.
    pub driver: String,
    /// What the driver is told.
    pub parameters: Option<BTreeMap<String, String>>,
    /// `Delete` or `Retain`.
    pub deletion_policy: String,
}

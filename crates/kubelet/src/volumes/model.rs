//! Desired and actual state of all volumes on this node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::Pod;

use super::source::Source;
use super::tokens::Wish;

/// A volume of one Pod on disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountKey {
    /// The Pod.
    pub uid: String,
    /// Folder name of the kind.
    pub plugin: String,
    /// The volume's name, or the PV's.
    pub spec: String,
    /// Whether it is a raw device.
    pub block: bool,
}

/// A volume of a driver on this node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceKey {
    /// The driver's name.
    pub driver: String,
    /// The driver's handle.
    pub handle: String,
}

/// What is known of a driver's volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// The PV; of an inline volume its name in the Pod.
    pub pv: String,
    /// namespace/name of the claim.
    pub claim: String,
    /// The driver's name.
    pub driver: String,
    /// The driver's handle.
    pub handle: String,
    /// File system to be found or made; empty is the driver's choice.
    pub fs_type: String,
    /// PV access modes.
    pub access_modes: Vec<String>,
    /// Mounted for reading only.
    pub read_only: bool,
    /// volume_context.
    pub attributes: BTreeMap<String, String>,
    /// Mount options.
    pub mount_options: Vec<String>,
    /// Raw block.
    pub block: bool,
    /// Secret for NodeStage, namespace and name.
    pub stage_secret: Option<(String, String)>,
    /// Secret for NodePublish.
    pub publish_secret: Option<(String, String)>,
    /// Whether a VolumeAttachment must exist and be attached.
    pub attach: bool,
    /// CSIDriver.spec.fsGroupPolicy.
    pub fs_group_policy: String,
    /// CSIDriver.spec.podInfoOnMount.
    pub pod_info: bool,
    /// It lives as long as the Pod, whose spec describes it.
    pub inline: bool,
    /// CSIDriver.spec.tokenRequests.
    pub tokens: Vec<Wish>,
    /// These go with the secrets (`serviceAccountTokenInSecrets`), not with the context.
    pub tokens_in_secrets: bool,
    /// CSIDriver.spec.requiresRepublish: published again each time that files from the API are looked at again.
    pub republish: bool,
}

impl Resolved {
    /// Its device.
    #[must_use]
    pub fn device(&self) -> DeviceKey {
        DeviceKey { driver: self.driver.clone(), handle: self.handle.clone() }
    }

    /// Whether one Pod alone may use it. With other modes beside it nobody knows which one is meant.
    #[must_use]
    pub fn is_for_one_pod(&self) -> bool {
        self.access_modes == ["ReadWriteOncePod"]
    }
}

/// A volume that a Pod wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name in the Pod.
    pub volume: String,
    /// Its kind.
    pub source: Source,
    /// Of a claim, once it is known.
    pub resolved: Option<Resolved>,
    /// Whether its files are due to be looked at again.
    pub stale: bool,
}

impl Wanted {
    /// Where it will be; `None` for a claim that is not resolved.
    #[must_use]
    pub fn key(&self, uid: &str) -> Option<MountKey> {
        let (spec, block) = match (self.source, &self.resolved) {
            (Source::Claim, Some(r)) => (r.pv.clone(), r.block),
            (Source::Claim, None) => return None,
            _ => (self.volume.clone(), false),
        };
        Some(MountKey { uid: uid.to_owned(), plugin: self.source.plugin().to_owned(), spec, block })
    }
}

/// How sure a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// It may be there: it must be made again before use, and taken down before it is given up.
    Uncertain,
    /// It is there.
    Sure,
}

/// Something of a Pod that is, or may be, mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// How sure.
    pub certainty: Certainty,
    /// The driver's volume behind it.
    pub device: Option<DeviceKey>,
    /// What containers get.
    pub host_path: PathBuf,
}

/// A driver's volume that is, or may be, staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// How sure.
    pub certainty: Certainty,
    /// staging_target_path.
    pub path: PathBuf,
    /// The PV, if known.
    pub pv: String,
    /// Raw block.
    pub block: bool,
    /// Whether the controller attaches it.
    pub attach: bool,
}

/// What is wanted.
#[derive(Debug, Clone, Default)]
pub struct Desired {
    /// By Pod UID.
    pub pods: BTreeMap<String, Vec<Wanted>>,
    /// Whether all Pods are in; before, nothing is taken down.
    pub complete: bool,
    /// Pods whose containers may still run: nothing of them is taken down, wanted or not.
    pub held: BTreeSet<String>,
}

/// What is there.
#[derive(Debug, Clone, Default)]
pub struct Actual {
    /// By Pod and volume.
    pub mounts: BTreeMap<MountKey, Mount>,
    /// By driver and handle.
    pub devices: BTreeMap<DeviceKey, Device>,
    /// Attached volumes, with what the attacher said of them.
    pub attached: BTreeMap<DeviceKey, BTreeMap<String, String>>,
}

/// What an operation locks: one at a time for each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lock {
    /// Looking up a claim.
    Claim(String, String),
    /// A volume of one Pod.
    Mount(MountKey),
    /// A driver's volume.
    Device(DeviceKey),
}

/// Volumes in use on this node, by their name in the Node's status.
#[must_use]
pub fn in_use(desired: &Desired, actual: &Actual) -> BTreeSet<String> {
    let wanted = desired
        .pods
        .values()
        .flatten()
        .filter_map(|w| w.resolved.as_ref())
        .filter(|r| r.attach)
        .map(|r| super::paths::unique(&r.driver, &r.handle));
    let there = actual
        .devices
        .iter()
        .filter(|(_, d)| d.attach)
        .map(|(key, _)| super::paths::unique(&key.driver, &key.handle));
    wanted.chain(there).collect()
}

/// A volume of a claim that is mounted.
#[derive(Debug, Clone, PartialEq)]
pub struct MountedClaim {
    /// The Pod.
    pub pod: Arc<Pod>,
    /// What is known of the volume.
    pub resolved: Resolved,
    /// The Pod's UID.
    pub uid: String,
    /// Namespace of the Pod and of the claim.
    pub namespace: String,
    /// The claim's name.
    pub claim: String,
    /// The volume's name in the Pod.
    pub volume: String,
    /// Where it is.
    pub path: PathBuf,
}

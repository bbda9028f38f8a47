//! What a request asks for, read once into our own terms.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use trine_contracts::csi::volume_capability::AccessType;
use trine_contracts::csi::volume_capability::access_mode::Mode;
use trine_contracts::csi::volume_content_source::Type;
use trine_contracts::csi::{TopologyRequirement, VolumeCapability, VolumeContentSource};
use trine_kernel::filesystem::Kind;

use crate::config::TOPOLOGY_KEY;
use crate::error::Cause;
use crate::record::Source;

/// The longest name of the contract, bytes.
const MAX_NAME: usize = 128;

/// Parameters under this prefix speak of Kubernetes objects and change nothing about the volume.
const DESCRIPTIVE_PREFIX: &str = "csi.storage.k8s.io/";

/// How a volume is to be reached over its life: what `CreateVolume` said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// As a raw device.
    pub block: bool,
    /// As a folder.
    pub mount: bool,
    /// With this file system; none means that the driver chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<Kind>,
}

/// One capability: how a volume is to be reached now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// As a raw device, not as a folder.
    pub block: bool,
    /// With this file system; none means that the driver chooses.
    pub filesystem: Option<Kind>,
    /// Mount options.
    pub options: Vec<String>,
    /// Only one target may exist on the node.
    pub exclusive: bool,
    /// For reading only.
    pub readonly: bool,
}

impl Asked {
    /// Reads one capability.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is incomplete or not offered.
    pub fn read(capability: Option<&VolumeCapability>) -> Result<Self, Cause> {
        let capability = capability.ok_or_else(|| Cause::Invalid("no volume capability".to_owned()))?;
        let mode = capability.access_mode.as_ref().map_or(Mode::Unknown, |m| m.mode());
        let (exclusive, readonly) = match mode {
            Mode::SingleNodeWriter | Mode::SingleNodeSingleWriter => (true, false),
            Mode::SingleNodeMultiWriter => (false, false),
            Mode::SingleNodeReaderOnly => (false, true),
            Mode::Unknown => return Err(Cause::Invalid("no access mode".to_owned())),
            Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => {
                let text =
                    format!("access mode {} is not offered: a volume is on one node", mode.as_str_name());
                return Err(Cause::Invalid(text));
            }
        };
        match &capability.access_type {
            None => Err(Cause::Invalid("neither mount nor block access".to_owned())),
            Some(AccessType::Block(_)) => {
                Ok(Self { block: true, filesystem: None, options: Vec::new(), exclusive, readonly })
            }
            Some(AccessType::Mount(mount)) => {
                let filesystem = match mount.fs_type.as_str() {
                    "" => None,
                    name => Some(Kind::from_name(name).ok_or_else(|| {
                        Cause::Invalid(format!("fsType {name:?} is not offered (xfs and ext4 are)"))
                    })?),
                };
                let options = mount.mount_flags.clone();
                Ok(Self { block: false, filesystem, options, exclusive, readonly })
            }
        }
    }
}

impl Access {
    /// Reads the capabilities of a new volume, all of which it must have.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`.
    pub fn read(capabilities: &[VolumeCapability]) -> Result<Self, Cause> {
        if capabilities.is_empty() {
            return Err(Cause::Invalid("no volume capabilities".to_owned()));
        }
        let mut access = Self { block: false, mount: false, filesystem: None };
        for capability in capabilities {
            let asked = Asked::read(Some(capability))?;
            access.block |= asked.block;
            access.mount |= !asked.block;
            match (access.filesystem, asked.filesystem) {
                (Some(a), Some(b)) if a != b => {
                    return Err(Cause::Invalid(format!("both {a} and {b} are asked for")));
                }
                (_, named) => access.filesystem = access.filesystem.or(named),
            }
        }
        Ok(access)
    }
}

/// Checks the parameters of a StorageClass: this driver has none of its own.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn check_parameters<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<(), Cause> {
    match names.into_iter().find(|name| !name.starts_with(DESCRIPTIVE_PREFIX)) {
        Some(name) => Err(Cause::Invalid(format!("unknown parameter {name:?}: this driver has none"))),
        None => Ok(()),
    }
}

/// What a new volume is to be copied from.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn source(content: Option<&VolumeContentSource>) -> Result<Option<Source>, Cause> {
    let Some(content) = content else { return Ok(None) };
    match &content.r#type {
        Some(Type::Snapshot(snapshot)) => {
            required(&snapshot.snapshot_id, "snapshot_id")?;
            Ok(Some(Source::Snapshot(snapshot.snapshot_id.clone())))
        }
        Some(Type::Volume(volume)) => {
            required(&volume.volume_id, "volume_id of the source")?;
            Ok(Some(Source::Volume(volume.volume_id.clone())))
        }
        None => Err(Cause::Invalid("a volume_content_source of no kind".to_owned())),
    }
}

/// Checks that the volume may be on `node`.
///
/// # Errors
/// `RESOURCE_EXHAUSTED`, on which the caller tries another node.
pub fn check_topology(requirement: Option<&TopologyRequirement>, node: &str) -> Result<(), Cause> {
    let Some(requirement) = requirement else { return Ok(()) };
    let here = |segments: &std::collections::HashMap<String, String>| {
        segments.get(TOPOLOGY_KEY).is_none_or(|value| value == node)
    };
    if requirement.requisite.is_empty() || requirement.requisite.iter().any(|t| here(&t.segments)) {
        return Ok(());
    }
    Err(Cause::Elsewhere(node.to_owned()))
}

/// The id of the volume or snapshot `name`: the name itself where it is fit for a file name, else its hash. The same name
/// always has the same id, so a repeated call finds what the first one made.
///
/// # Errors
/// `INVALID_ARGUMENT` if the name is empty or too long.
pub fn id_of(name: &str) -> Result<String, Cause> {
    const HASHED: &str = "sha256-";
    if name.is_empty() {
        return Err(Cause::Invalid("no name".to_owned()));
    }
    if name.len() > MAX_NAME {
        return Err(Cause::Invalid(format!("the name is longer than {MAX_NAME} bytes")));
    }
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if plain && !name.starts_with('-') && !name.starts_with(HASHED) {
        return Ok(name.to_owned());
    }
    Ok(format!("{HASHED}{}", hex::encode(Sha256::digest(name))))
}

/// Refuses an empty field.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub fn required(value: &str, field: &str) -> Result<(), Cause> {
    if value.is_empty() { Err(Cause::Invalid(format!("no {field}"))) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_contracts::csi::Topology;
    use trine_contracts::csi::volume_capability::{AccessMode, BlockVolume, MountVolume};

    fn mount(fs_type: &str, mode: Mode) -> VolumeCapability {
        VolumeCapability {
            access_mode: Some(AccessMode { mode: mode.into() }),
            access_type: Some(AccessType::Mount(MountVolume {
                fs_type: fs_type.to_owned(),
                ..Default::default()
            })),
        }
    }

    #[test]
    fn capabilities_are_taken_or_refused_with_the_reason() {
        let block = VolumeCapability {
            access_type: Some(AccessType::Block(BlockVolume {})),
            ..mount("", Mode::SingleNodeMultiWriter)
        };
        for (name, capabilities, expected) in [
            ("none", vec![], "no volume capabilities"),
            ("no mode", vec![mount("", Mode::Unknown)], "no access mode"),
            ("many nodes", vec![mount("", Mode::MultiNodeMultiWriter)], "MULTI_NODE_MULTI_WRITER"),
            ("other fs", vec![mount("btrfs", Mode::SingleNodeWriter)], "btrfs"),
            (
                "two fs",
                vec![mount("xfs", Mode::SingleNodeWriter), mount("ext4", Mode::SingleNodeWriter)],
                "both xfs and ext4",
            ),
        ] {
            let error = Access::read(&capabilities).unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
        let access = Access::read(&[block, mount("xfs", Mode::SingleNodeWriter)]).unwrap();
        assert_eq!(access, Access { block: true, mount: true, filesystem: Some(Kind::Xfs) });
    }

    #[test]
    fn a_name_always_has_the_same_id_and_it_is_a_file_name() {
        assert_eq!(id_of("pvc-1").unwrap(), "pvc-1");
        for name in ["../x", "A", "a/b", "-x", "sha256-1", "a b"] {
            let id = id_of(name).unwrap();
            assert!(id.starts_with("sha256-") && id.len() == 71, "{name}: {id}");
            assert_eq!(id, id_of(name).unwrap());
        }
        assert!(id_of("").is_err());
        assert!(id_of(&"x".repeat(129)).is_err());
        id_of(&"x".repeat(128)).unwrap();
    }

    #[test]
    fn topology_decides_by_the_requisite_terms() {
        let on = |node: &str| Topology { segments: [(TOPOLOGY_KEY.to_owned(), node.to_owned())].into() };
        let need = |nodes: &[&str]| TopologyRequirement {
            requisite: nodes.iter().map(|n| on(n)).collect(),
            preferred: Vec::new(),
        };
        check_topology(None, "a").unwrap();
        check_topology(Some(&need(&[])), "a").unwrap();
        check_topology(Some(&need(&["b", "a"])), "a").unwrap();
        assert!(check_topology(Some(&need(&["b"])), "a").is_err());
    }
}

//! Binding a staged volume to the target where a Pod sees it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trine_kernel::mountpoint::Mounted;

use crate::error::Cause;

/// One target, as it was published; the record's key is its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The volume's id.
    pub volume: String,
    /// Where.
    pub path: PathBuf,
    /// A raw device.
    pub block: bool,
    /// For reading only.
    pub readonly: bool,
    /// No other target may exist.
    pub exclusive: bool,
}

/// What to do about `NodePublishVolume`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publish {
    /// It is there as asked for.
    Done,
    /// Bind it.
    Bind,
}

/// True if `mount` shows the volume on `device`: its file system's root, or the device's own node.
#[must_use]
pub fn shows(mount: &Mounted, device: &Path) -> bool {
    let nodes = matches!(mount.fs_type.as_str(), "devtmpfs" | "tmpfs");
    (mount.source == device && mount.root == Path::new("/"))
        || (nodes && mount.root.file_name() == device.file_name())
}

/// Decides about `NodePublishVolume`. `recorded` are the targets of this volume, `mounted` is the mount table.
///
/// # Errors
/// `ALREADY_EXISTS`, `FAILED_PRECONDITION`.
pub fn publish(
    wanted: &Target,
    recorded: &[Target],
    mounted: &[Mounted],
    device: &Path,
) -> Result<Publish, Cause> {
    let shown = |path: &Path| mounted.iter().rfind(|m| m.target == path);
    if let Some(there) = shown(&wanted.path) {
        if !shows(there, device) {
            let text = format!("{} is mounted at {}", there.source.display(), wanted.path.display());
            return Err(Cause::Precondition(text));
        }
        let same = recorded.iter().find(|t| t.path == wanted.path).is_none_or(|t| t.block == wanted.block);
        if !same || there.readonly() != wanted.readonly {
            let text = format!("it is published at {} in another way", wanted.path.display());
            return Err(Cause::Exists(text));
        }
        return Ok(Publish::Done);
    }
    let other = recorded
        .iter()
        .find(|t| t.path != wanted.path && (t.exclusive || wanted.exclusive) && shown(&t.path).is_some());
    match other {
        Some(other) => Err(Cause::Precondition(format!(
            "it is published at {}, and its access mode allows one target only",
            other.path.display()
        ))),
        None => Ok(Publish::Bind),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tonic::Code;

    pub(crate) fn mount(source: &str, root: &str, target: &str, fs_type: &str, options: &str) -> Mounted {
        Mounted {
            device: (7, 0),
            root: root.into(),
            target: target.into(),
            options: vec![options.to_owned()],
            fs_type: fs_type.to_owned(),
            source: source.into(),
        }
    }

    fn target(path: &str, readonly: bool, exclusive: bool) -> Target {
        Target { volume: "v".to_owned(), path: path.into(), block: false, readonly, exclusive }
    }

    #[test]
    fn a_target_is_bound_kept_or_refused() {
        let device = Path::new("/dev/loop3");
        let ours = mount("/dev/loop3", "/", "/t", "xfs", "rw");
        let node = mount("devtmpfs", "/loop3", "/t", "devtmpfs", "rw");
        let foreign = mount("/dev/loop4", "/", "/t", "xfs", "rw");
        let part = mount("/dev/loop3", "/sub", "/t", "xfs", "rw");
        let elsewhere = mount("/dev/loop3", "/", "/u", "xfs", "rw");
        let (shared, alone) = (target("/t", false, false), target("/t", false, true));
        let (u_shared, u_alone) = (target("/u", false, false), target("/u", false, true));
        for (name, wanted, recorded, mounted, expected) in [
            ("first", &shared, vec![], vec![], Ok(Publish::Bind)),
            ("again", &shared, vec![shared.clone()], vec![ours.clone()], Ok(Publish::Done)),
            ("again, record lost", &shared, vec![], vec![ours.clone()], Ok(Publish::Done)),
            ("again, raw", &shared, vec![], vec![node], Ok(Publish::Done)),
            ("otherwise", &target("/t", true, false), vec![], vec![ours], Err(Code::AlreadyExists)),
            ("foreign", &shared, vec![], vec![foreign], Err(Code::FailedPrecondition)),
            ("a part of it", &shared, vec![], vec![part], Err(Code::FailedPrecondition)),
            ("second, shared", &shared, vec![u_shared.clone()], vec![elsewhere.clone()], Ok(Publish::Bind)),
            ("second, alone", &alone, vec![u_shared], vec![elsewhere.clone()], Err(Code::FailedPrecondition)),
            (
                "beside an exclusive one",
                &shared,
                vec![u_alone.clone()],
                vec![elsewhere],
                Err(Code::FailedPrecondition),
            ),
            ("beside one that is gone", &alone, vec![u_alone], vec![], Ok(Publish::Bind)),
        ] {
            let got = publish(wanted, &recorded, &mounted, device);
            assert_eq!(got.map_err(|cause| cause.code()), expected, "{name}");
        }
    }
}

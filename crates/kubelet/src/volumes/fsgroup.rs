//! Ownership of a volume's files by the Pod's fsGroup.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use crate::error::KubeletError;

/// Whether a driver's volume gets the fsGroup (upstream's rule for each policy).
#[must_use]
pub fn applies(policy: &str, fs_type: &str, access_modes: &[String], read_only: bool) -> bool {
    let single = access_modes.iter().any(|m| m == "ReadWriteOnce" || m == "ReadWriteOncePod");
    match policy {
        _ if read_only => false,
        "None" => false,
        "File" => true,
        _ => !fs_type.is_empty() && single,
    }
}

/// Gives all below `root` to `group`: files get `rw`, folders `rwx` and the set-group-id bit. The root comes
/// last, so that `only_on_mismatch` can trust it after a crash.
///
/// # Errors
/// [`KubeletError::Io`].
pub fn apply(root: &Path, group: u32, only_on_mismatch: bool) -> Result<(), KubeletError> {
    if only_on_mismatch {
        let meta = fs::metadata(root).map_err(KubeletError::io("look at", root))?;
        if meta.gid() == group && meta.mode() & 0o2070 == 0o2070 {
            return Ok(());
        }
    }
    walk(root, group)
}

fn walk(path: &Path, group: u32) -> Result<(), KubeletError> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(KubeletError::io("look at", path)(e)),
    };
    if meta.is_dir() {
        for entry in fs::read_dir(path).map_err(KubeletError::io("read", path))?.flatten() {
            walk(&entry.path(), group)?;
        }
    }
    if meta.gid() != group {
        lchown(path, None, Some(group)).map_err(KubeletError::io("change the group of", path))?;
    }
    if meta.is_symlink() {
        return Ok(());
    }
    let wanted = (meta.mode() & 0o7777) | if meta.is_dir() { 0o2770 } else { 0o660 };
    if wanted != meta.mode() & 0o7777 || meta.gid() != group {
        fs::set_permissions(path, fs::Permissions::from_mode(wanted))
            .map_err(KubeletError::io("change the mode of", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_decides() {
        let rwo = ["ReadWriteOnce".to_owned()];
        let rwx = ["ReadWriteMany".to_owned()];
        assert!(applies("", "xfs", &rwo, false));
        assert!(!applies("ReadWriteOnceWithFSType", "", &rwo, false));
        assert!(!applies("ReadWriteOnceWithFSType", "xfs", &rwx, false));
        assert!(applies("File", "", &rwx, false));
        assert!(!applies("File", "xfs", &rwo, true));
        assert!(!applies("None", "xfs", &rwo, false));
    }

    #[test]
    fn files_and_folders_get_group_and_bits() {
        if !trine_kernel::testing::root("files_and_folders_get_group_and_bits") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("v");
        fs::create_dir_all(root.join("d")).unwrap();
        fs::write(root.join("d/f"), "").unwrap();
        fs::set_permissions(root.join("d/f"), fs::Permissions::from_mode(0o600)).unwrap();
        apply(&root, 2000, true).unwrap();
        let mode = |p: &str| fs::metadata(root.join(p)).map(|m| (m.gid(), m.mode() & 0o7777)).unwrap();
        assert_eq!(mode("d/f"), (2000, 0o660));
        assert_eq!(mode("d"), (2000, 0o2775));
        fs::set_permissions(root.join("d/f"), fs::Permissions::from_mode(0o600)).unwrap();
        apply(&root, 2000, true).unwrap();
        assert_eq!(mode("d/f"), (2000, 0o600), "a root that matches stops the walk");
    }
}

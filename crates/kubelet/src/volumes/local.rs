//! Volumes that need no driver: emptyDir, hostPath, and files from the API.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use trine_kernel::mountpoint;
use trine_typed::k8s_openapi::api::core::v1::{EmptyDirVolumeSource, HostPathVolumeSource};

use super::atomic::{self, Files};
use super::cleanup::{is_mount_point, mount_error, mounts, remove_tree};
use super::fsgroup;
use super::metadata::make_dir;
use crate::container::quantity;
use crate::error::KubeletError;

/// Makes an emptyDir at `dir`: on tmpfs if it asks for memory, on hugetlbfs with pages of so many bytes if it asks for these.
///
/// # Errors
/// [`KubeletError::Io`].
pub fn empty_dir(
    dir: &Path,
    source: &EmptyDirVolumeSource,
    huge_pages: Option<u64>,
    group: Option<u32>,
) -> Result<(), KubeletError> {
    make_dir(dir)?;
    if source.medium.as_deref() == Some("Memory") {
        let limit = source.size_limit.as_ref().and_then(|q| quantity::value(&q.0)).filter(|bytes| *bytes > 0);
        tmpfs(dir, limit.map(|bytes| format!("size={bytes}")))?;
    }
    if let Some(bytes) = huge_pages {
        in_memory(dir, "hugetlbfs", &[format!("pagesize={bytes}")])?;
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777))
        .map_err(KubeletError::io("change the mode of", dir))?;
    match group {
        Some(group) => fsgroup::apply(dir, group, false),
        None => Ok(()),
    }
}

fn tmpfs(dir: &Path, size: Option<String>) -> Result<(), KubeletError> {
    in_memory(dir, "tmpfs", &size.into_iter().collect::<Vec<_>>())
}

fn in_memory(dir: &Path, kind: &str, options: &[String]) -> Result<(), KubeletError> {
    if is_mount_point(&mounts()?, dir) {
        return Ok(());
    }
    mountpoint::mount_device(Path::new(kind), dir, kind, options).map_err(mount_error("mount"))
}

/// Makes the files of a volume at `dir`; `memory` keeps them off the disk.
///
/// # Errors
/// [`KubeletError`].
pub fn files(dir: &Path, files: &Files, memory: bool, group: Option<u32>) -> Result<(), KubeletError> {
    make_dir(dir)?;
    if memory {
        tmpfs(dir, None)?;
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
        .map_err(KubeletError::io("change the mode of", dir))?;
    let stamp = jiff::Timestamp::now().as_nanosecond().to_string();
    atomic::write(dir, files, &stamp, group).map(drop)
}

/// Checks a hostPath by its type, and makes it if the type says so. Returns the path.
///
/// # Errors
/// [`KubeletError::Invalid`] if it is not what the type says; [`KubeletError::Io`].
pub fn host_path(source: &HostPathVolumeSource) -> Result<PathBuf, KubeletError> {
    let path = PathBuf::from(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    let found = fs::metadata(&path);
    match (kind, &found) {
        ("DirectoryOrCreate", Err(e)) if e.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(&path).map_err(KubeletError::io("create folder", &path))?;
            return Ok(path);
        }
        ("FileOrCreate", Err(e)) if e.kind() == std::io::ErrorKind::NotFound => {
            fs::File::create(&path).map_err(KubeletError::io("create", &path))?;
            return Ok(path);
        }
        _ => {}
    }
    let meta = found.ok();
    let is = |test: fn(&fs::FileType) -> bool| meta.as_ref().is_some_and(|m| test(&m.file_type()));
    let (fine, what) = match kind {
        "Directory" | "DirectoryOrCreate" => (is(fs::FileType::is_dir), "a directory"),
        "File" | "FileOrCreate" => (is(fs::FileType::is_file), "a file"),
        "Socket" => (is(FileTypeExt::is_socket), "a socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "a character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "a block device"),
        _ => (true, ""),
    };
    if fine {
        return Ok(path);
    }
    Err(KubeletError::Invalid(format!("hostPath type check failed: {} is not {what}", path.display())))
}

/// Takes a local volume down: off with its tmpfs, then its files.
///
/// # Errors
/// [`KubeletError`].
pub fn tear_down(dir: &Path) -> Result<(), KubeletError> {
    if is_mount_point(&mounts()?, dir) {
        mountpoint::unmount_all(dir, true).map_err(mount_error("unmount"))?;
    }
    remove_tree(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_dir_of_memory_is_a_tmpfs_of_its_size_and_goes_without_a_trace() {
        if !trine_kernel::testing::root(
            "an_empty_dir_of_memory_is_a_tmpfs_of_its_size_and_goes_without_a_trace",
        ) {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("v");
        let source: EmptyDirVolumeSource =
            serde_json::from_value(serde_json::json!({"medium": "Memory", "sizeLimit": "1Mi"})).unwrap();
        empty_dir(&dir, &source, None, None).unwrap();
        empty_dir(&dir, &source, None, None).unwrap();
        let of_dir = mounts().unwrap().into_iter().filter(|m| m.target == dir).count();
        fs::write(dir.join("x"), "data").unwrap();
        let size = trine_kernel::filesystem::usage(&dir).unwrap().total_bytes;
        tear_down(&dir).unwrap();
        tear_down(&dir).unwrap();
        assert_eq!((of_dir, size), (1, 1 << 20));
        assert!(!dir.exists());
    }

    #[test]
    fn an_empty_dir_of_huge_pages_has_pages_of_that_size() {
        let name = "an_empty_dir_of_huge_pages_has_pages_of_that_size";
        if !trine_kernel::testing::root(name)
            || !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists()
        {
            println!("{name}: skipped where the kernel has no huge pages of 2 MiB");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("v");
        empty_dir(&dir, &EmptyDirVolumeSource::default(), Some(2 << 20), None).unwrap();
        let mounted = mounts().unwrap().into_iter().find(|m| m.target == dir);
        let mode = fs::metadata(&dir).unwrap().permissions().mode() & 0o7777;
        tear_down(&dir).unwrap();
        assert_eq!(
            (mounted.map(|m| m.fs_type), mode, dir.exists()),
            (Some("hugetlbfs".to_owned()), 0o777, false)
        );
    }

    #[test]
    fn a_host_path_is_what_its_type_says() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name).to_string_lossy().into_owned();
        let check = |name: &str, kind: &str| {
            host_path(&HostPathVolumeSource { path: path(name), type_: Some(kind.to_owned()) }).is_ok()
        };
        assert!(check("none", ""));
        assert!(!check("none", "Directory") && !check("none", "File") && !check("none", "Socket"));
        assert!(check("dir/deep", "DirectoryOrCreate") && check("dir/deep", "Directory"));
        assert!(check("file", "FileOrCreate") && check("file", "File") && !check("file", "Directory"));
    }
}

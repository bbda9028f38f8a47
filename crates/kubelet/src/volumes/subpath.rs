//! subPath mounts: a part of a volume, bound into the Pod's own folder, for the runtime to bind from there.

use std::fs;
use std::path::{Path, PathBuf};

use trine_kernel::{mountpoint, subpath};

use super::cleanup::{is_mount_point, mount_error, mounts};
use super::metadata::make_dir;
use crate::error::KubeletError;

/// Binds `part` of `volume` on `target` and returns `target`. A part that is missing is made as a folder.
///
/// # Errors
/// [`KubeletError`], also if the part leads outside of the volume.
pub fn bind(volume: &Path, part: &str, target: PathBuf) -> Result<PathBuf, KubeletError> {
    let error = |e: subpath::SubpathError| {
        let text = format!("{} {}: {}", e.call, e.path.display(), e.source);
        let source = std::io::Error::new(e.source.kind(), text);
        KubeletError::Io { call: "bind a part of", path: volume.to_owned(), source }
    };
    let open = subpath::open(volume, Path::new(part), 0o750).map_err(error)?;
    // What a former start of this container left: the part may be another one by now.
    if is_mount_point(&mounts()?, &target) {
        mountpoint::unmount_all(&target, true).map_err(mount_error("unmount"))?;
    }
    if let Some(parent) = target.parent() {
        make_dir(parent)?;
    }
    if open.is_dir() {
        if target.is_file() {
            fs::remove_file(&target).map_err(KubeletError::io("remove", &target))?;
        }
        make_dir(&target)?;
    } else {
        if target.is_dir() {
            fs::remove_dir(&target).map_err(KubeletError::io("remove folder", &target))?;
        }
        fs::File::create(&target).map_err(KubeletError::io("create", &target))?;
    }
    open.mount(&target).map_err(error)?;
    Ok(target)
}

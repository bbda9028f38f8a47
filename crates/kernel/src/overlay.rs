//! Overlay mounts: read-only layers under one writable one.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, move_mount, unmount,
};

/// The longest string that `fsconfig` takes, without its NUL.
const FSCONFIG_STRING: usize = 255;

/// True once it has been found out that this kernel takes all layers in one string only.
static ONE_STRING: AtomicBool = AtomicBool::new(false);

/// Why an overlay could not be mounted or taken away.
#[derive(Debug, thiserror::Error)]
#[error("overlay {target}: cannot {call}{}", detail(.log))]
pub struct OverlayError {
    /// Where it was to be mounted.
    pub target: PathBuf,
    /// The step that failed.
    pub call: &'static str,
    /// What the kernel wrote about it, if anything.
    pub log: String,
    /// What the call returned.
    pub source: std::io::Error,
}

fn detail(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" ({log})") }
}

/// One overlay, before it is mounted.
#[derive(Debug)]
pub struct Overlay<'a> {
    /// The read-only folders, topmost first; at least one.
    pub lower: &'a [PathBuf],
    /// The folder that takes the writes.
    pub upper: &'a Path,
    /// An empty folder on the file system of `upper`, for the kernel's own use.
    pub work: &'a Path,
    /// True if nothing in `upper` has to survive a power cut: no write ever waits for the disk.
    pub volatile: bool,
}

impl Overlay<'_> {
    /// Mounts it at `target`, a folder.
    ///
    /// # Errors
    /// [`OverlayError`] with the step and the kernel's words.
    pub fn mount(&self, target: &Path) -> Result<(), OverlayError> {
        if ONE_STRING.load(Ordering::Relaxed) {
            return self.mount_by_string(target);
        }
        let Err(error) = self.mount_by_layers(target) else { return Ok(()) };
        // Kernels before 6.8 know only the one string; those before 6.5 say so at the last step, with this code for all faults.
        let old = matches!(error.source.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS));
        if !old || self.mount_by_string(target).is_err() {
            return Err(error);
        }
        ONE_STRING.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn mount_by_layers(&self, target: &Path) -> Result<(), OverlayError> {
        let fail = |call, log, source: Errno| OverlayError {
            target: target.to_owned(),
            call,
            log,
            source: source.into(),
        };
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)
            .map_err(|e| fail("open the overlay file system", String::new(), e))?;
        let mut held = Vec::new();
        for dir in self.lower {
            set_path(&context, "lowerdir+", dir, &mut held)
                .map_err(|e| fail("add a layer", kernel_log(&context), e))?;
        }
        for (key, dir) in [("upperdir", self.upper), ("workdir", self.work)] {
            set_path(&context, key, dir, &mut held)
                .map_err(|e| fail("set the writable folder", kernel_log(&context), e))?;
        }
        if self.volatile {
            fsconfig_set_flag(&context, "volatile")
                .map_err(|e| fail("set volatile", kernel_log(&context), e))?;
        }
        fsconfig_create(&context).map_err(|e| fail("join the layers", kernel_log(&context), e))?;
        let mounted = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
            .map_err(|e| fail("make the mount", kernel_log(&context), e))?;
        move_mount(mounted.as_fd(), "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|e| fail("attach the mount", String::new(), e))
    }

    /// The old call: one string of at most a page, so the layers go in by the short names of open folders.
    fn mount_by_string(&self, target: &Path) -> Result<(), OverlayError> {
        let fail = |call, source: Errno| OverlayError {
            target: target.to_owned(),
            call,
            log: String::new(),
            source: source.into(),
        };
        let mut held = Vec::new();
        let mut lower = Vec::new();
        for dir in self.lower {
            lower.push(short_name(dir, &mut held).map_err(|e| fail("open a layer", e))?);
        }
        let upper = short_name(self.upper, &mut held).map_err(|e| fail("open the writable folder", e))?;
        let work = short_name(self.work, &mut held).map_err(|e| fail("open the work folder", e))?;
        let volatile = if self.volatile { ",volatile" } else { "" };
        let data = format!("lowerdir={},upperdir={upper},workdir={work}{volatile}", lower.join(":"));
        let data = std::ffi::CString::new(data).map_err(|_| fail("name the layers", Errno::INVAL))?;
        mount("overlay", target, "overlay", MountFlags::empty(), Some(data.as_c_str()))
            .map_err(|e| fail("mount", e))
    }
}

/// Sets a folder by its path, or by an open descriptor's name where the path is too long for the call.
fn set_path(context: &OwnedFd, key: &str, dir: &Path, held: &mut Vec<OwnedFd>) -> Result<(), Errno> {
    if dir.as_os_str().len() <= FSCONFIG_STRING {
        return fsconfig_set_string(context, key, dir);
    }
    fsconfig_set_string(context, key, short_name(dir, held)?)
}

fn short_name(dir: &Path, held: &mut Vec<OwnedFd>) -> Result<String, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, Mode::empty())?;
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    held.push(fd);
    Ok(name)
}

/// What the kernel wrote into the context's log, newest last.
fn kernel_log(context: &OwnedFd) -> String {
    let mut lines = Vec::new();
    let mut buffer = [0u8; 512];
    while let Ok(n) = rustix::io::read(context, &mut buffer) {
        if n == 0 {
            break;
        }
        lines.push(String::from_utf8_lossy(&buffer[..n]).trim().to_owned());
    }
    lines.join("; ")
}

/// True if something is mounted right at `path`.
#[must_use]
pub fn is_mount_point(path: &Path) -> bool {
    rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, StatxFlags::empty())
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Takes away whatever is mounted at `target`, however often; nothing there is success. Processes that still use
/// the mount keep it until they end, the name is free at once.
///
/// # Errors
/// [`OverlayError`] if the kernel refuses.
pub fn unmount_all(target: &Path) -> Result<(), OverlayError> {
    while is_mount_point(target) {
        match unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::NOENT) => break,
            Err(e) => {
                let target = target.to_owned();
                return Err(OverlayError { target, call: "unmount", log: String::new(), source: e.into() });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn layers_lie_over_each_other_however_the_kernel_takes_them() {
        let test = "layers_lie_over_each_other_however_the_kernel_takes_them";
        if !testing::root(test) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        // Long enough for short names to be needed.
        let long = "l".repeat(200);
        let lower: Vec<PathBuf> = (0..40).map(|n| dir.path().join(format!("{long}/{long}/{n}"))).collect();
        for (n, layer) in lower.iter().enumerate() {
            std::fs::create_dir_all(layer).unwrap();
            std::fs::write(layer.join("which"), n.to_string()).unwrap();
            std::fs::write(layer.join(format!("own-{n}")), "").unwrap();
        }
        let [upper, work, target] = ["upper", "work", "target"].map(|name| dir.path().join(name));
        for folder in [&upper, &work, &target] {
            std::fs::create_dir(folder).unwrap();
        }
        let overlay = Overlay { lower: &lower, upper: &upper, work: &work, volatile: true };
        for name in ["as it chooses", "by one string"] {
            if name == "by one string" { overlay.mount_by_string(&target) } else { overlay.mount(&target) }
                .unwrap();
            assert_eq!(std::fs::read_to_string(target.join("which")).unwrap(), "0", "{name}");
            assert!(target.join("own-39").exists(), "{name}");
            std::fs::write(target.join("new"), "").unwrap();
            assert!(upper.join("new").exists(), "{name}");
            unmount_all(&target).unwrap();
            // A volatile overlay leaves a mark that forbids the next one.
            std::fs::remove_dir_all(&work).unwrap();
            std::fs::create_dir(&work).unwrap();
        }
    }
}

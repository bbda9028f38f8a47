//! Single mounts, as a storage driver makes them: a device on a folder, a bind of it elsewhere; and the mount
//! table to read back what is there.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, move_mount, open_tree};

use crate::container::show_owners;

/// Stacked mounts that [`unmount_all`] takes off one path before it gives up.
const MAX_STACKED: u32 = 64;

/// A call about a mount that failed.
#[derive(Debug, thiserror::Error)]
#[error("{call} {path}")]
pub struct MountError {
    /// What was tried.
    pub call: String,
    /// The mount point.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Device number of the file system, `(major, minor)`.
    pub device: (u32, u32),
    /// Which folder or file of the file system is mounted.
    pub root: PathBuf,
    /// Where.
    pub target: PathBuf,
    /// The mount's own options (`ro`, `noexec`, ...).
    pub options: Vec<String>,
    /// File system type.
    pub fs_type: String,
    /// What was mounted, as the mounter named it.
    pub source: PathBuf,
}

impl Mounted {
    /// True if this mount may only be read through.
    #[must_use]
    pub fn readonly(&self) -> bool {
        self.options.iter().any(|o| o == "ro")
    }
}

/// Everything mounted in this mount namespace, oldest first.
///
/// # Errors
/// [`MountError`] if the table cannot be read.
pub fn mounted() -> Result<Vec<Mounted>, MountError> {
    let path = Path::new("/proc/self/mountinfo");
    let bytes = std::fs::read(path).map_err(|source| MountError {
        call: "read".to_owned(),
        path: path.to_owned(),
        source,
    })?;
    Ok(bytes.split(|b| *b == b'\n').filter_map(parse_line).collect())
}

/// The mount that a path lies on, and whether what is mounted below it comes to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Propagation {
    /// Where it is mounted.
    pub target: PathBuf,
    /// It comes to them and from them.
    pub shared: bool,
    /// It comes from them.
    pub slave: bool,
}

/// How mounts below an existing path propagate.
///
/// # Errors
/// [`MountError`] if the path or the table cannot be read.
pub fn propagation(path: &Path) -> Result<Propagation, MountError> {
    let failed = |call: &str, path: &Path| {
        let (call, path) = (call.to_owned(), path.to_owned());
        move |source| MountError { call, path, source }
    };
    let path = path.canonicalize().map_err(failed("look at", path))?;
    let table = Path::new("/proc/self/mountinfo");
    let bytes = std::fs::read(table).map_err(failed("read", table))?;
    let missing = || failed("find the mount of", &path)(io::ErrorKind::NotFound.into());
    holder(&bytes, &path).ok_or_else(missing)
}

/// Of the mounts that a path lies below, the innermost; of several on one folder, the last.
fn holder(table: &[u8], path: &Path) -> Option<Propagation> {
    let all = table.split(|b| *b == b'\n').filter_map(|line| {
        let mut fields = line.split(|b| *b == b' ');
        let target = unescape(fields.nth(4)?);
        let tags: Vec<&[u8]> = fields.skip(1).take_while(|f| *f != b"-").collect();
        let has = |tag: &[u8]| tags.iter().any(|t| t.starts_with(tag));
        Some(Propagation { target, shared: has(b"shared:"), slave: has(b"master:") })
    });
    all.filter(|mount| path.starts_with(&mount.target)).max_by_key(|mount| mount.target.components().count())
}

fn parse_line(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|b| *b == b' ');
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let device = text(fields.nth(2)?);
    let (major, minor) = device.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let root = unescape(fields.next()?);
    let target = unescape(fields.next()?);
    let options = text(fields.next()?).split(',').map(str::to_owned).collect();
    // Optional fields end at a lone dash.
    fields.by_ref().find(|f| *f == b"-")?;
    let fs_type = text(fields.next()?);
    let source = unescape(fields.next()?);
    Some(Mounted { device, root, target, options, fs_type, source })
}

/// Undoes the kernel's `\ooo` escapes of blanks and backslashes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match octal.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Mounts `device` with `fs_type` on the folder `target`. `options` are mount(8) options: those that the kernel
/// takes as flags become flags, the others go to the file system.
///
/// # Errors
/// [`MountError`].
pub fn mount_device(
    device: &Path,
    target: &Path,
    fs_type: &str,
    options: &[String],
) -> Result<(), MountError> {
    let (flags, data) = split_options(options);
    let error = |source| MountError {
        call: format!("mount {} ({fs_type}, options \"{}\") on", device.display(), options.join(",")),
        path: target.to_owned(),
        source,
    };
    let data = CString::new(data)
        .map_err(|_| error(io::Error::new(io::ErrorKind::InvalidInput, "an option holds a NUL byte")))?;
    rustix::mount::mount(device, target, fs_type, flags, data.as_c_str()).map_err(|e| error(e.into()))
}

/// Mounts the folder or file `source` on the existing `target` as well, for reading only if `readonly`.
///
/// # Errors
/// [`MountError`]; nothing stays mounted then.
pub fn bind(source: &Path, target: &Path, readonly: bool) -> Result<(), MountError> {
    let error = |call: &str, e: rustix::io::Errno| MountError {
        call: format!("{call} {} on", source.display()),
        path: target.to_owned(),
        source: e.into(),
    };
    rustix::mount::mount_bind(source, target).map_err(|e| error("bind", e))?;
    if readonly {
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        if let Err(e) = rustix::mount::mount_remount(target, flags, "") {
            let _ = rustix::mount::unmount(target, UnmountFlags::DETACH);
            return Err(error("make read-only the bind of", e));
        }
    }
    Ok(())
}

/// Mounts the folder `source` on the existing `target` as well, for reading only, with the owners of its files shown as the user
/// namespace `users` has them.
///
/// # Errors
/// [`MountError`]; `EINVAL` also where the file system cannot do that. Nothing stays mounted then.
pub fn bind_for_users(source: &Path, target: &Path, users: BorrowedFd<'_>) -> Result<(), MountError> {
    let error = |e: rustix::io::Errno| MountError {
        call: format!("map the owners of {} on", source.display()),
        path: target.to_owned(),
        source: e.into(),
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let copy = open_tree(CWD, source, flags).map_err(error)?;
    show_owners(copy.as_fd(), users, true).map_err(error)?;
    move_mount(copy.as_fd(), "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(error)
}

/// True if the owners of files in `dir` can be mapped for user namespaces, also those of an overlay's layers: kernel 5.19, user
/// namespaces that are allowed, and a file system that can.
#[must_use]
pub fn can_map_owners(dir: &Path) -> bool {
    let allowed = std::fs::read_to_string("/proc/sys/user/max_user_namespaces");
    let allowed = allowed.is_ok_and(|text| text.trim().parse::<u64>().is_ok_and(|most| most > 0));
    let able = rustix::fs::statfs(dir).is_ok_and(|stat| ABLE.contains(&(stat.f_type & 0xffff_ffff)));
    allowed && able && newer_than(rustix::system::uname().release().to_string_lossy().as_ref(), (5, 19))
}

/// File systems that could map owners by kernel 5.19 (`linux/magic.h`): ext4, XFS, Btrfs, F2FS.
const ABLE: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// True if a kernel's release is `wanted` or later.
fn newer_than(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= wanted
}

/// Takes everything off `target` that is mounted there, also what is stacked. Nothing mounted, or no such path,
/// is success. `lazy` also takes off what is in use: it goes when its last user does.
///
/// # Errors
/// [`MountError`], with `EBUSY` if it is in use and not `lazy`.
pub fn unmount_all(target: &Path, lazy: bool) -> Result<(), MountError> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() } | UnmountFlags::NOFOLLOW;
    for _ in 0..MAX_STACKED {
        match rustix::mount::unmount(target, flags) {
            Ok(()) => {}
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => return Ok(()),
            Err(e) => {
                return Err(MountError {
                    call: "umount".to_owned(),
                    path: target.to_owned(),
                    source: e.into(),
                });
            }
        }
    }
    Ok(())
}

/// Splits mount(8) options into the kernel's flags and the text for the file system.
fn split_options(options: &[String]) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut data: Vec<&str> = Vec::new();
    for option in options.iter().flat_map(|o| o.split(',')).filter(|o| !o.is_empty()) {
        match option {
            "defaults" | "rw" | "suid" | "dev" | "exec" | "async" => {}
            "ro" => flags |= MountFlags::RDONLY,
            "nosuid" => flags |= MountFlags::NOSUID,
            "nodev" => flags |= MountFlags::NODEV,
            "noexec" => flags |= MountFlags::NOEXEC,
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "dirsync" => flags |= MountFlags::DIRSYNC,
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "strictatime" => flags |= MountFlags::STRICTATIME,
            "lazytime" => flags |= MountFlags::LAZYTIME,
            other => data.push(other),
        }
    }
    (flags, data.join(","))
}

/// The device number of what `path` lies on, `(major, minor)`.
///
/// # Errors
/// [`MountError`] if `path` cannot be looked at: `ENOTCONN`, `ESTALE` and `EIO` speak of a dead mount.
pub fn device_of(path: &Path) -> Result<(u32, u32), MountError> {
    let stat = rustix::fs::stat(path.as_os_str().as_bytes()).map_err(|e| MountError {
        call: "stat".to_owned(),
        path: path.to_owned(),
        source: e.into(),
    })?;
    Ok((rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_mountinfo_line_is_read_with_its_escapes_and_optional_fields() {
        let line =
            br"36 35 98:0 /a\040b /mnt\011x\134 ro,noatime master:1 shared:2 - ext3 /dev/root rw,errors=x";
        let entry = parse_line(line).unwrap();
        assert_eq!(entry.device, (98, 0));
        assert_eq!(entry.root, Path::new("/a b"));
        assert_eq!(entry.target, Path::new("/mnt\tx\\"));
        assert!(entry.readonly());
        assert_eq!((entry.fs_type.as_str(), entry.source.as_path()), ("ext3", Path::new("/dev/root")));
        assert_eq!(parse_line(b"36 35 98:0 / /x rw shared:2"), None);
    }

    #[test]
    fn the_innermost_mount_says_whether_mounts_come_to_others() {
        let table = b"27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 27 0:5 / /mnt rw shared:7 - tmpfs none rw\n\
            31 27 0:6 / /mnt/a\\040b rw master:7 - tmpfs none rw\n\
            32 27 0:6 / /mn rw shared:9 - tmpfs none rw\n";
        let found = |path: &str| {
            let found = holder(table, Path::new(path)).unwrap();
            (found.target.display().to_string(), found.shared, found.slave)
        };
        assert_eq!(found("/var/lib"), ("/".into(), false, false));
        assert_eq!(found("/mnt/x"), ("/mnt".into(), true, false));
        assert_eq!(found("/mnt/a b/c"), ("/mnt/a b".into(), false, true));
    }

    #[test]
    fn options_become_flags_where_the_kernel_has_one() {
        let options = ["ro,noatime".to_owned(), "nouuid".to_owned(), "discard".to_owned(), "rw".to_owned()];
        let (flags, data) = split_options(&options);
        assert_eq!(flags, MountFlags::RDONLY | MountFlags::NOATIME);
        assert_eq!(data, "nouuid,discard");
    }

    #[test]
    fn a_bind_is_seen_and_taken_off_even_when_stacked() {
        if !testing::root("a_bind_is_seen_and_taken_off_even_when_stacked") {
            return;
        }
        struct Unmount(PathBuf);
        impl Drop for Unmount {
            fn drop(&mut self) {
                let _ = unmount_all(&self.0, true);
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::create_dir(&from).unwrap();
        std::fs::create_dir(&to).unwrap();
        let _guard = Unmount(to.clone());
        let count = || mounted().unwrap().iter().filter(|m| m.target == to).count();
        bind(&from, &to, false).unwrap();
        bind(&from, &to, true).unwrap();
        assert_eq!(count(), 2);
        assert!(std::fs::write(to.join("x"), "").is_err(), "the upper bind is read-only");
        unmount_all(&to, false).unwrap();
        unmount_all(&to, false).unwrap();
        assert_eq!(count(), 0);
    }
}

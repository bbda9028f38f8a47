//! Ownership, mode, extended attributes and times of an entry, and how they are set.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr,
    futimens, lsetxattr, utimensat,
};
use rustix::io::Errno;

use super::plan;
use super::root::{RootError, io_error};

/// What an archive says about an entry beside its content.
pub(crate) struct Attributes {
    uid: u32,
    gid: u32,
    mode: u32,
    extended: Vec<(Vec<u8>, Vec<u8>)>,
    pub times: Timestamps,
}

impl Attributes {
    /// Reads them from an entry's header and its pax records.
    pub fn read<R: io::Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Self> {
        let header = entry.header();
        let id =
            |id: u64| u32::try_from(id).map_err(|_| io::Error::other(format!("owner {id} is out of range")));
        let (uid, gid) = (id(header.uid()?)?, id(header.gid()?)?);
        let mode = header.mode()? & 0o7777;
        let mut modified = (i64::try_from(header.mtime()?).unwrap_or(0), 0);
        let mut extended = Vec::new();
        for record in entry.pax_extensions()?.into_iter().flatten() {
            let record = record?;
            let (key, value) = (record.key_bytes(), record.value_bytes());
            if key == b"mtime" {
                modified = plan::pax_time(value).unwrap_or(modified);
            } else if let Some(name) = key.strip_prefix(b"SCHILY.xattr.")
                && plan::attribute_allowed(name)
            {
                extended.push((name.to_vec(), value.to_vec()));
            }
        }
        let time = Timespec { tv_sec: modified.0, tv_nsec: modified.1 };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(Self { uid, gid, mode, extended, times })
    }

    fn owner(&self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }

    /// Sets all but the times on an open file or folder. The owner comes first, for a change of owner takes away
    /// capabilities and the setuid bit.
    pub fn set(&self, fd: &OwnedFd) -> Result<(), RootError> {
        let (uid, gid) = self.owner();
        fchown(fd, uid, gid).map_err(io_error("set its owner"))?;
        for (name, value) in &self.extended {
            tolerate(fsetxattr(fd, OsStr::new(text(name)?), value, XattrFlags::empty()))?;
        }
        fchmod(fd, Mode::from_raw_mode(self.mode)).map_err(io_error("set its mode"))
    }

    /// Sets the times of an open file or folder.
    pub fn set_times(&self, fd: &OwnedFd) -> Result<(), RootError> {
        futimens(fd, &self.times).map_err(io_error("set its times"))
    }

    /// Sets all on something that is not opened: a link, a device, a pipe.
    pub fn set_at(&self, parent: &OwnedFd, name: &OsStr, is_link: bool) -> Result<(), RootError> {
        let (uid, gid) = self.owner();
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        chownat(parent, name, uid, gid, flags).map_err(io_error("set its owner"))?;
        let path = Path::new("/proc/self/fd").join(parent.as_raw_fd().to_string()).join(name);
        for (key, value) in &self.extended {
            tolerate(lsetxattr(&path, OsStr::new(text(key)?), value, XattrFlags::empty()))?;
        }
        if !is_link {
            chmodat(parent, name, Mode::from_raw_mode(self.mode), AtFlags::empty())
                .map_err(io_error("set its mode"))?;
        }
        utimensat(parent, name, &self.times, flags).map_err(io_error("set its times"))
    }
}

fn text(name: &[u8]) -> Result<&str, RootError> {
    std::str::from_utf8(name).map_err(|_| io_error("set an extended attribute")(Errno::INVAL))
}

/// A file system without a kind of attribute is no reason to refuse an image.
fn tolerate(result: Result<(), Errno>) -> Result<(), RootError> {
    match result {
        Err(Errno::NOTSUP) => Ok(()),
        other => other.map_err(io_error("set an extended attribute")),
    }
}

//! Copies of files that are as sparse as their source, and instant where the file system lets files share their blocks.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone, seek};
use rustix::io::Errno;

use super::FilesystemError;

/// Bytes that are copied by one call.
const PIECE: u64 = 64 << 20;

/// `_IOWR('f', 11, struct fiemap)`, from the kernel's fiemap.h.
const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
const FIEMAP_EXTENT_LAST: u32 = 0x1;
const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
const FIEMAP_EXTENT_SHARED: u32 = 0x2000;
/// Extents that are asked for at once.
const EXTENTS: usize = 128;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with room for its extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

const _: () = assert!(size_of::<Extent>() == 56 && size_of::<Fiemap>() == 32 + 56 * EXTENTS);

/// How a copy was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// Both files have the same blocks until one of them is written to.
    Shared,
    /// Byte by byte, holes left out.
    Sparse,
}

/// Makes `to` a copy of `from`, whatever it was before, and waits until it is on the disk.
///
/// # Errors
/// [`FilesystemError::Call`].
pub fn copy(from: &Path, to: &Path) -> Result<Copied, FilesystemError> {
    let call = |call, path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| FilesystemError::Call { call, path, source }
    };
    let source = File::open(from).map_err(call("open", from))?;
    let mut options = OpenOptions::new();
    let options = options.create(true).write(true).truncate(true).mode(0o600);
    let target = options.open(to).map_err(call("create", to))?;
    let copied = match ioctl_ficlone(&target, &source) {
        Ok(()) => Copied::Shared,
        Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) => {
            sparsely(&source, &target).map_err(call("copy", to))?;
            Copied::Sparse
        }
        Err(errno) => return Err(call("FICLONE", to)(errno.into())),
    };
    target.sync_all().map_err(call("sync", to))?;
    Ok(copied)
}

fn sparsely(from: &File, to: &File) -> io::Result<()> {
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let mut at = 0;
    while at < length {
        let start = match seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing but a hole is left.
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        };
        let end = seek(from, SeekFrom::Hole(start))?;
        piece(from, to, start, end)?;
        at = end;
    }
    Ok(())
}

fn piece(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let (mut read, mut write) = (start, start);
    while read < end {
        let wanted = usize::try_from((end - read).min(PIECE)).unwrap_or(usize::MAX);
        match copy_file_range(from, Some(&mut read), to, Some(&mut write), wanted) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Whether files in `dir` can share their blocks.
///
/// # Errors
/// [`FilesystemError::Call`] if it cannot be tried.
pub fn shares(dir: &Path) -> Result<bool, FilesystemError> {
    let (from, to) = (dir.join(".shares-a"), dir.join(".shares-b"));
    let tried = std::fs::write(&from, [1; 4096])
        .map_err(|source| FilesystemError::Call { call: "write", path: from.clone(), source })
        .and_then(|()| copy(&from, &to));
    for path in [from, to] {
        let _ = std::fs::remove_file(path);
    }
    tried.map(|copied| copied == Copied::Shared)
}

/// What belongs to a file alone, bytes: a write to these takes nothing anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alone {
    /// What was written.
    pub written: u64,
    /// What the file system has set aside for it: it reads as zero, and the disk below may not have it yet.
    pub unwritten: u64,
}

/// How many bytes of the disk belong to the file at `path` alone.
///
/// # Errors
/// [`FilesystemError::Call`] if its file system does not say.
pub fn alone(path: &Path) -> Result<Alone, FilesystemError> {
    let call = |call, source| FilesystemError::Call { call, path: path.to_owned(), source };
    let file = File::open(path).map_err(|e| call("open", e))?;
    let empty = Extent { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] };
    let (mut start, mut alone) = (0, Alone::default());
    loop {
        let count = EXTENTS as u32;
        let mut map = Fiemap {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped: 0,
            count,
            reserved: 0,
            extents: [empty; EXTENTS],
        };
        // SAFETY: the descriptor is open, and the structure has the layout that the request reads and writes (asserted above),
        // with room for as many extents as it says.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) } < 0 {
            return Err(call("FS_IOC_FIEMAP", io::Error::last_os_error()));
        }
        let mapped = &map.extents[..(map.mapped as usize).min(EXTENTS)];
        for extent in mapped.iter().filter(|e| e.flags & FIEMAP_EXTENT_SHARED == 0) {
            match extent.flags & FIEMAP_EXTENT_UNWRITTEN {
                0 => alone.written += extent.length,
                _ => alone.unwritten += extent.length,
            }
        }
        match mapped.last() {
            Some(last) if last.flags & FIEMAP_EXTENT_LAST == 0 => start = last.logical + last.length,
            _ => return Ok(alone),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filesystem::{Kind, make};
    use crate::mountpoint::{mount_device, unmount_all};
    use crate::{loopdev, testing};
    use std::os::unix::fs::{FileExt, MetadataExt};

    fn sparse(path: &Path) -> File {
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(path).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(&[7; 8192], 1 << 20).unwrap();
        file.write_all_at(&[8; 4096], (63 << 20) + 4096).unwrap();
        file.sync_all().unwrap();
        file
    }

    fn same(a: &Path, b: &Path) -> bool {
        std::fs::read(a).unwrap() == std::fs::read(b).unwrap()
    }

    #[test]
    fn a_copy_has_the_bytes_and_the_holes_of_its_source() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        sparse(&from);
        sparsely(&File::open(&from).unwrap(), &File::create(&to).unwrap()).unwrap();
        assert!(same(&from, &to));
        let taken = std::fs::metadata(&to).unwrap().blocks() * 512;
        assert!(taken < 1 << 20, "{taken} bytes for 12 KiB of data");
        std::fs::write(&to, [9; 100]).unwrap();
        copy(&from, &to).unwrap();
        assert!(same(&from, &to), "something is left of what was there");
    }

    #[test]
    fn a_shared_copy_takes_no_room_until_one_of_both_is_written() {
        const TEST: &str = "a_shared_copy_takes_no_room_until_one_of_both_is_written";
        if !testing::root(TEST) || !testing::program(TEST, "mkfs.xfs") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (disk, place) = (root.join("disk"), root.join("m"));
        File::create(&disk).unwrap().set_len(320 << 20).unwrap();
        std::fs::create_dir(&place).unwrap();
        let device = loopdev::attach(&disk).unwrap();
        make(Kind::Xfs, &device.device).unwrap();
        mount_device(&device.device, &place, "xfs", &[]).unwrap();
        let seen = std::panic::catch_unwind(|| {
            let (from, to) = (place.join("a"), place.join("b"));
            assert!(shares(&place).unwrap());
            let file = sparse(&from);
            let written = |bytes| Alone { written: bytes, unwritten: 0 };
            assert_eq!(alone(&from).unwrap(), written(12288));
            assert_eq!(copy(&from, &to).unwrap(), Copied::Shared);
            assert_eq!((alone(&from).unwrap(), alone(&to).unwrap()), (written(0), written(0)));
            file.write_all_at(&[9; 4096], 1 << 20).unwrap();
            file.sync_all().unwrap();
            assert_eq!(alone(&from).unwrap(), written(4096));
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 8 << 20, 1 << 20).unwrap();
            assert_eq!(alone(&from).unwrap(), Alone { written: 4096, unwritten: 1 << 20 });
            assert!(!same(&from, &to));
        });
        unmount_all(&place, true).unwrap();
        loopdev::detach(&device).unwrap();
        seen.unwrap();
    }
}

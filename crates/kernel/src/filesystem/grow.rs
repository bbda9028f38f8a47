//! Growing a file system to the size of its device.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use super::program::{self, ProgramError};
use super::{FilesystemError, Kind};

/// The time that checking and growing an unmounted ext4 may take.
const DEADLINE: Duration = Duration::from_secs(300);

/// `_IOR('X', 100, struct xfs_fsop_geom_v1)`, from the kernel's xfs_fs.h.
const XFS_IOC_FSGEOMETRY_V1: libc::c_ulong = 0x8070_5864;
/// `_IOW('X', 110, struct xfs_growfs_data)`.
const XFS_IOC_FSGROWFSDATA: libc::c_ulong = 0x4010_586E;

/// `struct xfs_fsop_geom_v1`: what we read of it, and the rest.
#[repr(C)]
struct XfsGeometry {
    block_size: u32,
    extent_size: u32,
    ag_blocks: u32,
    ag_count: u32,
    log_blocks: u32,
    sector_size: u32,
    inode_size: u32,
    max_inode_percent: u32,
    data_blocks: u64,
    rest: [u64; 9],
}

/// `struct xfs_growfs_data`.
#[repr(C)]
struct XfsGrow {
    new_blocks: u64,
    max_inode_percent: u32,
}

const _: () = assert!(size_of::<XfsGeometry>() == 112 && size_of::<XfsGrow>() == 16);

/// Grows the file system mounted at `mountpoint` to `bytes`, the size of its device. Large enough is success.
///
/// # Errors
/// [`FilesystemError::NeedsSysResource`] if it is an ext4 and this process may not; otherwise
/// [`FilesystemError::Call`].
pub fn grow_mounted(kind: Kind, mountpoint: &Path, bytes: u64) -> Result<(), FilesystemError> {
    let call = |call, source| FilesystemError::Call { call, path: mountpoint.to_owned(), source };
    let folder = File::open(mountpoint).map_err(|e| call("open", e))?;
    match kind {
        Kind::Xfs => grow_xfs(&folder, bytes).map_err(|(name, e)| call(name, e)),
        Kind::Ext4 => match rustix::fs::ext4_ioc_resize_fs(&folder, bytes / 4096) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::PERM) => {
                Err(FilesystemError::NeedsSysResource { path: mountpoint.to_owned() })
            }
            Err(e) => Err(call("EXT4_IOC_RESIZE_FS", e.into())),
        },
    }
}

fn grow_xfs(folder: &File, bytes: u64) -> Result<(), (&'static str, io::Error)> {
    let mut geometry = XfsGeometry {
        block_size: 0,
        extent_size: 0,
        ag_blocks: 0,
        ag_count: 0,
        log_blocks: 0,
        sector_size: 0,
        inode_size: 0,
        max_inode_percent: 0,
        data_blocks: 0,
        rest: [0; 9],
    };
    // SAFETY: the descriptor is open, and the structure has the layout that the request writes (asserted above).
    if unsafe { libc::ioctl(folder.as_raw_fd(), XFS_IOC_FSGEOMETRY_V1, &raw mut geometry) } < 0 {
        return Err(("XFS_IOC_FSGEOMETRY_V1", io::Error::last_os_error()));
    }
    let new_blocks = bytes / u64::from(geometry.block_size.max(512));
    if new_blocks <= geometry.data_blocks {
        return Ok(());
    }
    let grow = XfsGrow { new_blocks, max_inode_percent: geometry.max_inode_percent };
    // SAFETY: as above, for a structure that the request reads.
    if unsafe { libc::ioctl(folder.as_raw_fd(), XFS_IOC_FSGROWFSDATA, &raw const grow) } < 0 {
        return Err(("XFS_IOC_FSGROWFSDATA", io::Error::last_os_error()));
    }
    Ok(())
}

/// Grows the unmounted ext4 on `device` to the size of the device, after checking it.
///
/// # Errors
/// [`FilesystemError::Program`].
pub fn grow_unmounted(device: &Path) -> Result<(), FilesystemError> {
    let failed = |doing| {
        move |source: ProgramError| FilesystemError::Program { doing, path: device.to_owned(), source }
    };
    let device = device.as_os_str();
    let check = [OsStr::new("-f"), OsStr::new("-p"), device];
    // 1: errors were found and corrected.
    program::run("e2fsck", "e2fsprogs", &check, &[1], DEADLINE).map_err(failed("checked"))?;
    program::run("resize2fs", "e2fsprogs", &[device], &[], DEADLINE).map_err(failed("grown"))
}

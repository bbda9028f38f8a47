//! The loop driver's ioctls.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Attached, LoopError, attached};

/// Sector size of every device that we make. Pinned, because direct I/O over a reflinked file would otherwise
/// give another geometry to a clone than its source has.
pub const SECTOR_BYTES: u32 = 4096;

/// Attempts to win the race for a free device (`LOOP_CTL_GET_FREE` reserves nothing).
const ATTEMPTS: u32 = 64;

/// How long a detached device may take to let go of its file before it counts as held.
const LET_GO: Duration = Duration::from_secs(3);

/// The driver's own file, and its number (10:237).
const CONTROL: &str = "/dev/loop-control";
const CONTROL_DEVICE: (u32, u32) = (10, 237);

// Numbers from the kernel's uapi/linux/loop.h.
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LOOP_SET_CAPACITY: libc::c_ulong = 0x4C07;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo64,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232 && size_of::<LoopConfig>() == 304);

/// Attaches `file` to a free loop device with [`SECTOR_BYTES`] sectors; direct I/O if the file's file system
/// offers it. The caller makes sure that the file is not attached already (see [`super::of_file`]).
///
/// # Errors
/// [`LoopError`].
pub fn attach(file: &Path) -> Result<Attached, LoopError> {
    let backing = open(file)?;
    let control = control()?;
    for attempt in 0..ATTEMPTS {
        let number = get_free(&control)?;
        let device = PathBuf::from(format!("/dev/loop{number}"));
        match configure(&device, &backing) {
            Ok(()) => {
                return Ok(Attached { number, device, backing_file: file.to_owned(), deleted: false });
            }
            // Somebody else took it between the two calls, or it is not in /dev yet.
            Err(LoopError::Call { source, .. })
                if matches!(
                    source.raw_os_error(),
                    Some(libc::EBUSY | libc::ENOENT | libc::ENXIO | libc::EAGAIN)
                ) =>
            {
                std::thread::sleep(Duration::from_millis(u64::from(attempt.min(20))));
            }
            Err(error) => return Err(error),
        }
    }
    Err(LoopError::Contended { file: file.to_owned(), attempts: ATTEMPTS })
}

/// Lets `device` go of its file, and waits until it has. Already free is success.
///
/// # Errors
/// [`LoopError::Held`] if it is mounted or open somewhere; it goes when the last user does.
pub fn detach(device: &Attached) -> Result<(), LoopError> {
    match open(&device.device) {
        Ok(file) => match ioctl(&file, &device.device, "LOOP_CLR_FD", LOOP_CLR_FD, 0) {
            Ok(_) => {}
            Err(LoopError::Call { source, .. }) if source.raw_os_error() == Some(libc::ENXIO) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        },
        Err(LoopError::Call { source, .. })
            if matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ENXIO)) =>
        {
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    let since = Instant::now();
    let mut pause = Duration::from_millis(1);
    while still_attached(device)? {
        if since.elapsed() > LET_GO {
            return Err(LoopError::Held { device: device.device.clone(), file: device.backing_file.clone() });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    Ok(())
}

/// Makes `device` as large as its file has become.
///
/// # Errors
/// [`LoopError`].
pub fn refresh_size(device: &Path) -> Result<(), LoopError> {
    let file = open(device)?;
    ioctl(&file, device, "LOOP_SET_CAPACITY", LOOP_SET_CAPACITY, 0).map(drop)
}

/// Whether `device` reads and writes its file with direct I/O.
///
/// # Errors
/// [`LoopError`].
pub fn is_direct(device: &Path) -> Result<bool, LoopError> {
    let file = open(device)?;
    // SAFETY: all bytes zero is a valid `LoopInfo64`.
    let mut info: LoopInfo64 = unsafe { zeroed() };
    let address = &raw mut info as usize as libc::c_ulong;
    ioctl(&file, device, "LOOP_GET_STATUS64", LOOP_GET_STATUS64, address)?;
    Ok(info.flags & LO_FLAGS_DIRECT_IO != 0)
}

fn still_attached(device: &Attached) -> Result<bool, LoopError> {
    Ok(attached()?.iter().any(|a| a.number == device.number && a.backing_file == device.backing_file))
}

fn configure(device: &Path, backing: &File) -> Result<(), LoopError> {
    match try_configure(device, backing, LO_FLAGS_DIRECT_IO) {
        Err(LoopError::Call { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
            try_configure(device, backing, 0)
        }
        other => other,
    }
}

fn try_configure(device: &Path, backing: &File, flags: u32) -> Result<(), LoopError> {
    let node = open(device)?;
    // SAFETY: all bytes zero is a valid `LoopConfig`.
    let mut config: LoopConfig = unsafe { zeroed() };
    config.fd = backing.as_raw_fd().unsigned_abs();
    config.block_size = SECTOR_BYTES;
    config.info.flags = flags;
    let address = &raw const config as usize as libc::c_ulong;
    ioctl(&node, device, "LOOP_CONFIGURE", LOOP_CONFIGURE, address).map(drop)
}

fn get_free(control: &File) -> Result<u32, LoopError> {
    let number = ioctl(control, Path::new(CONTROL), "LOOP_CTL_GET_FREE", LOOP_CTL_GET_FREE, 0)?;
    Ok(number.unsigned_abs())
}

/// Opens the driver. Where it is a module that nobody has needed yet, there may be no file for it either; opening one loads it.
fn control() -> Result<File, LoopError> {
    let path = Path::new(CONTROL);
    match open(path) {
        Err(LoopError::Call { source, .. }) if source.raw_os_error() == Some(libc::ENOENT) => {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            let kind = rustix::fs::FileType::CharacterDevice;
            let device = rustix::fs::makedev(CONTROL_DEVICE.0, CONTROL_DEVICE.1);
            match rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, device) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => open(path),
                Err(errno) => {
                    Err(LoopError::Call { call: "make", path: path.to_owned(), source: errno.into() })
                }
            }
        }
        result => result,
    }
}

fn open(path: &Path) -> Result<File, LoopError> {
    OpenOptions::new().read(true).write(true).open(path).map_err(|source| LoopError::Call {
        call: "open",
        path: path.to_owned(),
        source,
    })
}

/// `argument` is 0 or the address of the structure that `request` reads or writes.
fn ioctl(
    file: &File,
    path: &Path,
    call: &'static str,
    request: libc::c_ulong,
    argument: libc::c_ulong,
) -> Result<i32, LoopError> {
    // SAFETY: the descriptor is open; `argument` is either no pointer at all, or points to a live structure of
    // the layout that `request` asks for (asserted above), which outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if result < 0 {
        return Err(LoopError::Call { call, path: path.to_owned(), source: io::Error::last_os_error() });
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    struct Detach(Attached);
    impl Drop for Detach {
        fn drop(&mut self) {
            let _ = detach(&self.0);
        }
    }

    #[test]
    fn a_file_becomes_a_device_with_4_kib_sectors_that_follows_its_size() {
        if !testing::root("a_file_becomes_a_device_with_4_kib_sectors_that_follows_its_size") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("disk");
        let file = File::create(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        let guard = Detach(attach(&path).unwrap());
        let name = format!("/sys/block/loop{}/queue/logical_block_size", guard.0.number);
        assert_eq!(std::fs::read_to_string(name).unwrap().trim(), "4096");
        assert_eq!(super::super::of_file(&path).unwrap(), vec![guard.0.clone()]);
        is_direct(&guard.0.device).unwrap();
        file.set_len(16 << 20).unwrap();
        refresh_size(&guard.0.device).unwrap();
        assert_eq!(super::super::device_size(guard.0.number).unwrap(), 16 << 20);
        detach(&guard.0).unwrap();
        detach(&guard.0).unwrap();
        assert!(super::super::of_file(&path).unwrap().is_empty());
    }

    #[test]
    fn many_attach_at_once_and_each_gets_its_own_device() {
        if !testing::root("many_attach_at_once_and_each_gets_its_own_device") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let threads: Vec<_> = (0..6)
            .map(|i| {
                let path = root.join(format!("disk{i}"));
                File::create(&path).unwrap().set_len(1 << 20).unwrap();
                std::thread::spawn(move || Detach(attach(&path).unwrap()))
            })
            .collect();
        let mut numbers: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        numbers.sort_by_key(|d| d.0.number);
        numbers.windows(2).for_each(|pair| assert_ne!(pair[0].0.number, pair[1].0.number));
    }
}

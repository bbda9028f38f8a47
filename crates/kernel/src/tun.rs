//! Tap devices: frames go to a program instead of a wire.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

/// The device that makes them.
const DEVICE: &str = "/dev/net/tun";

// `linux/if_tun.h`
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETPERSIST: libc::Ioctl = 0x4004_54cb;
const TUNSETOWNER: libc::Ioctl = 0x4004_54cc;
const TUNSETGROUP: libc::Ioctl = 0x4004_54ce;

/// A tap device to make.
#[derive(Debug, Clone, Copy)]
pub struct Tap<'a> {
    /// Its name.
    pub name: &'a str,
    /// Several programs may each have a queue of it.
    pub multi_queue: bool,
    /// The user who may open it; everybody with the right to make devices if none.
    pub owner: Option<u32>,
    /// The group that may.
    pub group: Option<u32>,
}

/// A tap device that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("tap {name}: cannot {call}")]
pub struct TapError {
    /// The device.
    pub name: String,
    /// What was tried.
    pub call: &'static str,
    /// What the system said.
    pub source: io::Error,
}

impl TapError {
    /// True if there is a link of that name already.
    #[must_use]
    pub fn already_exists(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::EBUSY | libc::EEXIST | libc::EINVAL))
            && self.call == "make it"
    }
}

/// `struct ifreq`, as far as the calls here go.
#[repr(C)]
struct Ifreq {
    name: [u8; libc::IFNAMSIZ],
    flags: i16,
    rest: [u8; 22],
}

fn ioctl(file: &File, request: libc::Ioctl, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: these requests of a tun file take a number, or the address of an `ifreq` that outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Tap<'_> {
    /// Makes it in the calling thread's network namespace; it stays without a program.
    ///
    /// # Errors
    /// [`TapError`].
    pub fn make(&self) -> Result<(), TapError> {
        let failed = |call: &'static str| move |source| TapError { name: self.name.to_owned(), call, source };
        let file =
            OpenOptions::new().read(true).write(true).open(DEVICE).map_err(failed("open /dev/net/tun"))?;
        let queues = if self.multi_queue { libc::IFF_MULTI_QUEUE } else { 0 };
        // Without IFF_TUN_EXCL one that is there would be taken over.
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_TUN_EXCL | queues;
        let mut request = Ifreq {
            name: [0; libc::IFNAMSIZ],
            flags: u16::try_from(flags).unwrap_or_default().cast_signed(),
            rest: [0; 22],
        };
        for (to, from) in request.name.iter_mut().take(libc::IFNAMSIZ - 1).zip(self.name.bytes()) {
            *to = from;
        }
        ioctl(&file, TUNSETIFF, (&raw mut request) as libc::c_ulong).map_err(failed("make it"))?;
        if let Some(owner) = self.owner {
            ioctl(&file, TUNSETOWNER, owner.into()).map_err(failed("set its owner"))?;
        }
        if let Some(group) = self.group {
            ioctl(&file, TUNSETGROUP, group.into()).map_err(failed("set its group"))?;
        }
        ioctl(&file, TUNSETPERSIST, 1).map_err(failed("keep it"))
    }
}

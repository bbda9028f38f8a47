//! Work that a link may leave to its hardware. Links are those of the calling thread's network namespace.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, socket};

// `linux/sockios.h`, `linux/ethtool.h`
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GET_TX_CHECKSUM: u32 = 0x16;
const SET_TX_CHECKSUM: u32 = 0x17;

/// A link that could not be asked or told.
#[derive(Debug, thiserror::Error)]
#[error("link {link}: cannot {call} who computes the checksums of what it sends")]
pub struct OffloadError {
    /// The link.
    pub link: String,
    /// `read` or `set`.
    pub call: &'static str,
    /// What the system said.
    pub source: io::Error,
}

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq` with `ifr_data`
#[repr(C)]
struct Ifreq {
    name: [u8; libc::IFNAMSIZ],
    data: *mut Value,
    rest: [u8; 16],
}

fn ask(link: &str, command: u32, data: u32) -> io::Result<u32> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut value = Value { command, data };
    let mut request = Ifreq { name: [0; libc::IFNAMSIZ], data: &raw mut value, rest: [0; 16] };
    for (to, from) in request.name.iter_mut().take(libc::IFNAMSIZ - 1).zip(link.bytes()) {
        *to = from;
    }
    // SAFETY: both structures are the kernel's, `request` leads to `value`, and both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value.data) }
}

/// True if the checksums of what `link` sends are left to what comes after it.
///
/// # Errors
/// [`OffloadError`].
pub fn sent_checksums(link: &str) -> Result<bool, OffloadError> {
    let failed = |source| OffloadError { link: link.to_owned(), call: "read", source };
    ask(link, GET_TX_CHECKSUM, 0).map(|value| value != 0).map_err(failed)
}

/// Leaves the checksums of what `link` sends to what comes after it, or has them computed at once.
///
/// # Errors
/// [`OffloadError`].
pub fn leave_sent_checksums(link: &str, on: bool) -> Result<(), OffloadError> {
    let failed = |source| OffloadError { link: link.to_owned(), call: "set", source };
    ask(link, SET_TX_CHECKSUM, on.into()).map(drop).map_err(failed)
}

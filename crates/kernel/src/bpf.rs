//! Small programs that the kernel runs for us. Only what guards the devices of a version 2 cgroup.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

// Numbers from the kernel's uapi/linux/bpf.h.
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_ATTACH: libc::c_long = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
/// Groups above may have programs too; all of them are asked.
const BPF_F_ALLOW_MULTI: u32 = 2;

/// The part of `union bpf_attr` for [`BPF_PROG_LOAD`] up to where newer fields begin.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// The part of `union bpf_attr` for [`BPF_PROG_ATTACH`].
#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

const _: () = assert!(size_of::<Load>() == 48 && size_of::<Attach>() == 16);

/// Has `program` asked before a process of the group `folder`, or below it, uses a device; it lives as long as the group. To be
/// called once for a group.
///
/// # Errors
/// What the kernel says: that it has no such programs, or that the program is not one.
pub(crate) fn guard_devices(folder: &Path, program: &[u64]) -> io::Result<()> {
    let group = File::open(folder)?;
    let loaded = load(program)?;
    let attach = Attach {
        target: group.as_raw_fd().unsigned_abs(),
        program: loaded.as_raw_fd().unsigned_abs(),
        kind: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    // SAFETY: `attach` has the layout that the command reads, and lives through the call.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_ATTACH, &raw const attach, size_of::<Attach>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn load(program: &[u64]) -> io::Result<OwnedFd> {
    let licence = c"Apache-2.0";
    let load = Load {
        kind: BPF_PROG_TYPE_CGROUP_DEVICE,
        count: u32::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr() as u64,
        licence: licence.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: `load` has the layout that the command reads; it and what it points to live through the call, and the pointers'
    // lengths are those that it names.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
    let fd = i32::try_from(result).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

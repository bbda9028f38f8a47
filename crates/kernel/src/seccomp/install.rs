//! Puts a program on the calling thread.
#![allow(unsafe_code)]

use rustix::io::Errno;

use super::assemble::Instruction;

const SET_MODE_FILTER: libc::c_ulong = 1;

/// A profile as the kernel takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub(super) instructions: Vec<Instruction>,
    pub(super) flags: u32,
}

/// `struct sock_fprog`.
#[repr(C)]
struct Handed {
    length: u16,
    instructions: *const Instruction,
}

impl Program {
    /// From now on the calling thread, and what it starts, makes only the calls that the program lets it make.
    ///
    /// # Errors
    /// EACCES with neither CAP_SYS_ADMIN nor `no_new_privs`; EINVAL if the kernel has no filters.
    pub fn install(&self) -> Result<(), Errno> {
        let length = u16::try_from(self.instructions.len()).map_err(|_| Errno::INVAL)?;
        let handed = Handed { length, instructions: self.instructions.as_ptr() };
        // SAFETY: `handed` has the layout that the call reads; it and the instructions that it counts live through the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                SET_MODE_FILTER,
                libc::c_ulong::from(self.flags),
                std::ptr::from_ref(&handed),
            )
        };
        if result == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        Err(Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
    }
}

//! A terminal of the container's own devpts, whose other end goes to the caller.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, ptsname, unlockpt};

use super::SetupError;
use super::root::{bind_file, touch};

/// Opens a terminal, makes it this session's and its standard streams, and gives back the caller's end. With
/// `console` it is `/dev/console` too.
pub(super) fn open(console: bool) -> Result<OwnedFd, SetupError> {
    let step = "open a terminal";
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let master =
        rustix::fs::open("/dev/pts/ptmx", flags, rustix::fs::Mode::empty()).map_err(SetupError::at(step))?;
    unlockpt(&master).map_err(SetupError::at(step))?;
    let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .map_err(SetupError::at(step))?;
    if console {
        let name = ptsname(&master, Vec::new()).map_err(SetupError::at(step))?;
        touch(Path::new("/dev/console"))?;
        let name = name.to_string_lossy().into_owned();
        bind_file(Path::new(&name), Path::new("/dev/console"))?;
    }
    rustix::process::ioctl_tiocsctty(&slave).map_err(SetupError::at("make the terminal ours"))?;
    rustix::stdio::dup2_stdin(&slave).map_err(SetupError::at(step))?;
    rustix::stdio::dup2_stdout(&slave).map_err(SetupError::at(step))?;
    rustix::stdio::dup2_stderr(&slave).map_err(SetupError::at(step))?;
    Ok(master)
}

//! The namespaces of a Pod that has users of its own: a child is born in a new user namespace and, as its root, in the others, so
//! that they are that namespace's; the keeper pins what others have to find and moves into those that it is to have itself. It stays
//! a process of the host.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::pipe::{PipeFlags, pipe_with};
use trine_kernel::proc::{NewNamespaces, exit_now, fork, hold_pid_namespace, namespace};

use super::spawn::{Settings, Users};
use super::start::leave_streams;

/// Gets them; the pid namespace that the containers share, if they do.
pub(super) fn enter(settings: &Settings, users: &Users) -> Result<Option<OwnedFd>, String> {
    let wanted = NewNamespaces {
        mount: false,
        pid: settings.share_pid,
        user: true,
        network: settings.netns.is_some(),
        ipc: settings.new_ipc,
        uts: settings.hostname.is_some(),
    };
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| format!("{what}: {error}")
    };
    let (wait, go) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| format!("make a pipe: {e}"))?;
    let child = fork(wanted, None, &[wait.as_fd()], || {
        let _ = leave_streams();
        // Until the keeper has taken what it wants; the namespaces live by that then.
        let _ = rustix::io::read(&wait, &mut [0_u8; 1]);
        if wanted.pid { hold_pid_namespace() } else { exit_now(0) }
    })
    .map_err(failed("make a user namespace"))?;
    let [uids, gids] = users.owners.maps();
    for (file, map) in [("uid_map", uids), ("gid_map", gids)] {
        std::fs::write(format!("/proc/{}/{file}", child.pid), map)
            .map_err(failed(&format!("write its {file}")))?;
    }
    pin(child.pid, "user", &users.pin)?;
    if let Some(path) = &settings.netns {
        pin(child.pid, "net", path)?;
    }
    namespace::enter_shared_of(&child.pidfd, wanted.network, wanted.ipc, wanted.uts)
        .map_err(failed("enter the namespaces of the Pod's users"))?;
    if let Some(hostname) = &settings.hostname {
        rustix::system::sethostname(hostname.as_bytes()).map_err(|e| format!("set the host name: {e}"))?;
    }
    let shared = settings.share_pid.then(|| namespace::pid_namespace(child.pid)).transpose();
    let shared = shared.map_err(failed("open the pid namespace"))?;
    drop(go);
    if !settings.share_pid {
        let pid = rustix::process::Pid::from_raw(child.pid);
        let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
    }
    Ok(shared)
}

/// Pins a namespace of the child, so that it is found by its path and outlives it.
fn pin(pid: i32, kind: &str, path: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("pin the {kind} namespace at {}: {error}", path.display());
    std::fs::File::create(path).map_err(failed)?;
    namespace::pin(pid, kind, path).map_err(failed)
}

//! How a container's process comes to be. The seam for other OCI runtimes.

use std::io;
use std::os::fd::OwnedFd;

use trine_kernel::container::oci::{Process, Spec};
use trine_kernel::container::{Child, Groups, Owners, Stdio, create, join};
use trine_kernel::seccomp::profile::Seccomp;

/// Makes the processes of containers. Called by a keeper, which has one thread; both calls return at once, and what
/// the child has to say comes over [`Child::reports`]. A child that hangs is killed by the caller at its deadline.
pub trait Launcher {
    /// A container's first process, set up to wait for its start. It is in the caller's network, IPC and UTS
    /// namespaces, and in `pid_namespace` unless `spec` gives it one of its own.
    ///
    /// # Errors
    /// If there cannot even be a child.
    fn create(
        &self,
        spec: &Spec,
        groups: &[Groups],
        pid_namespace: Option<&OwnedFd>,
        stdio: &Stdio,
    ) -> io::Result<Child>;

    /// A further process, held by a seccomp profile, in the container whose first process is `init` (pid and pidfd), with the
    /// container's own users.
    ///
    /// # Errors
    /// If there cannot even be a child.
    fn join(
        &self,
        init: (i32, &OwnedFd),
        process: &Process,
        held: (Option<&Seccomp>, &Owners),
        groups: &[Groups],
        stdio: &Stdio,
    ) -> io::Result<Child>;
}

/// Containers by our own hand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native;

impl Launcher for Native {
    fn create(
        &self,
        spec: &Spec,
        groups: &[Groups],
        pid_namespace: Option<&OwnedFd>,
        stdio: &Stdio,
    ) -> io::Result<Child> {
        create(spec, groups, pid_namespace, stdio)
    }

    fn join(
        &self,
        init: (i32, &OwnedFd),
        process: &Process,
        held: (Option<&Seccomp>, &Owners),
        groups: &[Groups],
        stdio: &Stdio,
    ) -> io::Result<Child> {
        join(init, process, held, groups, stdio)
    }
}

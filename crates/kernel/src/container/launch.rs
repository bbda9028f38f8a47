//! The child that becomes a container's process.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::oci::{Process, Spec};
use super::owners::Owners;
use super::privileges::Rest;
use super::report::{Report, Reporter, pair};
use super::{SetupError, console, privileges, program, root, words};
use crate::proc::{Forked, NewNamespaces, exit_now, fork, namespace};
use crate::seccomp::profile::Seccomp;

/// One cgroup that the child joins.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Groups {
    /// The controller, as its mount point is named; empty on a unified hierarchy.
    pub name: String,
    /// The group's folder on the host.
    pub folder: PathBuf,
}

impl Groups {
    /// Version 1's file of threads, which version 2 does not have. A thread that moves itself there takes no lock over all the
    /// machine's processes: a process that does by `cgroup.procs` waits for an RCU grace period (12 ms measured), and meanwhile
    /// nobody can fork. The child has one thread.
    fn tasks(&self) -> PathBuf {
        self.folder.join("tasks")
    }
}

/// The child's ends of its standard streams; `/dev/null` where there is none. Unused with a terminal.
#[derive(Debug, Default)]
pub struct Stdio {
    /// What it reads.
    pub stdin: Option<OwnedFd>,
    /// What it writes.
    pub stdout: Option<OwnedFd>,
    /// What it complains on.
    pub stderr: Option<OwnedFd>,
}

/// A child on its way.
#[derive(Debug)]
pub struct Child {
    /// Its pid.
    pub pid: i32,
    /// Becomes readable when it has ended; it is to be reaped by the caller.
    pub pidfd: OwnedFd,
    /// For [`super::receive`].
    pub reports: OwnedFd,
    /// One byte written here starts the program; closing it ends the child.
    pub start: OwnedFd,
}

/// Forks a child that makes the container of `spec`. It is in the caller's network, IPC and UTS namespaces, and has
/// a pid namespace of its own if `spec` asks for one; else it is born where `pid_namespace` says. Returns at once.
///
/// # Errors
/// If it cannot be forked; everything later comes as a [`Report`].
pub fn create(
    spec: &Spec,
    groups: &[Groups],
    pid_namespace: Option<&OwnedFd>,
    stdio: &Stdio,
) -> io::Result<Child> {
    let own = |kind: &str| spec.linux.namespaces.iter().any(|n| n.kind == kind && n.path.is_none());
    let namespaces = NewNamespaces { mount: true, pid: own("pid"), ..NewNamespaces::default() };
    let owners = Owners { uids: spec.linux.uid_mappings.clone(), gids: spec.linux.gid_mappings.clone() };
    let users = spec.linux.namespaces.iter().find(|n| n.kind == "user").and_then(|n| n.path.clone());
    launch(namespaces, groups, pid_namespace, None, stdio, |reporter, born| {
        begin(stdio, groups, born, &spec.process)?;
        if let Some(note) = privileges::set_oom_score(&spec.process) {
            reporter.say(&Report::Note(note));
        }
        let users = match &users {
            Some(path) => Some(File::open(path).map_err(SetupError::io("open the user namespace"))?),
            None => None,
        };
        root::enter(spec, groups, &owners, users.as_ref().map(AsFd::as_fd))?;
        if spec.process.terminal {
            reporter.say(&Report::Console(console::open(true)?));
        }
        root::seal(spec)?;
        limit(&spec.process, &owners)?;
        if let Some(users) = users {
            namespace::enter_users(&users).map_err(SetupError::io("enter the user namespace"))?;
        }
        if own("cgroup") {
            namespace::new_cgroup().map_err(SetupError::io("make a cgroup namespace"))?;
        }
        let rest = finish(&spec.process, spec.linux.seccomp.as_ref())?;
        Ok((spec.process.clone(), rest))
    })
}

/// Forks a child that becomes `process`, held by `seccomp`, inside the container whose first process is `init` and whose users are
/// `owners`. Returns at once.
///
/// # Errors
/// If it cannot be forked; everything later comes as a [`Report`].
pub fn join(
    init: (i32, &OwnedFd),
    process: &Process,
    (seccomp, owners): (Option<&Seccomp>, &Owners),
    groups: &[Groups],
    stdio: &Stdio,
) -> io::Result<Child> {
    let pid_namespace = namespace::pid_namespace(init.0)?;
    launch(NewNamespaces::default(), groups, Some(&pid_namespace), Some(init.1), stdio, |reporter, born| {
        begin(stdio, groups, born, process)?;
        if let Some(note) = privileges::set_oom_score(process) {
            reporter.say(&Report::Note(note));
        }
        if !process.terminal {
            limit(process, owners)?;
        }
        namespace::enter_root_of(init.1, !owners.are_the_hosts())
            .map_err(SetupError::io("enter the container"))?;
        if process.terminal {
            reporter.say(&Report::Console(console::open(false)?));
            limit(process, &Owners::default())?;
        }
        let rest = finish(process, seccomp)?;
        Ok((process.clone(), rest))
    })
}

/// `set_up` is told whether it runs in the version 2 group already.
fn launch(
    namespaces: NewNamespaces,
    groups: &[Groups],
    pid_namespace: Option<&OwnedFd>,
    init: Option<&OwnedFd>,
    stdio: &Stdio,
    set_up: impl Fn(&Reporter<'_>, bool) -> Result<(Process, Rest), SetupError>,
) -> io::Result<Child> {
    let (reports, child_reports) = pair()?;
    let (child_start, start) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut keep = vec![child_reports.as_fd(), child_start.as_fd()];
    keep.extend([&stdio.stdin, &stdio.stdout, &stdio.stderr].into_iter().flatten().map(AsFd::as_fd));
    keep.extend(init.into_iter().map(AsFd::as_fd));
    let birthplace = groups.iter().find(|group| !group.tasks().exists());
    let birthplace = birthplace.and_then(|group| File::open(&group.folder).ok());
    let fork_in = |group: Option<&File>| {
        fork(namespaces, group.map(AsFd::as_fd), &keep, || -> Infallible {
            let reporter = Reporter(&child_reports);
            let why = match set_up(&reporter, group.is_some()) {
                Err(error) => error.to_string(),
                Ok((process, rest)) => {
                    reporter.say(&Report::Ready);
                    if !wait_for_word(&child_start) {
                        exit_now(0);
                    }
                    program::run(&process, &rest)
                }
            };
            reporter.say(&Report::Failed(why));
            exit_now(127)
        })
    };
    let fork = || match &birthplace {
        // What cannot be born there says why when it tries to go there.
        Some(group) => fork_in(Some(group)).or_else(|_| fork_in(None)),
        None => fork_in(None),
    };
    let Forked { pid, pidfd } = match pid_namespace {
        Some(namespace) => namespace::with_children_in(namespace, fork)?,
        None => fork()?,
    };
    Ok(Child { pid, pidfd, reports, start })
}

fn wait_for_word(start: &OwnedFd) -> bool {
    let mut byte = [0];
    loop {
        match rustix::io::read(start, &mut byte) {
            Err(rustix::io::Errno::INTR) => {}
            result => return matches!(result, Ok(1)),
        }
    }
}

/// What comes before the host is out of sight.
fn begin(stdio: &Stdio, groups: &[Groups], born: bool, process: &Process) -> Result<(), SetupError> {
    rustix::process::setsid().map_err(SetupError::at("start a session"))?;
    if !process.terminal {
        let step = || SetupError::at("set the standard streams");
        if let Some(fd) = &stdio.stdin {
            rustix::stdio::dup2_stdin(fd).map_err(step())?;
        }
        if let Some(fd) = &stdio.stdout {
            rustix::stdio::dup2_stdout(fd).map_err(step())?;
        }
        if let Some(fd) = &stdio.stderr {
            rustix::stdio::dup2_stderr(fd).map_err(step())?;
        }
    }
    for group in groups {
        let tasks = group.tasks();
        let file = match (tasks.exists(), born) {
            (true, _) => tasks,
            (false, true) => continue,
            (false, false) => group.folder.join("cgroup.procs"),
        };
        std::fs::write(&file, "0").map_err(|error| SetupError {
            step: format!("join the cgroup {}", group.folder.display()),
            cause: words(&error),
        })?;
    }
    Ok(())
}

/// What only the host's administrator may do.
fn limit(process: &Process, owners: &Owners) -> Result<(), SetupError> {
    privileges::own_streams(process, owners);
    privileges::set_limits(&process.rlimits)
}

/// What comes when everything is mounted: privileges. What is left is for just before the program.
fn finish(process: &Process, seccomp: Option<&Seccomp>) -> Result<Rest, SetupError> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let rest = privileges::drop_to(process, seccomp)?;
    // After the change of user, which would undo it. The keeper's end is the container's.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(SetupError::at("tie the process to its keeper"))?;
    Ok(rest)
}

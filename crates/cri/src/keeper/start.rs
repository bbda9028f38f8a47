//! The keeper process from its first instruction to its loop.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;

use trine_kernel::proc::{NewNamespaces, ProcessId, become_subreaper, fork, hold_pid_namespace, namespace};
use trine_kernel::sysctl;

use super::launcher::Native;
use super::looping::Keeper;
use super::nursery;
use super::spawn::{Settings, at_short_path};
use super::users;

/// Its word on standard output when it serves; anything else is why it does not.
pub(super) const READY: &str = "ready\n";

/// Runs keepers; `arguments` are those after `keeper`. To be called before there is any thread or runtime.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    if arguments.into_iter().next().is_some_and(|word| word == nursery::WORD) {
        return nursery::run(keep);
    }
    eprintln!("keeper: it is called by the runtime alone");
    ExitCode::FAILURE
}

/// Runs the keeper of the sandbox in `folder`. Standard input is the sandbox's lock file, which it holds as long as it lives.
fn keep(folder: &Path, settings: &[u8]) -> ExitCode {
    let (keeper, _lock) = match set_up(folder, settings) {
        Ok(ready) => ready,
        Err(why) => {
            let _ = io::stdout().write_all(why.as_bytes());
            return ExitCode::FAILURE;
        }
    };
    let said = io::stdout().write_all(READY.as_bytes()).and_then(|()| io::stdout().flush());
    if let Err(error) = said.and_then(|()| leave_streams()) {
        eprintln!("keeper: cannot leave its starter: {error}");
        return ExitCode::FAILURE;
    }
    match keeper.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("keeper: {error}");
            ExitCode::FAILURE
        }
    }
}

fn set_up(folder: &Path, settings: &[u8]) -> Result<(Keeper, OwnedFd), String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| format!("{what}: {error}")
    };
    rustix::process::setsid().map_err(|e| format!("start a session: {e}"))?;
    let _ = rustix::thread::set_name(c"trine-keeper");
    become_subreaper().map_err(failed("become the parent of orphans"))?;
    let lock = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)
        .map_err(|e| format!("keep the lock: {e}"))?;
    std::env::set_current_dir("/").map_err(failed("leave the folder"))?;
    let own = ProcessId::own().map_err(failed("read its own identity"))?;
    let own = serde_json::to_vec(&own).map_err(|e| e.to_string())?;
    let mut file = File::from(lock.try_clone().map_err(failed("keep the lock"))?);
    file.write_all(&own).and_then(|()| file.set_len(own.len() as u64)).map_err(failed("write its pid"))?;
    let settings: Settings = serde_json::from_slice(settings).map_err(|e| format!("its settings: {e}"))?;
    // Before the namespaces: the folder's path must not depend on them.
    let listener = at_short_path(folder, "keeper.sock", |path| {
        let _ = std::fs::remove_file(path);
        UnixListener::bind(path)
    })
    .map_err(failed("listen"))?;
    listener.set_nonblocking(true).map_err(failed("listen"))?;
    let shared_pid = enter(&settings)?;
    let keeper = Keeper {
        launcher: Box::new(Native),
        listener,
        shared_pid,
        connections: BTreeMap::new(),
        tasks: BTreeMap::new(),
        next: 1,
        shutdown: None,
    };
    Ok((keeper, lock))
}

/// Gets the Pod's namespaces. What is told to keep the host's, keeps them.
fn enter(settings: &Settings) -> Result<Option<OwnedFd>, String> {
    let shared = match &settings.users {
        Some(users) => users::enter(settings, users)?,
        None => enter_as_host(settings)?,
    };
    for (key, value) in &settings.sysctls {
        sysctl::write(&key.replace('.', "/"), value).map_err(|e| {
            let source = std::error::Error::source(&e).map(ToString::to_string).unwrap_or_default();
            format!("{e}: {source}")
        })?;
    }
    Ok(shared)
}

/// Those of a Pod whose users are the host's; the pid namespace that its containers share, if they do.
fn enter_as_host(settings: &Settings) -> Result<Option<OwnedFd>, String> {
    if let Some(path) = &settings.netns {
        namespace::enter_network(path)
            .map_err(|e| format!("enter the network namespace {}: {e}", path.display()))?;
    }
    if settings.new_ipc {
        namespace::new_ipc().map_err(|e| format!("make an IPC namespace: {e}"))?;
    }
    if let Some(hostname) = &settings.hostname {
        namespace::new_uts(hostname).map_err(|e| format!("make a UTS namespace: {e}"))?;
    }
    if !settings.share_pid {
        return Ok(None);
    }
    let first = fork(NewNamespaces { pid: true, ..NewNamespaces::default() }, None, &[], || {
        // Or it would hold the starter's pipe and the lock.
        let _ = leave_streams();
        hold_pid_namespace()
    })
    .map_err(|e| format!("make a pid namespace: {e}"))?;
    namespace::pid_namespace(first.pid).map(Some).map_err(|e| format!("open the pid namespace: {e}"))
}

/// Lets go of the pipe to the starter; standard error stays, it is the keepers' log.
pub(super) fn leave_streams() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

//! StopPodSandbox: containers killed, keeper ended, network detached, namespaces let go. Every step is tried; what
//! failed is reported together and tried again by the next call.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::Instrument;
use trine_kernel::mountpoint::unmount_all;
use trine_kernel::netns;
use trine_kernel::proc::{SIGKILL, signal_pidfd};
use trine_kernel::testing::failpoint;

use super::network::attachments;
use super::record::{Sandbox, SandboxState};
use crate::container::State;
use crate::error::{CriError, chain};
use crate::keeper::{Client, Request, spawn};
use crate::runtime::{Runtime, lost};

const CALL: &str = "StopPodSandbox";
/// How long the end of all processes may take.
const KILL_DEADLINE: Duration = Duration::from_secs(20);
/// How long detaching from a network may take.
const NETWORK_DEADLINE: Duration = Duration::from_secs(60);
/// Between two looks whether a keeper has gone.
const PAUSE: Duration = Duration::from_millis(1);

impl Runtime {
    /// Stops a sandbox; unknown or stopped is success.
    ///
    /// # Errors
    /// [`CriError`] of what could not be undone; processes are gone nevertheless if they could be killed.
    pub(crate) async fn stop_sandbox(&self, id: &str) -> Result<(), CriError> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        let span = tracing::info_span!(
            target: "trine::step", "StopPodSandbox", plane = "cri", sandbox = sandbox.id.as_str(),
            pod = sandbox.record().pod.as_str(), error = tracing::field::Empty
        );
        let runtime = self.clone();
        let stop = async move {
            let _turn = sandbox.busy.lock().await;
            if runtime.has_sandbox(&sandbox) { runtime.stop_sandbox_now(&sandbox).await } else { Ok(()) }
        };
        let result = tokio::spawn(stop.instrument(span.clone())).await.map_err(CriError::joined(CALL))?;
        if let Err(error) = &result {
            span.record("error", chain(error));
        }
        result
    }

    pub(crate) async fn stop_sandbox_now(&self, sandbox: &Arc<Sandbox>) -> Result<(), CriError> {
        // One that is still being made stays so: nobody knows it, and who finds its record undoes it.
        if sandbox.record().state == SandboxState::Ready {
            let _ = sandbox.update(|record| record.state = SandboxState::NotReady);
        }
        failpoint("StopPodSandbox: not ready");
        // The processes first: that the network cannot be detached must not keep them alive.
        let mut failed: Vec<String> = self.end_processes(sandbox).await.err().into_iter().collect();
        failpoint("StopPodSandbox: processes");
        failed.extend(self.release(sandbox).await);
        undone(sandbox, failed)
    }

    /// Gives back what a sandbox without processes has: its place on the network, its mounts, its namespace.
    ///
    /// # Errors
    /// [`CriError`] of what stays.
    pub(crate) async fn release_sandbox(&self, sandbox: &Sandbox) -> Result<(), CriError> {
        undone(sandbox, self.release(sandbox).await)
    }

    /// Every step is tried; those that failed come back.
    async fn release(&self, sandbox: &Sandbox) -> Vec<String> {
        let mut failed = Vec::new();
        let record = sandbox.record();
        if record.attached {
            failed = self.detach(sandbox).await;
            if failed.is_empty() {
                let _ = sandbox.update(|record| record.attached = false);
            }
            failpoint("StopPodSandbox: detached");
        }
        if let Err(error) = unmount_all(&sandbox.folder.join("shm"), true) {
            failed.push(chain(&error));
        }
        if let Err(error) = netns::delete(&sandbox.users_pin()) {
            failed.push(chain(&error));
        }
        failpoint("StopPodSandbox: unmounted");
        // Kept while the network holds on to it: DEL may want to enter it.
        if let Some(path) = &record.netns
            && !sandbox.record().attached
            && let Err(error) = netns::delete(path)
        {
            failed.push(chain(&error));
        }
        failpoint("StopPodSandbox: released");
        failed
    }

    /// Detaches it from its networks, the last one first. One that fails keeps no other from it.
    async fn detach(&self, sandbox: &Sandbox) -> Vec<String> {
        let record = sandbox.record();
        let Some(netns) = &record.netns else { return Vec::new() };
        let mut failed = Vec::new();
        for (_, attachment) in attachments(&sandbox.id, netns, &record.config).iter().rev() {
            let detached = tokio::time::timeout(NETWORK_DEADLINE, self.inner.network.del(attachment)).await;
            let object = || sandbox.id.clone();
            let error = match detached {
                Ok(Ok(())) => None,
                Ok(Err(error)) => {
                    Some(CriError::Network { call: CALL, object: object(), source: Box::new(error) })
                }
                Err(_) => Some(CriError::Timeout { call: "DEL", object: object(), after: NETWORK_DEADLINE }),
            };
            failed.extend(error.map(|error| chain(&error)));
            failpoint("StopPodSandbox: network");
        }
        failed
    }

    /// Kills containers and keeper: by the keeper's own hand if it answers, by its pid and the cgroups if not.
    pub(crate) async fn end_processes(&self, sandbox: &Arc<Sandbox>) -> Result<(), String> {
        let client = match sandbox.keeper() {
            Some(client) => Some(client),
            None if spawn::lives(&sandbox.folder) => {
                Client::connect(&sandbox.folder).await.ok().map(|(c, _)| c)
            }
            None => None,
        };
        if let Some(client) = client {
            // That the connection breaks while it ends is no failure.
            let _ = client.call(Request::Shutdown, KILL_DEADLINE).await;
        }
        let result = self.wait_for_keeper(sandbox).await;
        for container in self.containers_of(&sandbox.id) {
            self.group(&container.record().cgroup).kill();
            if container.state() != State::Exited {
                self.container_exited(&container.id, lost(&container.folder));
            }
        }
        sandbox.set_keeper(None);
        result
    }

    async fn wait_for_keeper(&self, sandbox: &Sandbox) -> Result<(), String> {
        let deadline = Instant::now() + KILL_DEADLINE;
        let mut killed = false;
        ended(&sandbox.folder).await;
        while spawn::lives(&sandbox.folder) {
            if Instant::now() > deadline {
                return Err("the keeper does not end".to_owned());
            }
            // One that does not listen is killed; its children die with it.
            if !killed && Instant::now() + KILL_DEADLINE - KILL_DEADLINE / 10 > deadline {
                killed = true;
                if let Some(process) = spawn::recorded(&sandbox.folder)
                    && let Ok(pidfd) = process.open()
                {
                    let _ = signal_pidfd(&pidfd, SIGKILL);
                }
                for container in self.containers_of(&sandbox.id) {
                    self.group(&container.record().cgroup).kill();
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// Waits until the keeper that wrote itself down has ended, for most of the time that it has.
async fn ended(folder: &Path) {
    let keeper = spawn::recorded(folder).and_then(|keeper| keeper.open().ok());
    let Some(pidfd) = keeper else { return };
    let most = KILL_DEADLINE - KILL_DEADLINE / 10;
    let _ = tokio::task::spawn_blocking(move || {
        let timeout = Timespec { tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))
    })
    .await;
}

fn undone(sandbox: &Sandbox, failed: Vec<String>) -> Result<(), CriError> {
    if failed.is_empty() {
        return Ok(());
    }
    Err(CriError::Undone { call: CALL, object: sandbox.id.clone(), failed })
}

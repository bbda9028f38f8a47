//! StartContainer, StopContainer, RemoveContainer, UpdateContainerResources, ReopenContainerLog.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::Instrument;
use trine_contracts::cri::{ContainerConfig, ContainerEventType, LinuxContainerResources};
use trine_kernel::proc::SIGKILL;
use trine_kernel::testing::failpoint;

use super::image_volume;
use super::record::{Container, State};
use super::spec::limits;
use crate::error::{CriError, chain};
use crate::keeper::{KeeperError, Reply, Request};
use crate::runtime::{Runtime, now};
use crate::sandbox::Sandbox;

/// How long the keeper may take to start a program.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// How long a killed process may take to be gone.
const KILL_DEADLINE: Duration = Duration::from_secs(10);
/// How long the keeper may take for what is quick.
const QUICK: Duration = Duration::from_secs(5);
/// How long a program that does not hear its stop signal is left before it is looked at again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Longest grace, s, so that a foolish one does not overflow a clock.
const MAX_GRACE: u64 = 60 * 60 * 24 * 365;

impl Runtime {
    fn pod_of(&self, container: &Container) -> Result<Arc<Sandbox>, CriError> {
        self.sandbox(&container.sandbox)
    }

    fn step(&self, name: &'static str, container: &Container) -> tracing::Span {
        let pod = self.pod_of(container).map(|s| s.record().pod).unwrap_or_default();
        let called = container.record().config.metadata.clone().map(|m| m.name).unwrap_or_default();
        let (pod, called, sandbox) = (pod.as_str(), called.as_str(), container.sandbox.as_str());
        macro_rules! span {
            ($name:literal) => {
                tracing::info_span!(
                    target: "trine::step", $name, plane = "cri", pod, sandbox, container = called,
                    error = tracing::field::Empty
                )
            };
        }
        match name {
            "StartContainer" => span!("StartContainer"),
            "StopContainer" => span!("StopContainer"),
            _ => span!("RemoveContainer"),
        }
    }

    /// Starts a container that was created; one that runs, or that somebody else starts at this moment, is started.
    ///
    /// # Errors
    /// [`CriError`]; if its program cannot be executed, with the words for it, and the container has ended.
    pub(crate) async fn start_container(&self, id: &str) -> Result<(), CriError> {
        const CALL: &str = "StartContainer";
        let container = self.container(id)?;
        let span = self.step(CALL, &container);
        let (runtime, before) = (self.clone(), container.state());
        let start = async move {
            let _turn = container.busy.lock().await;
            runtime.start_container_now(&container, before).await
        };
        let result = tokio::spawn(start.instrument(span.clone())).await.map_err(CriError::joined(CALL))?;
        if let Err(error) = &result {
            span.record("error", chain(error));
        }
        result
    }

    /// `before` is how far it was when the call came in.
    async fn start_container_now(&self, container: &Arc<Container>, before: State) -> Result<(), CriError> {
        const CALL: &str = "StartContainer";
        let state = container.state();
        let record = container.record();
        let ran = record.started_at > 0 && record.exit.is_none_or(|exit| exit.error.is_none());
        if state == State::Running || (before == State::Created && state == State::Exited && ran) {
            return Ok(());
        }
        if state != State::Created {
            return Err(CriError::State {
                call: CALL,
                object: container.id.clone(),
                why: format!("it is {state:?}, not Created"),
            });
        }
        let keeper = self.keeper(CALL, &*self.pod_of(container)?)?;
        failpoint("StartContainer: begun");
        let request = Request::Start { container: container.id.clone() };
        if let Err(source) = keeper.call(request, START_DEADLINE).await {
            if matches!(source, KeeperError::Failed(_)) {
                // Its end follows as an event; whoever asks next shall see it ended.
                let _ = tokio::time::timeout(QUICK, container.exited()).await;
            }
            return Err(CriError::Keeper { call: CALL, object: container.id.clone(), source });
        }
        failpoint("StartContainer: runs");
        container
            .update(|record| {
                if record.started_at == 0 {
                    record.started_at = now();
                }
                if record.state == State::Created {
                    record.state = State::Running;
                }
            })
            .map_err(CriError::io("write the record in", &container.folder))?;
        failpoint("StartContainer: recorded");
        self.tell(container, ContainerEventType::ContainerStartedEvent);
        Ok(())
    }

    /// Stops a container: its signal, `grace` seconds, then KILL. Unknown or ended is success.
    ///
    /// # Errors
    /// [`CriError::Timeout`] if it cannot even be killed.
    pub(crate) async fn stop_container(&self, id: &str, grace: i64) -> Result<(), CriError> {
        let Ok(container) = self.container(id) else { return Ok(()) };
        let span = self.step("StopContainer", &container);
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0).min(MAX_GRACE));
        let result = self.stop_container_now(&container, grace).instrument(span.clone()).await;
        if let Err(error) = &result {
            span.record("error", chain(error));
        }
        result
    }

    /// Without its lock: a second call with a shorter grace must not wait for the first.
    async fn stop_container_now(&self, container: &Arc<Container>, grace: Duration) -> Result<(), CriError> {
        const CALL: &str = "StopContainer";
        match container.state() {
            State::Exited => return Ok(()),
            State::Running if !grace.is_zero() => {
                // Once, however many ask: a second one makes programs give up what they are about.
                let ends = async {
                    self.tell_to_stop(container).await?;
                    failpoint("StopContainer: told");
                    container.exited().await;
                    Ok(())
                };
                if let Ok(ended) = tokio::time::timeout(grace, ends).await {
                    return ended;
                }
            }
            _ => {}
        }
        // A keeper that does not answer is no reason to let it live: its group is killed then.
        let killed = self.signal(container, SIGKILL, false).await;
        failpoint("StopContainer: killed");
        if killed.is_ok() && tokio::time::timeout(KILL_DEADLINE, container.exited()).await.is_ok() {
            return Ok(());
        }
        self.group(&container.record().cgroup).kill();
        tokio::time::timeout(KILL_DEADLINE, container.exited()).await.map_err(|_| CriError::Timeout {
            call: CALL,
            object: container.id.clone(),
            after: 2 * KILL_DEADLINE,
        })
    }

    /// Sends the stop signal, as soon as the program hears it: one that has only just started has no handler yet, and
    /// as the first of its namespace it would lose the signal. Once, however many ask: a second one makes programs give
    /// up what they are about.
    async fn tell_to_stop(&self, container: &Arc<Container>) -> Result<(), CriError> {
        let mut pause = FIRST_PAUSE;
        while container.state() == State::Running {
            let (runtime, container) = (self.clone(), Arc::clone(container));
            // To its end even if the caller gives up: what was sent has to be known.
            let told = tokio::spawn(async move {
                if container.told_to_stop.swap(true, Ordering::SeqCst) {
                    return Ok(true);
                }
                let told = runtime.signal(&container, container.record().stop_signal, true).await;
                container.told_to_stop.store(matches!(told, Ok(true)), Ordering::SeqCst);
                told
            });
            if told.await.map_err(CriError::joined("StopContainer"))?? {
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(())
    }

    /// False if it was not sent, because the process would not hear it yet and `if_heard` is asked for.
    async fn signal(&self, container: &Container, signal: i32, if_heard: bool) -> Result<bool, CriError> {
        let Some(keeper) = self.pod_of(container)?.keeper() else { return Ok(true) };
        let request = Request::Kill { container: container.id.clone(), signal, if_heard };
        match keeper.call(request, QUICK).await {
            Ok(Reply::Deaf) => Ok(false),
            // The keeper's end is the container's, and comes as its end.
            Ok(_) | Err(KeeperError::Unknown | KeeperError::Gone { .. }) => Ok(true),
            Err(source) => {
                Err(CriError::Keeper { call: "StopContainer", object: container.id.clone(), source })
            }
        }
    }

    /// Removes a container, killing it first if need be; unknown is success.
    ///
    /// # Errors
    /// [`CriError`] of what stays; the next call tries again.
    pub(crate) async fn remove_container(&self, id: &str) -> Result<(), CriError> {
        const CALL: &str = "RemoveContainer";
        let Ok(container) = self.container(id) else { return Ok(()) };
        let span = self.step(CALL, &container);
        let runtime = self.clone();
        let remove = async move {
            let _turn = container.busy.lock().await;
            if !runtime.has_container(&container) {
                return Ok(());
            }
            runtime.remove_container_now(&container).await
        };
        let result = tokio::spawn(remove.instrument(span.clone())).await.map_err(CriError::joined(CALL))?;
        if let Err(error) = &result {
            span.record("error", chain(error));
        }
        result
    }

    pub(crate) async fn remove_container_now(&self, container: &Arc<Container>) -> Result<(), CriError> {
        const CALL: &str = "RemoveContainer";
        let keeper = self.sandbox(&container.sandbox).ok().and_then(|sandbox| sandbox.keeper());
        if container.state() == State::Making {
            // The keeper may not know it, or it may have died while being set up: then there is no event to wait for.
            if let Some(keeper) = &keeper {
                let _ = keeper.call(Request::Forget { container: container.id.clone() }, QUICK).await;
            }
            self.group(&container.record().cgroup).kill();
        } else {
            self.stop_container_now(container, Duration::ZERO).await?;
        }
        if let Some(keeper) = &keeper {
            failpoint("RemoveContainer: ended");
            let _ = keeper.call(Request::Forget { container: container.id.clone() }, QUICK).await;
        }
        failpoint("RemoveContainer: forgotten");
        let mut failed = self.remove_roots(container).await;
        let group = self.group(&container.record().cgroup);
        let cgroup = tokio::task::spawn_blocking(move || group.remove(0)).await;
        failed.extend(cgroup.map_err(CriError::joined(CALL))?.err().map(|e| chain(&e)));
        failpoint("RemoveContainer: group");
        if !failed.is_empty() {
            return Err(CriError::Undone { call: CALL, object: container.id.clone(), failed });
        }
        self.inner.discarded.take(&container.folder).map_err(CriError::io("remove", &container.folder))?;
        failpoint("RemoveContainer: folder");
        if self.containers().remove(&container.id).is_some() {
            self.tell(container, ContainerEventType::ContainerDeletedEvent);
        }
        Ok(())
    }

    /// Removes a container's root and those of its image volumes; what could not be removed comes back.
    pub(crate) async fn remove_roots(&self, container: &Container) -> Vec<String> {
        let mut roots = image_volume::names(&container.id, &container.record().config);
        roots.push(container.id.clone());
        let images = self.inner.images.clone();
        let remove = move || -> Vec<String> {
            roots.iter().filter_map(|root| images.remove_snapshot(root).err()).map(|e| chain(&e)).collect()
        };
        tokio::task::spawn_blocking(remove).await.unwrap_or_else(|e| vec![e.to_string()])
    }

    /// Changes a container's limits.
    ///
    /// # Errors
    /// [`CriError`]; limits before the one that failed are set.
    pub(crate) async fn update_resources(
        &self,
        id: &str,
        resources: LinuxContainerResources,
    ) -> Result<(), CriError> {
        const CALL: &str = "UpdateContainerResources";
        let container = self.container(id)?;
        let runtime = self.clone();
        let update = async move {
            let _turn = container.busy.lock().await;
            runtime.update_resources_now(&container, &resources)
        };
        tokio::spawn(update).await.map_err(CriError::joined(CALL))?
    }

    fn update_resources_now(
        &self,
        container: &Container,
        resources: &LinuxContainerResources,
    ) -> Result<(), CriError> {
        const CALL: &str = "UpdateContainerResources";
        if container.state() == State::Exited {
            return Err(CriError::State {
                call: CALL,
                object: container.id.clone(),
                why: "it has ended".into(),
            });
        }
        self.group(&container.record().cgroup)
            .limit(&limits(resources))
            .map_err(|source| CriError::Cgroup { call: CALL, object: container.id.clone(), source })?;
        failpoint("UpdateContainerResources: set");
        let written = container.update(|record| {
            let mut config = ContainerConfig::clone(&record.config);
            let linux = config.linux.get_or_insert_default();
            merge(linux.resources.get_or_insert_default(), resources);
            record.config = config.into();
        });
        failpoint("UpdateContainerResources: recorded");
        written.map_err(CriError::io("write the record in", &container.folder))
    }

    /// Lets a container's log go on in a new file.
    ///
    /// # Errors
    /// [`CriError`]; no new file is there then.
    pub(crate) async fn reopen_log(&self, id: &str) -> Result<(), CriError> {
        const CALL: &str = "ReopenContainerLog";
        let container = self.container(id)?;
        if container.state() != State::Running {
            return Err(CriError::State {
                call: CALL,
                object: container.id.clone(),
                why: "it does not run".into(),
            });
        }
        let keeper = self.keeper(CALL, &*self.pod_of(&container)?)?;
        failpoint("ReopenContainerLog: begun");
        let request = Request::Reopen { container: container.id.clone() };
        let reopened = keeper.call(request, QUICK).await;
        failpoint("ReopenContainerLog: done");
        reopened.map(drop).map_err(|source| CriError::Keeper {
            call: CALL,
            object: container.id.clone(),
            source,
        })
    }
}

/// What `new` says replaces what is there.
fn merge(there: &mut LinuxContainerResources, new: &LinuxContainerResources) {
    let number = |there: &mut i64, new: i64| {
        if new != 0 {
            *there = new;
        }
    };
    number(&mut there.cpu_period, new.cpu_period);
    number(&mut there.cpu_quota, new.cpu_quota);
    number(&mut there.cpu_shares, new.cpu_shares);
    number(&mut there.memory_limit_in_bytes, new.memory_limit_in_bytes);
    number(&mut there.memory_swap_limit_in_bytes, new.memory_swap_limit_in_bytes);
    for (there, new) in
        [(&mut there.cpuset_cpus, &new.cpuset_cpus), (&mut there.cpuset_mems, &new.cpuset_mems)]
    {
        if !new.is_empty() {
            there.clone_from(new);
        }
    }
    for new in &new.hugepage_limits {
        there.hugepage_limits.retain(|old| old.page_size != new.page_size);
        there.hugepage_limits.push(new.clone());
    }
    there.unified.extend(new.unified.clone());
}

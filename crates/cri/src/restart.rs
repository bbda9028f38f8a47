//! What a new daemon finds: records on disk, keepers that live, and what a dead daemon left half made.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trine_cni::AttachmentId;
use trine_kernel::mountpoint::{mounted, unmount_all};
use trine_kernel::netns;
use trine_kernel::testing::failpoint;

use crate::container::image_volume::owner;
use crate::container::{Container, State};
use crate::error::chain;
use crate::keeper::{Client, ContainerState, Phase, Reply, Request, spawn};
use crate::runtime::{Intent, Runtime, lost};
use crate::sandbox::network::links;
use crate::sandbox::{Sandbox, SandboxState};

mod plan;

use plan::{Fate, Found, fate};

/// How long a keeper may take to say what it has.
const QUICK: Duration = Duration::from_secs(5);
/// How long the service waits for keepers before it begins without them.
const ADOPTION: Duration = Duration::from_secs(3);
/// Before a keeper that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(1);

impl Runtime {
    /// Takes over what runs, finishes what was begun, removes what leaked. Never fails: what is broken is logged.
    ///
    /// What may wait for somebody else, the network, goes on behind it: a daemon that does not serve cannot even say what it
    /// waits for.
    pub(crate) async fn recover(&self) {
        let mut found = Vec::new();
        for id in folders(&self.config().sandboxes_dir()) {
            match Sandbox::load(&self.config().sandbox_dir(&id)) {
                Ok(sandbox) => found.push(self.load(Arc::new(sandbox))),
                Err(error) => {
                    tracing::warn!(sandbox = id, %error, "a sandbox without a readable record is removed");
                }
            }
        }
        self.sweep_folders().await;
        failpoint("recovery: folders");
        futures::future::join_all(found.iter().map(|(sandbox, fate)| self.take_over(sandbox, *fate))).await;
        failpoint("recovery: taken over");
        self.sweep_snapshots().await;
        self.sweep_cgroups().await;
        self.sweep_network().await;
        failpoint("recovery: swept");
        for (sandbox, fate) in found {
            let runtime = self.clone();
            match fate {
                Fate::Adopt => {}
                Fate::Undo => drop(tokio::spawn(async move {
                    let _turn = sandbox.busy.lock().await;
                    if runtime.has_sandbox(&sandbox) {
                        runtime.undo_sandbox(&sandbox).await;
                    }
                })),
                Fate::Lost => drop(tokio::spawn(async move { runtime.let_go(&sandbox).await })),
            }
        }
    }

    /// Knows a sandbox and its containers from now on.
    fn load(&self, sandbox: Arc<Sandbox>) -> (Arc<Sandbox>, Fate) {
        let record = sandbox.record();
        self.sandboxes().insert(sandbox.id.clone(), Arc::clone(&sandbox));
        for id in folders(&sandbox.folder.join("containers")) {
            match Container::load(&sandbox.folder.join("containers").join(&id)) {
                Ok(container) => {
                    self.containers().insert(id, Arc::new(container));
                }
                Err(error) => {
                    tracing::warn!(container = id, %error, "a container without a readable record is removed");
                    self.group(&record.cgroup.join(&id)).kill();
                    let _ = self.group(&record.cgroup.join(&id)).remove(0);
                    let _ = std::fs::remove_dir_all(sandbox.folder.join("containers").join(&id));
                }
            }
        }
        let found = Found {
            state: record.state,
            same_boot: record.boot == self.inner.boot,
            keeper: spawn::lives(&sandbox.folder),
        };
        let fate = fate(found);
        tracing::info!(sandbox = sandbox.id, pod = record.pod, ?fate, "found a sandbox");
        (sandbox, fate)
    }

    /// Carries on with a sandbox that runs, and ends the processes of one that does not any more.
    async fn take_over(&self, sandbox: &Arc<Sandbox>, fate: Fate) {
        match fate {
            Fate::Adopt => {
                let (runtime, sandbox) = (self.clone(), Arc::clone(sandbox));
                let adopted = tokio::spawn(async move { runtime.adopt_in_the_end(&sandbox).await });
                // One that takes longer is taken over while the others are served.
                let _ = tokio::time::timeout(ADOPTION, adopted).await;
            }
            Fate::Undo => {}
            Fate::Lost => self.give_up(sandbox).await,
        }
    }

    /// A sandbox whose keeper is gone: its processes end, and it stays to be seen as not ready.
    async fn give_up(&self, sandbox: &Arc<Sandbox>) {
        if sandbox.record().state == SandboxState::Ready {
            let _ = sandbox.update(|record| record.state = SandboxState::NotReady);
        }
        for container in self.containers_of(&sandbox.id).iter().filter(|c| c.state() == State::Making) {
            self.undo_container(container).await;
        }
        if let Err(error) = self.end_processes(sandbox).await {
            tracing::warn!(sandbox = sandbox.id, error, "a lost sandbox has processes that do not end");
        }
        self.mark_ended(&sandbox.id);
    }

    fn mark_ended(&self, sandbox: &str) {
        for container in self.containers_of(sandbox) {
            if container.state() != State::Exited {
                self.container_exited(&container.id, lost(&container.folder));
            }
        }
    }

    /// Takes over a keeper that lives, however long it takes to answer: it is never killed for being slow.
    async fn adopt_in_the_end(&self, sandbox: &Arc<Sandbox>) {
        while let Err(error) = self.adopt(sandbox).await {
            tracing::warn!(sandbox = sandbox.id, error, "a keeper cannot be taken over yet");
            let ready = || sandbox.record().state == SandboxState::Ready;
            if ready() && !spawn::lives(&sandbox.folder) {
                self.give_up(sandbox).await;
                self.let_go(sandbox).await;
                return;
            }
            if !ready() || !self.waited(&mut AGAIN.clone()).await {
                return;
            }
        }
    }

    async fn adopt(&self, sandbox: &Arc<Sandbox>) -> Result<(), String> {
        if sandbox.keeper().is_none() {
            self.adopt_keeper(sandbox).await.map_err(|e| chain(&e))?;
        }
        let keeper: Client = sandbox.keeper().ok_or("it is gone again")?;
        let Reply::Containers(states) = keeper.call(Request::List, QUICK).await.map_err(|e| chain(&e))?
        else {
            return Err("its answer is not understood".to_owned());
        };
        for container in self.containers_of(&sandbox.id) {
            match states.iter().find(|state| state.id == container.id) {
                Some(state) => self.adopt_container(&container, state).await,
                None if container.state() == State::Exited => {}
                None if container.state() == State::Making => {
                    let _ = self.remove_container_now(&container).await;
                }
                None => self.container_exited(&container.id, lost(&container.folder)),
            }
        }
        // Those whose folder was on its way out.
        for state in states.iter().filter(|state| !self.containers().contains_key(&state.id)) {
            let _ = keeper.call(Request::Forget { container: state.id.clone() }, QUICK).await;
        }
        Ok(())
    }

    async fn adopt_container(&self, container: &Arc<Container>, state: &ContainerState) {
        if container.state() == State::Making {
            // Nobody has its id: the call that made it was cut short.
            if let Err(error) = self.remove_container_now(container).await {
                tracing::warn!(
                    container = container.id,
                    error = chain(&error),
                    "a half-made container stays"
                );
            }
            return;
        }
        if let Some(exit) = &state.exit {
            self.container_exited(&container.id, exit.clone());
        } else if matches!(state.phase, Phase::Running | Phase::Starting)
            && container.state() == State::Created
        {
            let _ = container.update(|record| {
                record.state = State::Running;
                record.started_at = state.started_at;
            });
        }
    }

    /// Folders and intents of sandboxes that have no readable record: what they name is removed. Their group may be that of
    /// another sandbox of the Pod, so only their containers' go here.
    async fn sweep_folders(&self) {
        let known: BTreeSet<String> = self.sandboxes().keys().cloned().collect();
        let intents = self.inner.ledger.all();
        let mut ids: BTreeSet<String> = folders(&self.config().sandboxes_dir()).into_iter().collect();
        ids.extend(intents.keys().cloned());
        for id in ids.difference(&known) {
            let folder = self.config().sandbox_dir(id);
            let containers = folders(&folder.join("containers"));
            self.sweep_folder(id, &folder).await;
            if let Some(Intent { cgroup, .. }) = intents.get(id) {
                for container in containers {
                    self.sweep_group(&cgroup.join(container), 0).await;
                }
                let _ = self.inner.ledger.remove(id);
            }
        }
    }

    /// Ends what is in a group, and removes it with `levels` of empty ones above it.
    async fn sweep_group(&self, path: &Path, levels: usize) {
        let group = self.group(path);
        group.kill();
        let _ = tokio::task::spawn_blocking(move || group.remove(levels)).await;
    }

    async fn sweep_folder(&self, id: &str, folder: &Path) {
        if spawn::lives(folder)
            && let Ok((keeper, _)) = Client::connect(folder).await
        {
            let _ = keeper.call(Request::Shutdown, QUICK).await;
        }
        for mount in mounted().unwrap_or_default().iter().rev().filter(|m| m.target.starts_with(folder)) {
            let _ = unmount_all(&mount.target, true);
        }
        let _ = netns::delete(&folder.join("netns"));
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(sandbox = id, %error, "a folder that leaked cannot be removed");
            }
            _ => {}
        }
    }

    async fn sweep_snapshots(&self) {
        let known: BTreeSet<String> = self.containers().keys().cloned().collect();
        let images = self.inner.images.clone();
        let swept = tokio::task::spawn_blocking(move || {
            let all = images.snapshots().unwrap_or_default();
            for snapshot in all.iter().filter(|snapshot| !known.contains(owner(snapshot))) {
                if let Err(error) = images.remove_snapshot(snapshot) {
                    tracing::warn!(container = snapshot, error = chain(&error), "a root that leaked stays");
                }
            }
        });
        let _ = swept.await;
    }

    /// Groups of Pods that no sandbox names.
    async fn sweep_cgroups(&self) {
        let base = self.config().pods_cgroup();
        let known: BTreeSet<_> = self.sandboxes().values().map(|s| s.record().cgroup).collect();
        for name in self.group(&base).children() {
            let path = base.join(&name);
            if known.contains(&path) {
                continue;
            }
            for container in self.group(&path).children() {
                self.sweep_group(&path.join(container), 0).await;
            }
            self.sweep_group(&path, 1).await;
        }
    }

    async fn sweep_network(&self) {
        let valid: Vec<AttachmentId> = self
            .sandboxes()
            .values()
            .map(|sandbox| sandbox.record())
            .filter(|record| record.attached)
            .flat_map(|record| {
                let id = |ifname| AttachmentId { container_id: record.id.clone(), ifname };
                links(&record.config).into_iter().map(id).collect::<Vec<_>>()
            })
            .collect();
        if let Err(error) = self.inner.network.gc(&valid).await {
            tracing::debug!(error = chain(&error), "the network could not be swept");
        }
    }
}

fn folders(path: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

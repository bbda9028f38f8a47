//! What a new daemon finds: records on disk, keepers that live, and what a dead daemon left half made.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use trine_cni::AttachmentId;
use trine_kernel::mountpoint::{mounted, unmount_all};
use trine_kernel::netns;

use crate::container::image_volume::owner;
use crate::container::{Container, State};
use crate::error::chain;
use crate::keeper::{Client, ContainerState, Phase, Reply, Request, spawn};
use crate::runtime::{Runtime, lost};
use crate::sandbox::Sandbox;
use crate::sandbox::network::LINK;

mod plan;

use plan::{Fate, Found, fate};

/// How long a keeper may take to say what it has.
const QUICK: std::time::Duration = std::time::Duration::from_secs(5);

impl Runtime {
    /// Takes over what runs, finishes what was begun, removes what leaked. Never fails: what is broken is logged.
    pub(crate) async fn recover(&self) {
        for id in folders(&self.config().sandboxes_dir()) {
            let folder = self.config().sandbox_dir(&id);
            match Sandbox::load(&folder) {
                Ok(sandbox) => self.recover_sandbox(Arc::new(sandbox)).await,
                Err(error) => {
                    tracing::warn!(sandbox = id, %error, "a sandbox without a readable record is removed");
                    self.sweep_folder(&id, &folder).await;
                }
            }
        }
        self.sweep_intents().await;
        self.sweep_snapshots().await;
        self.sweep_cgroups().await;
        self.sweep_network().await;
    }

    async fn recover_sandbox(&self, sandbox: Arc<Sandbox>) {
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
        match fate(found) {
            Fate::Adopt => {
                if let Err(error) = self.adopt(&sandbox).await {
                    tracing::warn!(sandbox = sandbox.id, error, "a keeper cannot be taken over");
                    self.give_up(&sandbox).await;
                }
            }
            Fate::Undo => {
                let undone = match self.stop_sandbox_now(&sandbox).await {
                    Ok(()) => self.remove_sandbox_now(&sandbox).await,
                    failed => failed,
                };
                if let Err(error) = undone {
                    tracing::warn!(
                        sandbox = sandbox.id,
                        error = chain(&error),
                        "a half-made sandbox is undone later"
                    );
                }
            }
            Fate::Lost => self.give_up(&sandbox).await,
            Fate::Keep => self.mark_ended(&sandbox.id),
        }
        tracing::info!(sandbox = sandbox.id, pod = record.pod, fate = ?fate(found), "found a sandbox");
    }

    /// A sandbox whose keeper is gone: what is left of it is stopped, and it stays to be seen as not ready.
    async fn give_up(&self, sandbox: &Arc<Sandbox>) {
        if let Err(error) = self.stop_sandbox_now(sandbox).await {
            tracing::warn!(sandbox = sandbox.id, error = chain(&error), "a lost sandbox is stopped later");
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

    async fn adopt(&self, sandbox: &Arc<Sandbox>) -> Result<(), String> {
        self.adopt_keeper(sandbox).await.map_err(|e| chain(&e))?;
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

    /// Records of sandboxes whose folder is gone or was swept: what they name is removed.
    async fn sweep_intents(&self) {
        let known: BTreeSet<String> = self.sandboxes().keys().cloned().collect();
        for (id, intent) in self.inner.ledger.all() {
            if !known.contains(&id) {
                let group = self.group(&intent.cgroup);
                if intent.cgroup.starts_with(self.config().pods_cgroup()) {
                    group.kill();
                    let _ = tokio::task::spawn_blocking(move || group.remove(1)).await;
                }
                self.sweep_folder(&id, &intent.folder).await;
                let _ = self.inner.ledger.remove(&id);
            }
        }
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
                let group = self.group(&path.join(container));
                group.kill();
                let _ = tokio::task::spawn_blocking(move || group.remove(0)).await;
            }
            let group = self.group(&path);
            let _ = tokio::task::spawn_blocking(move || group.remove(1)).await;
        }
    }

    async fn sweep_network(&self) {
        let valid: Vec<AttachmentId> = self
            .sandboxes()
            .values()
            .filter(|sandbox| sandbox.record().attached)
            .map(|sandbox| AttachmentId { container_id: sandbox.id.clone(), ifname: LINK.to_owned() })
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

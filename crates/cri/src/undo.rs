//! What nobody else will ask for again: a sandbox or a container that could not be made is undone, and one whose keeper is gone is
//! let go of, again and again until that has succeeded or somebody else has done it.

use std::sync::Arc;
use std::time::Duration;

use crate::container::Container;
use crate::error::{CriError, chain};
use crate::runtime::Runtime;
use crate::sandbox::{Sandbox, SandboxState};

/// Before the second attempt; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Between two attempts at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Runtime {
    /// Undoes a sandbox that could not be made. If that fails, too, it is seen from now on, and tried again.
    pub(crate) async fn undo_sandbox(&self, sandbox: &Arc<Sandbox>) {
        let Err(error) = self.stop_and_remove(sandbox).await else { return };
        tracing::warn!(sandbox = sandbox.id, error = chain(&error), "a failed sandbox is undone later");
        let _ = sandbox.update(|record| record.state = SandboxState::NotReady);
        let (runtime, sandbox) = (self.clone(), Arc::clone(sandbox));
        tokio::spawn(async move {
            let mut pause = FIRST_PAUSE;
            while runtime.waited(&mut pause).await {
                let _turn = sandbox.busy.lock().await;
                if !runtime.has_sandbox(&sandbox) || runtime.stop_and_remove(&sandbox).await.is_ok() {
                    return;
                }
            }
        });
    }

    async fn stop_and_remove(&self, sandbox: &Arc<Sandbox>) -> Result<(), CriError> {
        self.stop_sandbox_now(sandbox).await?;
        self.remove_sandbox_now(sandbox).await
    }

    /// Gives back what a sandbox without processes still has: its place on the network, its mounts. It stays to be seen.
    pub(crate) async fn let_go(&self, sandbox: &Arc<Sandbox>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let turn = sandbox.busy.lock().await;
            if !self.has_sandbox(sandbox) {
                return;
            }
            let Err(error) = self.release_sandbox(sandbox).await else { return };
            drop(turn);
            tracing::warn!(sandbox = sandbox.id, error = chain(&error), "a lost sandbox is let go of later");
            if !self.waited(&mut pause).await {
                return;
            }
        }
    }

    /// Undoes a container that could not be made. The caller has its turn.
    pub(crate) async fn undo_container(&self, container: &Arc<Container>) {
        let Err(error) = self.remove_container_now(container).await else { return };
        tracing::warn!(container = container.id, error = chain(&error), "a failed container is undone later");
        let (runtime, container) = (self.clone(), Arc::clone(container));
        tokio::spawn(async move {
            let mut pause = FIRST_PAUSE;
            while runtime.waited(&mut pause).await {
                let _turn = container.busy.lock().await;
                if !runtime.has_container(&container)
                    || runtime.remove_container_now(&container).await.is_ok()
                {
                    return;
                }
            }
        });
    }

    /// False if the daemon ends: the next one finds the record.
    pub(crate) async fn waited(&self, pause: &mut Duration) -> bool {
        let now = std::mem::replace(pause, (*pause * 2).min(LONGEST_PAUSE));
        tokio::select! {
            () = tokio::time::sleep(now) => true,
            () = self.inner.ended.cancelled() => false,
        }
    }
}

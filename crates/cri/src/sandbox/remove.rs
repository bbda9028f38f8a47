//! RemovePodSandbox: its containers, its group, its folder, its records.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::Instrument;
use trine_kernel::testing::failpoint;

use super::record::Sandbox;
use crate::error::{CriError, chain};
use crate::runtime::Runtime;

const CALL: &str = "RemovePodSandbox";

impl Runtime {
    /// Removes a sandbox, stopping it first if need be; unknown is success.
    ///
    /// # Errors
    /// [`CriError`] of what stays; the next call tries again.
    pub(crate) async fn remove_sandbox(&self, id: &str) -> Result<(), CriError> {
        let Ok(sandbox) = self.sandbox(id) else { return Ok(()) };
        let span = tracing::info_span!(
            target: "trine::step", "RemovePodSandbox", plane = "cri", sandbox = sandbox.id.as_str(),
            pod = sandbox.record().pod.as_str(), error = tracing::field::Empty
        );
        let runtime = self.clone();
        let remove = async move {
            let _turn = sandbox.busy.lock().await;
            if !runtime.has_sandbox(&sandbox) {
                return Ok(());
            }
            runtime.stop_sandbox_now(&sandbox).await?;
            runtime.remove_sandbox_now(&sandbox).await
        };
        let result = tokio::spawn(remove.instrument(span.clone())).await.map_err(CriError::joined(CALL))?;
        if let Err(error) = &result {
            span.record("error", chain(error));
        }
        result
    }

    /// Removes a sandbox that is stopped.
    pub(crate) async fn remove_sandbox_now(&self, sandbox: &Arc<Sandbox>) -> Result<(), CriError> {
        let mut failed = Vec::new();
        for container in self.containers_of(&sandbox.id) {
            // One that is just being made is waited for: it finds that there is no keeper any more.
            let _turn = container.busy.lock().await;
            if let Err(error) = self.remove_container_now(&container).await {
                failed.push(chain(&error));
            }
        }
        failpoint("RemovePodSandbox: containers");
        sandbox.leaving.store(true, Ordering::SeqCst);
        let record = sandbox.record();
        if record.own_cgroup && !self.shares_group(sandbox) {
            let group = self.group(&record.cgroup);
            let removed = tokio::task::spawn_blocking(move || group.remove(1)).await;
            if let Err(error) = removed.map_err(CriError::joined(CALL))? {
                failed.push(chain(&error));
            }
        }
        if !failed.is_empty() {
            return Err(CriError::Undone { call: CALL, object: sandbox.id.clone(), failed });
        }
        failpoint("RemovePodSandbox: group");
        self.inner.discarded.take(&sandbox.folder).map_err(CriError::io("remove", &sandbox.folder))?;
        failpoint("RemovePodSandbox: folder");
        self.sandboxes().remove(&sandbox.id);
        self.inner.ledger.remove(&sandbox.id)?;
        failpoint("RemovePodSandbox: gone");
        Ok(())
    }

    /// True if another sandbox of the same Pod, an earlier or later attempt, still uses their group.
    fn shares_group(&self, sandbox: &Sandbox) -> bool {
        let cgroup = sandbox.record().cgroup;
        self.sandboxes().values().any(|other| {
            other.id != sandbox.id && !other.leaving.load(Ordering::SeqCst) && other.record().cgroup == cgroup
        })
    }
}

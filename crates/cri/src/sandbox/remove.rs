//! RemovePodSandbox: its containers, its group, its folder, its records.

use std::sync::Arc;

use tracing::Instrument;

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
            if let Err(error) = self.remove_container_now(&container).await {
                failed.push(chain(&error));
            }
        }
        let record = sandbox.record();
        if record.own_cgroup {
            let group = self.group(&record.cgroup);
            let removed = tokio::task::spawn_blocking(move || group.remove(1)).await;
            if let Err(error) = removed.map_err(CriError::joined(CALL))? {
                failed.push(chain(&error));
            }
        }
        if !failed.is_empty() {
            return Err(CriError::Undone { call: CALL, object: sandbox.id.clone(), failed });
        }
        self.inner.discarded.take(&sandbox.folder).map_err(CriError::io("remove", &sandbox.folder))?;
        self.sandboxes().remove(&sandbox.id);
        self.inner.ledger.remove(&sandbox.id)?;
        Ok(())
    }
}

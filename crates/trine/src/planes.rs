//! One supervised task for each plane: a panic or an error in one is caught, written to `run/planes.json` and the plane
//! is started again; it is never a node outage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trine_typed::k8s_openapi::jiff::Timestamp;

/// First pause before a plane is started again; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// How long a plane may take to end when told to.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// How a plane is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaneState {
    /// False between a failure and the next start.
    pub running: bool,
    /// Since when.
    pub since: String,
    /// How often it was started again.
    pub restarts: u32,
    /// Why it failed last.
    pub last_error: Option<String>,
}

/// The planes of one process.
#[derive(Clone)]
pub struct Planes {
    file: PathBuf,
    states: Arc<Mutex<BTreeMap<String, PlaneState>>>,
    stop: CancellationToken,
}

impl Planes {
    /// No planes yet; states are written to `file`.
    #[must_use]
    pub fn new(file: PathBuf, stop: CancellationToken) -> Self {
        Self { file, states: Arc::default(), stop }
    }

    /// Starts a plane: `start` is called again after each failure, until stopped.
    pub fn run<F, Fut, E>(&self, name: impl Into<String>, start: F) -> Plane
    where
        F: Fn(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let (this, name) = (self.clone(), name.into());
        let plane = name.clone();
        let task = tokio::spawn(async move {
            let mut pause = FIRST_PAUSE;
            let mut restarts = 0;
            loop {
                this.set(&name, true, restarts, None);
                let error = match tokio::spawn(start(this.stop.clone())).await {
                    _ if this.stop.is_cancelled() => return,
                    Ok(Ok(())) => "ended by itself".to_owned(),
                    Ok(Err(error)) => trine_typed::chain::display(&error),
                    Err(panic) => format!("panicked: {panic}"),
                };
                tracing::error!(plane = name, error, "failed; it is started again");
                restarts += 1;
                this.set(&name, false, restarts, Some(error));
                tokio::select! {
                    () = this.stop.cancelled() => return,
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(MAX_PAUSE),
                }
            }
        });
        Plane { name: plane, task }
    }

    fn set(&self, name: &str, running: bool, restarts: u32, error: Option<String>) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let last_error = error.or_else(|| states.get(name).and_then(|s| s.last_error.clone()));
        let since = Timestamp::now().to_string();
        states.insert(name.to_owned(), PlaneState { running, since, restarts, last_error });
        let fresh = self.file.with_extension("new");
        let text = serde_json::to_vec_pretty(&*states).unwrap_or_default();
        let written = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &self.file));
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write {}", self.file.display());
        }
    }
}

/// The states that a running process wrote.
///
/// # Errors
/// If there are none.
pub fn read(file: &Path) -> anyhow::Result<BTreeMap<String, PlaneState>> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

/// A started plane.
pub struct Plane {
    name: String,
    task: JoinHandle<()>,
}

impl Plane {
    /// Waits until the plane has ended, after the token was cancelled.
    pub async fn ended(mut self) {
        if tokio::time::timeout(STOP_DEADLINE, &mut self.task).await.is_err() {
            tracing::warn!(plane = self.name, "did not end within {STOP_DEADLINE:?}");
            self.task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_plane_that_panics_is_started_again_and_the_reason_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("planes.json");
        let stop = CancellationToken::new();
        let starts = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&starts);
        let plane = Planes::new(file.clone(), stop.clone()).run("cri", move |stop| {
            let counted = Arc::clone(&counted);
            async move {
                assert!(counted.fetch_add(1, Ordering::SeqCst) > 0, "the first start fails");
                stop.cancelled().await;
                Ok::<(), std::io::Error>(())
            }
        });
        while starts.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let state = read(&file).unwrap().remove("cri").unwrap();
        assert!(state.running && state.restarts == 1 && state.last_error.unwrap().contains("panicked"));
        stop.cancel();
        plane.ended().await;
    }
}

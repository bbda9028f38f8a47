//! Events about decisions, posted aside: whoever reads them can wait, a binding cannot. As upstream's broadcaster does, what comes
//! while a thousand are waiting is dropped.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};
use trine_typed::event::{Level, Recorder};
use trine_typed::k8s_openapi::api::core::v1::Pod;

/// Events that wait to be posted. Upstream: `maxQueuedEvents`.
const WAITING: usize = 1000;
/// Events that are posted at once.
const POSTING: usize = 4;

struct Told {
    pod: Arc<Pod>,
    level: Level,
    reason: &'static str,
    message: String,
}

/// Where events are put.
pub(crate) struct Teller {
    waiting: mpsc::Sender<Told>,
}

impl Teller {
    /// Starts those who post; they end with this.
    pub fn start(recorder: Recorder) -> Self {
        let (waiting, posted) = mpsc::channel::<Told>(WAITING);
        let (posted, recorder) = (Arc::new(Mutex::new(posted)), Arc::new(recorder));
        for _ in 0..POSTING {
            let (posted, recorder) = (Arc::clone(&posted), Arc::clone(&recorder));
            tokio::spawn(async move {
                loop {
                    let Some(told) = posted.lock().await.recv().await else { return };
                    recorder.post(&*told.pod, told.level, told.reason, &told.message).await;
                }
            });
        }
        Self { waiting }
    }

    /// Has an event posted about a Pod.
    pub fn tell(&self, pod: &Arc<Pod>, level: Level, reason: &'static str, message: String) {
        let told = Told { pod: Arc::clone(pod), level, reason, message };
        if let Err(error) = self.waiting.try_send(told) {
            tracing::debug!(%error, reason, "event dropped");
        }
    }
}

//! Events about decisions, posted aside: whoever reads them can wait, a binding cannot. As upstream's broadcaster does, what comes
//! while a thousand are waiting is dropped.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};
use trine_typed::event::{Level, Recorder};
use trine_typed::k8s_openapi::api::core::v1::Pod;

/// Events that wait to be posted. Upstream: `maxQueuedEvents`.
const WAITING: usize = 1000;
/// Events that are posted at once.
const POSTING: usize = 4;

struct Told {
    /// The profile that tells it.
    by: String,
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
    /// Starts those who post, for each profile as who it is; they end with this.
    pub fn start(recorders: impl Iterator<Item = (String, Recorder)>) -> Self {
        let (waiting, posted) = mpsc::channel::<Told>(WAITING);
        let recorders: HashMap<String, Recorder> = recorders.collect();
        let (posted, recorders) = (Arc::new(Mutex::new(posted)), Arc::new(recorders));
        for _ in 0..POSTING {
            let (posted, recorders) = (Arc::clone(&posted), Arc::clone(&recorders));
            tokio::spawn(async move {
                loop {
                    let Some(told) = posted.lock().await.recv().await else { return };
                    if let Some(recorder) = recorders.get(&told.by) {
                        recorder.post(&*told.pod, told.level, told.reason, &told.message).await;
                    }
                }
            });
        }
        Self { waiting }
    }

    /// Has an event posted about a Pod, by the profile of that name.
    pub fn tell(&self, by: &str, pod: &Arc<Pod>, level: Level, reason: &'static str, message: String) {
        let told = Told { by: by.to_owned(), pod: Arc::clone(pod), level, reason, message };
        if let Err(error) = self.waiting.try_send(told) {
            tracing::debug!(%error, reason, "event dropped");
        }
    }
}

//! One client's queue of events.

use super::object::Event;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Events queued for one watcher; one that lets more pile up is closed, and its client lists and watches again.
pub(super) const QUEUE: usize = 1024;

/// Whether a watcher wants an event. Runs under the resource's lock: it looks and decides, nothing more.
pub type Filter = dyn Fn(&Event) -> bool + Send + Sync;

/// The sending half, kept by the resource.
pub(super) struct Watcher {
    /// Only keys that start with this.
    pub scope: String,
    pub filter: Box<Filter>,
    pub sender: mpsc::Sender<Arc<Event>>,
}

impl Watcher {
    pub fn wants(&self, event: &Event) -> bool {
        event.object.key.starts_with(&self.scope) && (self.filter)(event)
    }

    /// Whether the watcher is still there and keeps up.
    pub fn offer(&self, event: &Arc<Event>) -> bool {
        if !self.wants(event) {
            return !self.sender.is_closed();
        }
        match self.sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::info!(scope = self.scope, "a slow watcher is closed");
                false
            }
        }
    }
}

/// Events in order: those since the revision that the watch began at, then those to come.
#[derive(Debug)]
pub struct Watch {
    pub(super) backlog: VecDeque<Arc<Event>>,
    pub(super) live: mpsc::Receiver<Arc<Event>>,
}

impl Watch {
    /// The next event. `None` when the watcher was too slow or the cache has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        match self.backlog.pop_front() {
            Some(event) => Some(event),
            None => self.live.recv().await,
        }
    }

    /// The next event if it is here already.
    pub fn ready(&mut self) -> Option<Arc<Event>> {
        self.backlog.pop_front().or_else(|| self.live.try_recv().ok())
    }
}

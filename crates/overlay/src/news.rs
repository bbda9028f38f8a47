//! The kernel's news, as far as they concern the ways. They are waited for on a thread, which ends with its [`News`].

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use trine_kernel::netlink::Monitor;

use crate::heed::Watched;

/// What is heard.
pub(crate) struct News {
    shared: Arc<Shared>,
    /// The thread ends when this is closed.
    _end: Option<UnixStream>,
}

#[derive(Default)]
struct Shared {
    watched: Mutex<Watched>,
    concern: Notify,
}

impl News {
    /// Begins to listen. Where that cannot be, the kernel is only asked now and then.
    pub(crate) fn listen() -> Self {
        let shared = Arc::<Shared>::default();
        let end = start(Arc::clone(&shared))
            .inspect_err(|error| tracing::warn!(error, "the kernel's news are not heard"))
            .ok();
        Self { shared, _end: end }
    }

    /// What matters from now on.
    pub(crate) fn watch(&self, watched: Watched) {
        *self.shared.watched.lock().unwrap_or_else(PoisonError::into_inner) = watched;
    }

    /// Returns when something has happened that may concern a way of ours.
    pub(crate) async fn concern(&self) {
        self.shared.concern.notified().await;
    }
}

fn start(shared: Arc<Shared>) -> Result<UnixStream, String> {
    let mut monitor = Monitor::open().map_err(|e| trine_typed::chain::display(&e))?;
    let (ours, end) = UnixStream::pair().map_err(|e| e.to_string())?;
    let listen = move || {
        loop {
            match monitor.wait(&end) {
                Ok(Some(events)) => {
                    let watched = shared.watched.lock().unwrap_or_else(PoisonError::into_inner);
                    if events.iter().any(|event| watched.concerns(event)) {
                        shared.concern.notify_one();
                    }
                }
                Ok(None) => return,
                Err(e) => {
                    let error = trine_typed::chain::display(&e);
                    tracing::warn!(error, "the kernel's news are heard no more");
                    return;
                }
            }
        }
    };
    std::thread::Builder::new().name("ways".to_owned()).spawn(listen).map_err(|e| e.to_string())?;
    Ok(ours)
}

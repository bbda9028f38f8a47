//! What changed in the runtime: its event stream, and a relist that finds what the stream lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Runtime, labels};
use crate::config::{RELIST, RELIST_WITH_EVENTS};
use crate::error::KubeletError;

/// How long to wait before the event stream is opened again; it has no events worth waiting longer for.
const REOPEN: Duration = Duration::from_secs(2);

/// What the pod manager is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Something happened to the Pod of this UID.
    Pod(String),
    /// A whole list was read: these Pods have sandboxes or containers.
    Listed(BTreeSet<String>),
}

/// Tells `changes` of everything that happens, until `stop`.
pub async fn run(runtime: Runtime, changes: mpsc::Sender<Change>, stop: CancellationToken) {
    let streaming = Arc::new(AtomicBool::new(false));
    let stream = follow_stream(runtime.clone(), changes.clone(), streaming.clone());
    let relist = relist(runtime, changes, streaming);
    tokio::select! {
        () = stop.cancelled() => {}
        () = stream => {}
        () = relist => {}
    }
}

/// Never returns while there is a receiver.
async fn follow_stream(runtime: Runtime, changes: mpsc::Sender<Change>, streaming: Arc<AtomicBool>) {
    loop {
        match runtime.events().await {
            Ok(mut events) => {
                streaming.store(true, Ordering::Relaxed);
                while let Ok(Some(event)) = events.message().await {
                    let uid = event
                        .pod_sandbox_status
                        .as_ref()
                        .and_then(|s| s.metadata.as_ref())
                        .map(|m| m.uid.clone())
                        .filter(|uid| !uid.is_empty());
                    if let Some(uid) = uid
                        && changes.send(Change::Pod(uid)).await.is_err()
                    {
                        return;
                    }
                }
                streaming.store(false, Ordering::Relaxed);
            }
            Err(error) if error.grpc_code() == Some(tonic::Code::Unimplemented) => {
                tracing::info!("the runtime has no event stream; it is listed each second");
                std::future::pending::<()>().await;
            }
            Err(error) => tracing::debug!(error = error.chain(), "no event stream"),
        }
        tokio::time::sleep(REOPEN).await;
    }
}

/// State of everything, as far as a change of it matters.
type Snapshot = BTreeMap<String, BTreeSet<(String, i32)>>;

async fn snapshot(runtime: &Runtime) -> Result<Snapshot, KubeletError> {
    let (sandboxes, containers) = tokio::try_join!(runtime.sandboxes(None), runtime.containers(None))?;
    let mut snapshot = Snapshot::new();
    for s in sandboxes {
        if let Some(uid) = s.labels.get(labels::POD_UID) {
            snapshot.entry(uid.clone()).or_default().insert((s.id, s.state));
        }
    }
    for c in containers {
        if let Some(uid) = c.labels.get(labels::POD_UID) {
            snapshot.entry(uid.clone()).or_default().insert((c.id, c.state));
        }
    }
    Ok(snapshot)
}

async fn relist(runtime: Runtime, changes: mpsc::Sender<Change>, streaming: Arc<AtomicBool>) {
    let mut last = Snapshot::new();
    loop {
        match snapshot(&runtime).await {
            Ok(fresh) => {
                for uid in changed(&last, &fresh) {
                    if changes.send(Change::Pod(uid)).await.is_err() {
                        return;
                    }
                }
                let known = fresh.keys().cloned().collect();
                if changes.send(Change::Listed(known)).await.is_err() {
                    return;
                }
                last = fresh;
            }
            Err(error) => tracing::warn!(error = error.chain(), "the runtime cannot be listed"),
        }
        let pause = if streaming.load(Ordering::Relaxed) { RELIST_WITH_EVENTS } else { RELIST };
        tokio::time::sleep(pause).await;
    }
}

fn changed(last: &Snapshot, fresh: &Snapshot) -> Vec<String> {
    let uids: BTreeSet<&String> = last.keys().chain(fresh.keys()).collect();
    uids.into_iter().filter(|uid| last.get(*uid) != fresh.get(*uid)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_named_when_anything_of_it_came_went_or_changed_state() {
        let of = |items: &[(&str, &str, i32)]| {
            let mut snapshot = Snapshot::new();
            for (uid, id, state) in items {
                snapshot.entry((*uid).to_owned()).or_default().insert(((*id).to_owned(), *state));
            }
            snapshot
        };
        let last = of(&[("same", "a", 1), ("gone", "b", 1), ("ended", "c", 1)]);
        let fresh = of(&[("same", "a", 1), ("ended", "c", 2), ("new", "d", 0)]);
        assert_eq!(changed(&last, &fresh), ["ended", "gone", "new"]);
    }
}

//! What those who look at a request on its way add to its notes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

type Collected = Arc<Mutex<BTreeMap<String, String>>>;

tokio::task_local! {
    static ANNOTATIONS: Collected;
}

/// Does something, and gives what was added to its notes meanwhile.
pub async fn collecting<F: Future>(work: F) -> (F::Output, BTreeMap<String, String>) {
    let collected = Collected::default();
    let done = ANNOTATIONS.scope(Arc::clone(&collected), work).await;
    let annotations = std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner));
    (done, annotations)
}

/// Adds to the notes of the request that this is done for. What is there already stays.
pub fn annotate(key: impl Into<String>, value: impl Into<String>) {
    // Without anybody who collects, the request is not noted.
    let _ = ANNOTATIONS.try_with(|collected| {
        let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
        collected.entry(key.into()).or_insert_with(|| value.into());
    });
}

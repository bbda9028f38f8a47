//! What those who look at a request on its way add to its notes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The text.
    pub value: String,
    /// Whether it tells of what was written, and so is only for notes that have the body.
    pub of_body: bool,
}

type Collected = Arc<Mutex<BTreeMap<String, Added>>>;

tokio::task_local! {
    static ANNOTATIONS: Collected;
}

/// Does something, and gives what was added to its notes meanwhile.
pub async fn collecting<F: Future>(work: F) -> (F::Output, BTreeMap<String, Added>) {
    let collected = Collected::default();
    let done = ANNOTATIONS.scope(Arc::clone(&collected), work).await;
    let annotations = std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner));
    (done, annotations)
}

/// Adds to the notes of the request that this is done for. What is there already stays.
pub fn annotate(key: impl Into<String>, value: impl Into<String>) {
    add(key.into(), Added { value: value.into(), of_body: false });
}

/// The same for what tells of what was written.
pub fn annotate_body(key: impl Into<String>, value: impl Into<String>) {
    add(key.into(), Added { value: value.into(), of_body: true });
}

fn add(key: String, added: Added) {
    // Without anybody who collects, the request is not noted.
    let _ = ANNOTATIONS.try_with(|collected| {
        let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
        collected.entry(key).or_insert(added);
    });
}

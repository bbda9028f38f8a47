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

/// What was added so far.
#[derive(Debug, Clone, Default)]
pub struct Collected(Arc<Mutex<BTreeMap<String, Added>>>);

impl Collected {
    /// Takes it out.
    #[must_use]
    pub fn take(&self) -> BTreeMap<String, Added> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

tokio::task_local! {
    static ANNOTATIONS: Collected;
}

/// Does something; what is added to its notes meanwhile is collected.
pub async fn collecting<F: Future>(collected: Collected, work: F) -> F::Output {
    ANNOTATIONS.scope(collected, work).await
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
        let mut collected = collected.0.lock().unwrap_or_else(PoisonError::into_inner);
        collected.entry(key).or_insert(added);
    });
}

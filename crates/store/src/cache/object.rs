//! An object's canonical bytes with what selectors look at, and what happened to it.

use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// What a value is as an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The canonical JSON, with the revision in it.
    pub json: Bytes,
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Its fields that selectors may name.
    pub fields: Vec<(String, String)>,
}

/// Makes an object of a stored value: key, revision, value. A value that is none gives `None`; it is logged and left out.
pub type Decode = dyn Fn(&str, u64, &Bytes) -> Option<Decoded> + Send + Sync;

/// An object at one revision.
#[derive(Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key in the store.
    pub key: Arc<str>,
    /// Revision of its last modification.
    pub revision: u64,
    /// Bytes and attributes.
    pub decoded: Decoded,
}

impl Object {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.decoded.labels.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The value of a field that selectors may name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.decoded.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The canonical JSON.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.decoded.json
    }
}

/// What an object was before an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// It did not exist.
    Absent,
    /// It was this.
    Was(Arc<Object>),
    /// It existed, but what it was is no longer kept (events from before a restart).
    Unknown,
}

/// A change of an object.
#[derive(Debug)]
pub struct Event {
    /// Its place in the order of all changes.
    pub revision: u64,
    /// Whether the object was deleted.
    pub deleted: bool,
    /// The new state, or the final one.
    pub object: Arc<Object>,
    /// The state before.
    pub past: Past,
    /// When, in seconds since 1970.
    pub at: u64,
    /// What it reads like to clients, by form; made by the first that needs it.
    written: Mutex<Vec<(Box<str>, Bytes)>>,
}

impl Event {
    /// An event that nobody has been told yet.
    #[must_use]
    pub fn new(revision: u64, deleted: bool, object: Arc<Object>, past: Past, at: u64) -> Self {
        Self { revision, deleted, object, past, at, written: Mutex::default() }
    }

    /// What the event reads like in a form: written once, then shared by all whose form has this name.
    pub fn written(&self, form: &str, write: impl FnOnce() -> Bytes) -> Bytes {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = written.iter().find(|(name, _)| **name == *form) {
            return bytes.clone();
        }
        let bytes = write();
        written.push((form.into(), bytes.clone()));
        bytes
    }

    /// Forgets what was written: everybody has been told.
    pub(super) fn settle(&self) {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

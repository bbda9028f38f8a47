//! A watch of one kind as changes to a picture that somebody else keeps, for those who do not keep the objects themselves.

use std::collections::BTreeSet;
use std::fmt::Debug;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, ResourceExt};

use crate::mirror::Kind;

/// Namespace (empty where the kind has none) and name.
pub type Key = (String, String);

/// What is to be changed in the picture.
#[derive(Debug)]
pub enum Change<K> {
    /// The object is there, in this form.
    Is(Box<K>),
    /// The object is gone.
    Gone(Key),
    /// A list has ended: what is not in it is gone.
    Only(BTreeSet<Key>),
}

/// The watch of one kind, in all namespaces. A new list replaces the old one only when it is complete.
pub struct Feed<K> {
    stream: BoxStream<'static, watcher::Result<Event<K>>>,
    listing: BTreeSet<Key>,
    listed: bool,
}

impl<K: Kind> Feed<K> {
    /// Starts with a list. Interruptions are mended, with pauses that grow.
    #[must_use]
    pub fn all(client: Client) -> Self {
        let stream = watch(Api::<K>::all(client), watcher::Config::default()).default_backoff();
        Self { stream: stream.boxed(), listing: BTreeSet::new(), listed: false }
    }

    /// Whether the first list has ended: before that the picture is not whole.
    #[must_use]
    pub fn listed(&self) -> bool {
        self.listed
    }

    /// The next change; nothing when the watch has ended by itself. May be dropped while it waits.
    pub async fn next(&mut self) -> Option<Change<K>> {
        loop {
            match self.stream.next().await? {
                Ok(Event::Init) => self.listing.clear(),
                Ok(Event::InitApply(object)) => {
                    self.listing.insert(key(&object));
                    return Some(Change::Is(Box::new(object)));
                }
                Ok(Event::InitDone) => {
                    self.listed = true;
                    return Some(Change::Only(std::mem::take(&mut self.listing)));
                }
                Ok(Event::Apply(object)) => return Some(Change::Is(Box::new(object))),
                Ok(Event::Delete(object)) => return Some(Change::Gone(key(&object))),
                Err(error) => tracing::debug!(kind = %K::kind(&()), %error, "watch interrupted"),
            }
        }
    }
}

fn key<K: ResourceExt>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

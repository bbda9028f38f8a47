//! Objects by resource in memory, their recent events, and the watchers.
//!
//! The cache follows the store's feed. A revision is *shown* once every change up to it is in the cache; who wrote waits
//! for that, so reads see one's own writes.
//!
//! - [`object`] an object's canonical bytes with what selectors look at
//! - [`resource`] all objects under one prefix: lists now or at a revision, and watches
//! - [`history`] recent events, to start a watch in the past and to list the past
//! - [`horizon`] from which revision on the whole past is promised
//! - [`watcher`] one client's queue of events, and which clients an event may concern
//! - [`follow`] the task that applies the feed: [`Cache`]

pub mod follow;
pub mod history;
pub mod horizon;
pub mod object;
pub mod resource;
pub mod watcher;

pub use follow::Cache;
pub use object::{Decode, Decoded, Event, Object, Past};
pub use resource::{Count, ListError, Listed, Part, Prefix, WatchError};
pub use watcher::{Filter, Interest, Watch};

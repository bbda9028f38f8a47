//! What was said, in which order?
//!
//! A store keeps values under keys with etcd's semantics: one revision counter over all keys, writes that succeed only
//! at the expected modification revision, a feed of changes in commit order, and compaction of that feed's past. Only the
//! API server uses it; every read there is answered from the cache.
//!
//! - [`store`] the contract: [`Store`], [`Write`], [`Change`]
//! - [`redb`] the embedded backend: one writer, group commit
//! - [`cache`] objects by resource in memory, their recent events, and the watchers

pub mod cache;
pub mod redb;
pub mod store;

pub use cache::{Cache, ListError, Object, Prefix, WatchError};
pub use store::{Change, Entry, Expect, Op, Snapshot, Store, StoreError, Write};

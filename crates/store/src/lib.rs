//! What was said, in which order?
//!
//! A store keeps values under keys with etcd's semantics: one revision counter over all keys, writes that succeed only
//! at the expected modification revision, a feed of changes in commit order, and compaction of that feed's past. Only the
//! API server uses it; every read there is answered from the cache.
//!
//! - [`store`] the contract: [`Store`], [`Write`], [`Change`]
//! - [`redb`] the embedded backend: one writer, group commit
//! - [`etcd`] an etcd that several servers may share
//! - [`backup`] a store in a file
//! - [`cache`] objects by resource in memory, their recent events, and the watchers

pub mod backup;
pub mod cache;
pub mod etcd;
pub mod redb;
pub mod store;

pub use cache::{Cache, ListError, Object, Prefix, WatchError};
pub use store::{Change, Entry, Expect, News, Op, Snapshot, Store, StoreError, Write};

//! The embedded backend.
//!
//! One thread owns the database. It takes whatever writes have queued up, gives them revisions in that order, commits
//! them with one fsync, tells the feeds, then the writers. So there are no gaps, no polling, and a feed never sees a
//! change that could still be lost.
//!
//! - [`record`] the bytes of a row
//! - [`tables`] what is kept, and the effect of one write on it
//! - [`writer`] the thread
//! - [`backend`] the handle: [`RedbStore`]

pub mod backend;
mod record;
mod tables;
mod writer;

pub use backend::{Limits, RedbStore};

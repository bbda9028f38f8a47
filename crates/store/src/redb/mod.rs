//! The embedded backend.
//!
//! ```text
//! writers ─ queue ─ writer ─┬─ journal (one fdatasync per commit) ─ feeds ─ answers
//!                           └─ checkpoint thread ─ redb file (every 8 MiB or minute)
//! ```
//!
//! One thread gives revisions to whatever writes have queued up, in that order, appends them to the journal with one
//! `fdatasync`, tells the feeds, then the writers. So there are no gaps, no polling, and a feed never sees a change that
//! could still be lost. The redb file holds every key as of a checkpoint; what is newer is read from the journal at the next
//! start. The journal is also the past that feeds begin in.
//!
//! Why not redb alone: a commit of it that opens at once after `kill -9` costs two `fsync`s of pages all over a growing
//! file, measured at 3.5 times the `fdatasync` of one overwritten block.
//!
//! - [`record`] what one commit did; the bytes of a checkpointed row
//! - [`frame`] the bytes of a commit in the journal
//! - [`journal`] the files of the journal: append, replay, forget
//! - [`tables`] the checkpoint in the redb file
//! - [`checkpoint`] the thread that brings it up to date
//! - [`writer`] the thread through which every write goes
//! - [`backend`] the handle: [`RedbStore`]

pub mod backend;
mod checkpoint;
mod frame;
mod journal;
mod record;
mod tables;
mod writer;

pub use backend::{Limits, RESTORED, RedbStore};

//! What is on disk: contents by their digest, and what this process has in hand.

mod blobs;
mod digest;
mod session;

pub(crate) use blobs::Blobs;
pub(crate) use digest::{Digest, Hasher, HashingReader};
pub(crate) use session::{Session, Staged};

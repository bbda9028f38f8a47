//! What did we mean to make? Records of intents, written before the act and removed after its undoing.
//!
//! - [`Ledger`] an append-only file of records of one type, replayed at start
//! - [`Durability`] what survives: a `kill -9` ([`Durability::ThisBoot`]) or a power cut ([`Durability::Disk`])
//! - [`plan::reconcile`] records against reality: what leaked, what is lost, what is adopted

mod file;
pub mod plan;

pub use file::{Durability, Ledger, LedgerError};

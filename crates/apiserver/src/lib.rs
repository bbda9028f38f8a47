//! What is desired, and who may say so?
//!
//! - [`kinds`] what is particular to each kind: defaults, validation, columns

pub mod kinds;

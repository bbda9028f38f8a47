//! The built-in driver's volumes, as users have them.

mod copies;
mod deaths;
mod groups;
mod stage;

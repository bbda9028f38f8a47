//! The built-in driver's volumes, as users have them.

mod copies;
mod groups;
mod stage;

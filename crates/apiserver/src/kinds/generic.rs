//! The kind without particulars.

use super::Hooks;

/// Every hook as provided.
pub struct Generic;

impl Hooks for Generic {}

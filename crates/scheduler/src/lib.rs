//! On which node?

//! Addresses for `host-local`: which may be given ([`range`], pure), and which are ([`store`]).

pub mod range;
pub mod store;

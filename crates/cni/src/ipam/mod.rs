//! Addresses for `host-local`: which may be given ([`range`], pure), which are ([`store`]), and which is the next free one ([`bits`],
//! pure).

pub mod bits;
pub mod range;
pub mod store;

//! Images made from files of this machine.

mod archive;

pub use archive::BuildSpec;

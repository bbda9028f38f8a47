//! Which images there are: the rules for names, and the file that several processes share.

mod file;
mod plan;

pub(crate) use file::IndexFile;
pub(crate) use plan::{Index, Record};

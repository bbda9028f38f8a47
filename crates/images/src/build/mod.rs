//! Images made from files of this machine: programs by name, or a folder and a few settings. They have one layer, whose
//! entries are sorted and of one time, so that the same files make the same digests.

mod layer;
mod output;
mod settings;
mod spec;
mod stored;
mod tree;

pub use output::Built;
pub use spec::{BuildSpec, Look};

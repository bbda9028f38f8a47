//! Images from files: what `docker save` writes, OCI layouts, as a folder or a tar archive, gzip'd or not.

mod archive;
mod docker;
mod intake;
mod layout;
mod members;

pub use archive::ArchiveError;
pub(crate) use intake::{Candidate, MemberLayer};
pub(crate) use layout::{Descriptor, Manifest, choose, offered};

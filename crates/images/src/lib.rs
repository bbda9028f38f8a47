//! Where do its files come from? Images: pulled from a registry, imported from an archive or built from files of
//! this machine; kept once per content, unpacked layer by layer, and joined into a container's root file system.
//!
//! One folder holds a store, and several processes may use it at once:
//!
//! - `index.json` the images, replaced whole under the lock `lock`
//! - `blobs/sha256/…` manifests and configurations by content
//! - `layers/<chain>/fs` unpacked layers, there only when complete
//! - `sessions/<process>/…` what a process has in hand; another process clears it once its owner is dead
//! - `snapshots/<container>/…` a container's writable folder and its mounted root
//! - `below` the layer below all others, for mounts to lie on
//!
//! The rooms: [`store`](ImageStore) is the front door; `index` says which images there are, `content` what is on disk,
//! `unpack` turns a layer's archive into files, `import`, `build` and `pull` bring images in, `snapshot` hands
//! them out.

mod build;
mod content;
mod error;
mod image;
mod import;
mod index;
mod name;
mod pull;
mod snapshot;
mod step;
mod store;
mod unpack;

pub use build::{BuildSpec, Built, Look};
pub use error::{Fault, ImageError};
pub use image::{Image, ImageConfig};
pub use import::ArchiveError;
pub use name::ImageName;
pub use pull::{Auth, RegistryError};
pub use snapshot::{RootFs, RootOptions};
pub use store::{ImageStore, Options, Registries};
pub use unpack::LayerError;

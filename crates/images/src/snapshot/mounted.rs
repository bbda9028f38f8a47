//! Makes and removes containers' roots. A snapshot's folder is its own record: it is there before the mount is made
//! and goes after the mount is gone.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trine_kernel::overlay::{Overlay, is_mount_point, unmount_all};

use super::plan::is_container_id;
use super::usage::{Usage, of_folder};
use crate::content::Digest;
use crate::error::ImageError;
use crate::image::Image;
use crate::step;
use crate::store::{ImageStore, Inner};

/// A container's mounted root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootFs {
    /// The folder with the image's files; writes stay in the container's own folder.
    pub path: PathBuf,
}

/// What a snapshot is made from.
#[derive(Debug, Serialize, Deserialize)]
struct Origin {
    image: Digest,
    layers: Vec<Digest>,
}

/// The folder `snapshots`.
pub(crate) struct Snapshots {
    dir: PathBuf,
}

impl Snapshots {
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        let dir = root.join("snapshots");
        std::fs::create_dir_all(&dir).map_err(ImageError::io("create", &dir))?;
        Ok(Self { dir })
    }

    fn path(&self, container: &str) -> Result<PathBuf, ImageError> {
        if is_container_id(container) {
            Ok(self.dir.join(container))
        } else {
            Err(ImageError::ContainerId { container: container.to_owned() })
        }
    }

    fn all(&self) -> Result<BTreeSet<String>, ImageError> {
        let entries = std::fs::read_dir(&self.dir).map_err(ImageError::io("list", &self.dir))?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    fn origin(&self, container: &str) -> Option<Origin> {
        serde_json::from_slice(&std::fs::read(self.dir.join(container).join("origin.json")).ok()?).ok()
    }

    /// Every layer that some container uses.
    pub fn layers(&self) -> Result<BTreeSet<Digest>, ImageError> {
        Ok(self.all()?.iter().filter_map(|id| self.origin(id)).flat_map(|origin| origin.layers).collect())
    }
}

impl ImageStore {
    /// Mounts a fresh root for a container. If it has one already, that one is returned.
    ///
    /// # Errors
    /// [`ImageError::Absent`] if the image is gone, [`ImageError::Mount`], [`ImageError::Io`],
    /// [`ImageError::ContainerId`].
    pub fn prepare(&self, container_id: &str, image: &Image) -> Result<RootFs, ImageError> {
        let span = tracing::info_span!(
            target: "trine::step", "prepare", plane = "image", container = container_id, detail = image.id.as_str(),
            error = tracing::field::Empty
        );
        let _entered = span.enter();
        step::outcome(&span, self.inner.prepare(container_id, image))
    }

    /// Unmounts and deletes a container's root; absent is success.
    ///
    /// # Errors
    /// [`ImageError::Mount`], [`ImageError::Io`], [`ImageError::ContainerId`].
    pub fn remove_snapshot(&self, container_id: &str) -> Result<(), ImageError> {
        self.inner.remove_snapshot(container_id)
    }

    /// The containers that have a root or the rest of one.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn snapshots(&self) -> Result<BTreeSet<String>, ImageError> {
        self.inner.snapshots.all()
    }

    /// Where a container's root is mounted, if it is.
    #[must_use]
    pub fn rootfs(&self, container_id: &str) -> Option<RootFs> {
        let path = self.inner.snapshots.path(container_id).ok()?.join("rootfs");
        is_mount_point(&path).then_some(RootFs { path })
    }

    /// What a container wrote into its root. It walks over all of it.
    ///
    /// # Errors
    /// [`ImageError::ContainerId`].
    pub fn snapshot_usage(&self, container_id: &str) -> Result<Usage, ImageError> {
        Ok(of_folder(&self.inner.snapshots.path(container_id)?.join("upper")))
    }

    /// What all images' layers take, as counted when they were unpacked.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn usage(&self) -> Result<Usage, ImageError> {
        let mut usage = Usage::default();
        for meta in self.inner.layers.all()?.iter().filter_map(|layer| self.inner.layers.meta(layer)) {
            usage.bytes += meta.bytes;
            usage.inodes += meta.inodes;
        }
        Ok(usage)
    }
}

impl Inner {
    fn prepare(&self, container: &str, image: &Image) -> Result<RootFs, ImageError> {
        let dir = self.snapshots.path(container)?;
        let rootfs = dir.join("rootfs");
        if is_mount_point(&rootfs) {
            return Ok(RootFs { path: rootfs });
        }
        // The rest of an attempt that was cut short.
        remove_folder(&dir)?;
        let origin = self.claim(container, &dir, image)?;
        let made = self.mount(container, &dir, &origin, &rootfs);
        if made.is_err()
            && let Err(e) = self.remove_snapshot(container)
        {
            tracing::warn!(container, error = %e, "the rest of a failed snapshot stays until it is removed again");
        }
        made.map(|()| RootFs { path: rootfs })
    }

    /// Makes the snapshot's folder, from when on the layers stay.
    fn claim(&self, container: &str, dir: &Path, image: &Image) -> Result<Origin, ImageError> {
        let absent = || ImageError::Absent { reference: image.id.clone() };
        let layers: Vec<Digest> =
            image.layers.iter().map(|id| Digest::parse(id)).collect::<Option<_>>().ok_or_else(absent)?;
        let origin = Origin { image: Digest::parse(&image.id).ok_or_else(absent)?, layers };
        let text = serde_json::to_vec(&origin).map_err(|e| ImageError::io("describe", dir)(e.into()))?;
        let lock = self.index.lock()?;
        if origin.layers.iter().any(|layer| !self.layers.has(layer)) {
            return Err(absent());
        }
        std::fs::create_dir(dir).map_err(ImageError::io("create", dir))?;
        let file = dir.join("origin.json");
        std::fs::write(&file, text).map_err(ImageError::io("write", &file))?;
        drop(lock);
        tracing::debug!(container, image = image.id, "snapshot claimed");
        Ok(origin)
    }

    fn mount(&self, container: &str, dir: &Path, origin: &Origin, rootfs: &Path) -> Result<(), ImageError> {
        let (upper, work) = (dir.join("upper"), dir.join("work"));
        for path in [&upper, &work, rootfs] {
            std::fs::create_dir(path).map_err(ImageError::io("create", path))?;
        }
        let mut lower = self.lower(&origin.layers);
        if lower.is_empty() {
            let none = dir.join("empty");
            std::fs::create_dir(&none).map_err(ImageError::io("create", &none))?;
            lower.push(none);
        }
        like(&lower[0], &upper).map_err(ImageError::io("set the attributes of", &upper))?;
        // What a container writes outside of its volumes does not outlive the machine's restart, so nothing ever
        // waits for the disk because of it.
        let overlay = Overlay { lower: &lower, upper: &upper, work: &work, volatile: true };
        overlay.mount(rootfs).map_err(|source| ImageError::Mount { container: container.to_owned(), source })
    }

    fn remove_snapshot(&self, container: &str) -> Result<(), ImageError> {
        let dir = self.snapshots.path(container)?;
        if !dir.exists() {
            return Ok(());
        }
        let origin = self.snapshots.origin(container);
        unmount_all(&dir.join("rootfs"))
            .map_err(|source| ImageError::Mount { container: container.to_owned(), source })?;
        remove_folder(&dir)?;
        let index = self.index.read()?;
        if origin.is_some_and(|origin| !index.images.contains_key(&origin.image)) {
            let lock = self.index.lock()?;
            let gone = self.sweep()?;
            drop(lock);
            drop(gone);
        }
        Ok(())
    }
}

/// The root of an overlay looks like its topmost folder, which is the container's own.
fn like(from: &Path, to: &Path) -> std::io::Result<()> {
    let stat = std::fs::metadata(from)?;
    std::os::unix::fs::chown(to, Some(stat.uid()), Some(stat.gid()))?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(stat.mode() & 0o7777))
}

fn remove_folder(dir: &Path) -> Result<(), ImageError> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(ImageError::io("remove", dir)(e)),
        _ => Ok(()),
    }
}

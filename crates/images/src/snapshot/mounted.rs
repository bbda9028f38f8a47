//! Makes and removes containers' roots. A snapshot's folder is its own record: it is there before the mount is made
//! and goes after the mount is gone.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trine_kernel::filesystem::{Room, taken_below};
use trine_kernel::mountpoint::bind_for_users;
use trine_kernel::overlay::{Overlay, is_mount_point, unmount_all};
use trine_kernel::testing::failpoint;

use super::plan::is_container_id;
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

/// How a root is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct RootOptions<'a> {
    /// With the folders and files that a container's mounts lie on, below the image's own.
    pub for_mounts: bool,
    /// Where a user namespace is pinned: files belong to whom the image says as that has it. The host's if none.
    pub users: Option<&'a Path>,
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
    below: PathBuf,
}

/// Folders that every container has something mounted on, with their modes.
const FOLDERS: [(&str, u32); 4] = [("dev", 0o755), ("etc", 0o755), ("proc", 0o555), ("sys", 0o555)];
/// Files that most have.
const FILES: [&str; 3] = ["etc/hostname", "etc/hosts", "etc/resolv.conf"];

/// Makes the layer that lies below all others of every container: what mounts lie on. Else each would be made anew, in every
/// container whose image lacks it, and removed with it.
fn make_below(dir: &Path) -> Result<(), ImageError> {
    for (folder, mode) in FOLDERS {
        let folder = dir.join(folder);
        std::fs::create_dir_all(&folder).map_err(ImageError::io("create", &folder))?;
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&folder, mode).map_err(ImageError::io("set the mode of", &folder))?;
    }
    for file in FILES {
        let file = dir.join(file);
        let made = std::fs::File::options().create(true).append(true).open(&file);
        made.map_err(ImageError::io("create", &file))?;
    }
    Ok(())
}

impl Snapshots {
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        let dir = root.join("snapshots");
        std::fs::create_dir_all(&dir).map_err(ImageError::io("create", &dir))?;
        let below = root.join("below");
        make_below(&below)?;
        Ok(Self { dir, below })
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
        self.prepare_with(container_id, image, RootOptions::default())
    }

    /// The same with a choice of how.
    ///
    /// # Errors
    /// As [`Self::prepare`], and [`ImageError::Users`].
    pub fn prepare_with(
        &self,
        container_id: &str,
        image: &Image,
        options: RootOptions<'_>,
    ) -> Result<RootFs, ImageError> {
        let span = tracing::info_span!(
            target: "trine::step", "prepare", plane = "image", container = container_id, detail = image.id.as_str(),
            error = tracing::field::Empty
        );
        let _entered = span.enter();
        step::outcome(&span, self.inner.prepare(container_id, image, options))
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
    pub fn snapshot_usage(&self, container_id: &str) -> Result<Room, ImageError> {
        Ok(taken_below(&self.inner.snapshots.path(container_id)?.join("upper")))
    }

    /// What all images' layers take, as counted when they were unpacked.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn usage(&self) -> Result<Room, ImageError> {
        let mut usage = Room::default();
        for meta in self.inner.layers.all()?.iter().filter_map(|layer| self.inner.layers.meta(layer)) {
            usage.bytes += meta.bytes;
            usage.inodes += meta.inodes;
        }
        Ok(usage)
    }
}

impl Inner {
    fn prepare(
        &self,
        container: &str,
        image: &Image,
        options: RootOptions<'_>,
    ) -> Result<RootFs, ImageError> {
        let dir = self.snapshots.path(container)?;
        let rootfs = dir.join("rootfs");
        if is_mount_point(&rootfs) {
            return Ok(RootFs { path: rootfs });
        }
        // The rest of an attempt that was cut short.
        take_down(container, &dir)?;
        self.session.discard(&dir)?;
        let origin = self.claim(container, &dir, image)?;
        let made = self.mount(container, &dir, &origin, options);
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
        failpoint("snapshot: folder");
        let file = dir.join("origin.json");
        std::fs::write(&file, text).map_err(ImageError::io("write", &file))?;
        drop(lock);
        failpoint("snapshot: claimed");
        tracing::debug!(container, image = image.id, "snapshot claimed");
        Ok(origin)
    }

    fn mount(
        &self,
        container: &str,
        dir: &Path,
        origin: &Origin,
        options: RootOptions<'_>,
    ) -> Result<(), ImageError> {
        let (upper, work, rootfs) = (dir.join("upper"), dir.join("work"), dir.join("rootfs"));
        for path in [&upper, &work, &rootfs] {
            std::fs::create_dir(path).map_err(ImageError::io("create", path))?;
        }
        let mut lower = self.lower(&origin.layers);
        if options.for_mounts {
            lower.push(self.snapshots.below.clone());
        }
        if lower.is_empty() {
            let none = dir.join("empty");
            std::fs::create_dir(&none).map_err(ImageError::io("create", &none))?;
            lower.push(none);
        }
        if let Some(users) = options.users {
            lower = for_users(container, dir, &lower, users)?;
        }
        like(&lower[0], &upper).map_err(ImageError::io("set the attributes of", &upper))?;
        // What a container writes outside of its volumes does not outlive the machine's restart, so nothing ever
        // waits for the disk because of it.
        let overlay = Overlay { lower: &lower, upper: &upper, work: &work, volatile: true };
        failpoint("snapshot: folders");
        overlay
            .mount(&rootfs)
            .map_err(|source| ImageError::Mount { container: container.to_owned(), source })?;
        failpoint("snapshot: mounted");
        // The overlay has mounts of its own of them.
        if options.users.is_some() { take_down_layers(container, dir) } else { Ok(()) }
    }

    fn remove_snapshot(&self, container: &str) -> Result<(), ImageError> {
        let dir = self.snapshots.path(container)?;
        if !dir.exists() {
            return Ok(());
        }
        let origin = self.snapshots.origin(container);
        take_down(container, &dir)?;
        failpoint("snapshot: unmounted");
        self.session.discard(&dir)?;
        failpoint("snapshot: removed");
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

/// Where layers are mounted while they are joined for a user namespace.
const LAYERS: &str = "layers";

/// The layers with their owners as the user namespace pinned at `users` has them, each mounted for reading only.
fn for_users(
    container: &str,
    dir: &Path,
    lower: &[PathBuf],
    users: &Path,
) -> Result<Vec<PathBuf>, ImageError> {
    let users = File::open(users).map_err(ImageError::io("open", users))?;
    let all = dir.join(LAYERS);
    std::fs::create_dir(&all).map_err(ImageError::io("create", &all))?;
    let mut mapped = Vec::new();
    for (number, layer) in lower.iter().enumerate() {
        let place = all.join(number.to_string());
        std::fs::create_dir(&place).map_err(ImageError::io("create", &place))?;
        bind_for_users(layer, &place, users.as_fd())
            .map_err(|source| ImageError::Users { container: container.to_owned(), source })?;
        mapped.push(place);
    }
    Ok(mapped)
}

/// Takes off what is mounted in a snapshot's folder, which then can be removed.
fn take_down(container: &str, dir: &Path) -> Result<(), ImageError> {
    unmount_all(&dir.join("rootfs"))
        .map_err(|source| ImageError::Mount { container: container.to_owned(), source })?;
    take_down_layers(container, dir)
}

fn take_down_layers(container: &str, dir: &Path) -> Result<(), ImageError> {
    let Ok(layers) = std::fs::read_dir(dir.join(LAYERS)) else { return Ok(()) };
    for layer in layers.flatten() {
        unmount_all(&layer.path())
            .map_err(|source| ImageError::Mount { container: container.to_owned(), source })?;
    }
    Ok(())
}

/// The root of an overlay looks like its topmost folder, which is the container's own.
fn like(from: &Path, to: &Path) -> std::io::Result<()> {
    let stat = std::fs::metadata(from)?;
    std::os::unix::fs::chown(to, Some(stat.uid()), Some(stat.gid()))?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(stat.mode() & 0o7777))
}

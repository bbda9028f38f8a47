//! The front door: one folder with images, their layers and the snapshots made from them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use trine_kernel::testing::failpoint;

use crate::content::{Blobs, Digest, Session, Staged};
use crate::error::ImageError;
use crate::image::{self, Image, Parsed};
use crate::index::{IndexFile, Record};
use crate::pull::Pulls;
use crate::snapshot::Snapshots;
use crate::unpack::{Layers, NewLayer};

/// Which registries are spoken to, and how.
#[derive(Debug, Clone, Default)]
pub struct Registries {
    /// Hosts (with port, if any) that speak plain HTTP. Those on the loopback always may.
    pub insecure: Vec<String>,
    /// Certificates (PEM) that are trusted beside the machine's own.
    pub extra_roots: Vec<Vec<u8>>,
    /// Where `<registry>/hosts.toml` names mirrors and moves registries, in containerd's form. It is read at each pull, and
    /// need not be there.
    pub hosts_dir: Option<PathBuf>,
}

/// How a store works.
#[derive(Debug, Clone)]
pub struct Options {
    /// The registries.
    pub registries: Registries,
    /// Layers that are fetched and unpacked at once; 3 unless said otherwise.
    pub parallel_layers: usize,
    /// A pull ends when nothing came in for so long; 5 minutes unless said otherwise.
    pub progress_timeout: std::time::Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            registries: Registries::default(),
            parallel_layers: 3,
            progress_timeout: std::time::Duration::from_secs(300),
        }
    }
}

/// A store of images. Clones share it; other processes may use the same folder at the same time.
#[derive(Clone)]
pub struct ImageStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub options: Options,
    pub index: IndexFile,
    pub blobs: Blobs,
    pub layers: Layers,
    pub session: Arc<Session>,
    pub snapshots: Snapshots,
    pub pulls: Pulls,
}

/// An image whose layers are here or in hand.
pub(crate) struct NewImage {
    pub config_file: Vec<u8>,
    pub parsed: Parsed,
    pub tags: BTreeSet<String>,
    pub digests: BTreeSet<String>,
    pub manifests: Vec<Vec<u8>>,
    /// Those that were not there yet, under their chain ids.
    pub new_layers: Vec<(Digest, NewLayer)>,
}

impl ImageStore {
    /// Opens or creates the store in `dir`, and removes what dead processes left half made in it.
    ///
    /// # Errors
    /// [`ImageError::Io`] or [`ImageError::Ledger`].
    pub fn open(dir: impl Into<PathBuf>, options: Options) -> Result<Self, ImageError> {
        let root: PathBuf = dir.into();
        std::fs::create_dir_all(&root).map_err(ImageError::io("create", &root))?;
        let root = root.canonicalize().map_err(ImageError::io("open", &root))?;
        let index = IndexFile::new(&root);
        let lock = index.lock()?;
        let session = Arc::new(Session::open(&root)?);
        let inner = Inner {
            options,
            blobs: Blobs::open(&root)?,
            layers: Layers::open(&root)?,
            snapshots: Snapshots::open(&root)?,
            session,
            index,
            pulls: Pulls::default(),
        };
        let gone = inner.sweep()?;
        drop(lock);
        drop(gone);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// All images.
    ///
    /// # Errors
    /// [`ImageError::Io`] if the index cannot be read.
    pub fn list(&self) -> Result<Vec<Image>, ImageError> {
        let index = self.inner.index.read()?;
        Ok(index.images.keys().filter_map(|id| index.image(id)).collect())
    }

    /// The image that `reference` names: by id, by the first digits of an id, by tag (`busybox` is
    /// `docker.io/library/busybox:latest`) or by repository digest.
    ///
    /// # Errors
    /// [`ImageError::Io`] if the index cannot be read; an unknown name is no error.
    pub fn status(&self, reference: &str) -> Result<Option<Image>, ImageError> {
        let index = self.inner.index.read()?;
        Ok(index.find(reference).and_then(|found| index.image(found.id())))
    }

    /// Takes away a name of an image. The image goes with its last tag, or at once if named by id; its layers go
    /// when no image and no container uses them. Unknown names are success.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn remove(&self, reference: &str) -> Result<(), ImageError> {
        let lock = self.inner.index.lock()?;
        let changed = self.inner.index.update(&lock, |index| index.remove(reference))?;
        failpoint("image: out of the index");
        let gone = if changed { self.inner.sweep()? } else { Vec::new() };
        failpoint("image: out of its place");
        drop(lock);
        drop(gone);
        Ok(())
    }
}

impl Inner {
    /// Puts an image into the index, its new layers in their places first.
    pub fn commit(&self, name: &str, new: NewImage) -> Result<Image, ImageError> {
        let chain = image::chain(&new.parsed.diff_ids);
        self.inherit(&chain, &new.new_layers)?;
        self.layers.settle(&new.new_layers)?;
        failpoint("image: settled");
        let staged = self.session.stage(&format!("manifests of {name}"))?;
        let lock = self.index.lock()?;
        self.layers.publish(&new.new_layers)?;
        failpoint("image: layers in place");
        if let Some(missing) = chain.iter().find(|layer| !self.layers.has(layer)) {
            let why = format!("layer {missing} was removed by another process meanwhile; try again");
            return Err(ImageError::Content { image: name.to_owned(), why });
        }
        let id = self.blobs.put(&new.config_file, &staged)?;
        let mut manifests = BTreeSet::new();
        for manifest in &new.manifests {
            manifests.insert(self.blobs.put(manifest, &staged)?);
        }
        failpoint("image: blobs in place");
        let bytes =
            chain.iter().filter_map(|layer| self.layers.meta(layer)).map(|meta| meta.bytes).sum::<u64>();
        let record = Record {
            tags: new.tags,
            digests: new.digests,
            size: bytes + new.config_file.len() as u64,
            config: new.parsed.config,
            layers: chain,
            manifests,
        };
        let image = self.index.update(&lock, |index| {
            index.add(&id, record);
            index.image(&id)
        })?;
        failpoint("image: in the index");
        image.ok_or_else(|| ImageError::Absent { reference: id.to_string() })
    }

    /// Folders that a new layer's archive only implied look like those below.
    fn inherit(&self, chain: &[Digest], new: &[(Digest, NewLayer)]) -> Result<(), ImageError> {
        let place = |layer: &Digest| match new.iter().find(|(id, _)| id == layer) {
            Some((_, layer)) => layer.fs(),
            None => self.layers.fs(layer),
        };
        let mut below: Vec<PathBuf> = Vec::new();
        for layer in chain {
            if let Some((_, layer)) = new.iter().find(|(id, _)| id == layer) {
                layer.inherit(&below)?;
            }
            below.insert(0, place(layer));
        }
        Ok(())
    }

    /// Takes layers and blobs out that nothing uses. The caller holds the store's lock, and drops the result after
    /// it.
    pub fn sweep(&self) -> Result<Vec<Staged>, ImageError> {
        let index = self.index.read()?;
        let mut keep: BTreeSet<Digest> = index.layers().into_iter().cloned().collect();
        keep.extend(self.snapshots.layers()?);
        let blobs = index.blobs();
        self.blobs.sweep(&|digest| blobs.contains(digest))?;
        failpoint("image: blobs swept");
        self.layers.sweep(&self.session, &keep)
    }

    /// The files of an image's layers, topmost first.
    pub fn lower(&self, layers: &[Digest]) -> Vec<PathBuf> {
        layers.iter().rev().map(|layer| self.layers.fs(layer)).collect()
    }
}

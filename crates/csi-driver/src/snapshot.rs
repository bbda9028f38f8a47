//! Snapshots, and copies of volumes that are in use: the file system stands still while its file is copied.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use trine_contracts::csi;
use trine_kernel::filesystem::{self, Frozen};
use trine_kernel::testing::failpoint;

use crate::driver::Driver;
use crate::error::Cause;
use crate::locks::Guard;
use crate::observe::Observed;
use crate::plan::copy::{self as plan, Take};
use crate::pool::Pool;
use crate::record::{Content, Snapshot, Source, State, Volume};
use crate::request::{self, required};

/// What a volume is copied from, kept from changing.
pub(crate) struct Origin {
    /// Its file.
    pub(crate) image: PathBuf,
    /// Its size, bytes.
    pub(crate) bytes: u64,
    /// What it holds.
    pub(crate) content: Content,
    /// The volume, where it is one: it may be in use.
    pub(crate) volume: Option<Volume>,
    _guard: Guard,
}

/// Volumes that stand still as long as this lives.
pub(crate) struct Still {
    frozen: Vec<Frozen>,
    /// Those in use as raw devices: what was written is on the disk, but they go on.
    pub(crate) raw: Vec<String>,
}

/// Locks of snapshots are apart from those of volumes, whose ids may be the same.
pub(crate) fn lock_of(id: &str) -> String {
    format!("snapshot {id}")
}

impl Driver {
    /// `CreateSnapshot`: the record, the copy, the record as ready.
    pub(crate) fn take(&self, request: &csi::CreateSnapshotRequest) -> Result<Snapshot, Cause> {
        let id = request::id_of(&request.name)?;
        required(&request.source_volume_id, "source_volume_id")?;
        request::check_parameters(request.parameters.keys())?;
        let _guard = self.locks.take(&lock_of(&id))?;
        let source = &request.source_volume_id;
        if let Ok(there) = self.pool.snapshot(&id) {
            return if there.volume == *source {
                Ok(there)
            } else {
                Err(Cause::Exists(format!("it exists as a snapshot of volume {}", there.volume)))
            };
        }
        let origin = self.origin(&Source::Volume(source.clone()))?;
        let volume = self.pool.get(source)?;
        let written = Pool::written(&origin.image);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let fresh = self.pool.promise_snapshot(|snapshots, space| {
            match plan::take(snapshots.get(&id), &volume, written, space, &self.config.node_id)? {
                Take::Existing => Ok(None),
                Take::New => Ok(Some(Snapshot {
                    id: id.clone(),
                    name: request.name.clone(),
                    volume: volume.id.clone(),
                    bytes: volume.bytes,
                    state: State::Creating,
                    content: volume.content,
                    access: volume.access,
                    data: written,
                    group: None,
                    taken: (
                        i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
                        i32::try_from(now.subsec_nanos()).unwrap_or_default(),
                    ),
                })),
            }
        })?;
        if let Some(snapshot) = fresh {
            failpoint("CreateSnapshot: promised");
            self.copy(&origin, &self.pool.snapshot_image(&id))?;
            failpoint("CreateSnapshot: copied");
            self.pool.put_snapshot(&Snapshot { state: State::Ready, ..snapshot })?;
            failpoint("CreateSnapshot: ready");
        }
        self.pool.snapshot(&id)
    }

    /// `DeleteSnapshot`; absent is success. Volumes that were copied from it are their own.
    pub(crate) fn drop_snapshot(&self, id: &str) -> Result<(), Cause> {
        required(id, "snapshot_id")?;
        let _guard = self.locks.take(&lock_of(id))?;
        match self.pool.snapshots().remove(id) {
            Some(Snapshot { group: Some(group), .. }) => {
                Err(Cause::Invalid(format!("it is one of the group snapshot {group} and goes with that")))
            }
            Some(snapshot) => {
                self.pool.remove_snapshot(&snapshot)?;
                failpoint("DeleteSnapshot: removed");
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Finds what a volume is to be copied from. A snapshot may be copied by several calls at once.
    ///
    /// # Errors
    /// `NOT_FOUND`, `ABORTED`.
    pub(crate) fn origin(&self, source: &Source) -> Result<Origin, Cause> {
        match source {
            Source::Snapshot(id) => {
                let guard = self.locks.share(&lock_of(id))?;
                let snapshot = self.pool.snapshot(id)?;
                let image = self.pool.snapshot_image(id);
                let (bytes, content) = (snapshot.bytes, snapshot.content);
                Ok(Origin { image, bytes, content, volume: None, _guard: guard })
            }
            Source::Volume(id) => {
                let guard = self.locks.take(id)?;
                let volume = self.pool.get(id)?;
                let (bytes, content) = (volume.bytes, volume.content);
                Ok(Origin { image: self.pool.image(id), bytes, content, volume: Some(volume), _guard: guard })
            }
        }
    }

    /// Copies `origin` to the file `to`, whole: what its user has synced is in it, and its file system needs no repair.
    pub(crate) fn copy(&self, origin: &Origin, to: &Path) -> Result<(), Cause> {
        let _still = self.hold(std::slice::from_ref(origin))?;
        Self::copy_still(&origin.image, to)
    }

    /// Makes the file `to` a copy of an image that stands still.
    pub(crate) fn copy_still(image: &Path, to: &Path) -> Result<(), Cause> {
        failpoint("copy: still");
        let copied = filesystem::copy(image, to)?;
        failpoint("copy: made");
        tracing::debug!(from = %image.display(), to = %to.display(), ?copied, "copied");
        Ok(())
    }

    /// Holds all of `origins` still, until what is given back is dropped.
    pub(crate) fn hold(&self, origins: &[Origin]) -> Result<Still, Cause> {
        let observed = Observed::now(self.pool.dir())?;
        let mut still = Still { frozen: Vec::new(), raw: Vec::new() };
        for origin in origins {
            let Some(volume) = &origin.volume else { continue };
            let Some(device) = observed.device(&origin.image) else { continue };
            let root = |m: &&trine_kernel::mountpoint::Mounted| {
                m.source == device.device && m.root == Path::new("/")
            };
            if let Some(mount) = observed.mounted.iter().find(root) {
                still.frozen.push(filesystem::freeze(&mount.target)?);
            } else {
                let raw = File::open(&device.device).and_then(|file| file.sync_all());
                raw.map_err(Cause::file("sync", &device.device))?;
                still.raw.push(volume.id.clone());
            }
        }
        Ok(still)
    }
}

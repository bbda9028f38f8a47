//! The volumes and snapshots on disk: records in memory and beside their images, one owner at a time.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use trine_kernel::filesystem::{self, Alone};
use trine_kernel::testing::failpoint;

use crate::config::PoolKind;
use crate::disk::Disk;
use crate::error::{Cause, chain};
use crate::plan::disk as plan;
use crate::plan::volume::Space;
use crate::record::{self, Group, Record, Snapshot, State, Volume};

/// How long a pool that another process is about to leave is waited for.
const HANDOVER: Duration = Duration::from_secs(5);

/// The folders of the snapshots and of their groups, in the pool's.
const SNAPSHOTS: &str = "snapshots";
const GROUPS: &str = "groups";

/// The pool folder. Dropping it lets the next owner in.
#[derive(Debug)]
pub struct Pool {
    /// Where records and images are.
    dir: PathBuf,
    /// The folder that we were given.
    home: PathBuf,
    /// What it lies on, if that is not the host's file system.
    disk: Option<Disk>,
    limit: Option<u64>,
    /// Whether files here share blocks, so that one that has written all of its own may need them anew.
    shares: bool,
    records: Mutex<Records>,
    _lock: File,
}

#[derive(Debug, Default)]
struct Records {
    volumes: BTreeMap<String, Volume>,
    snapshots: BTreeMap<String, Snapshot>,
    groups: BTreeMap<String, Group>,
}

/// The records of one kind in the folder `name` of the pool at `dir`, which is there once one was made.
fn kept<R: Record>(dir: &Path, name: &str) -> Result<BTreeMap<String, R>, Cause> {
    let kept = dir.join(name);
    // An empty one is what was cut off in its removal.
    if std::fs::remove_dir(&kept).is_ok() || !kept.exists() {
        return Ok(BTreeMap::new());
    }
    record::read_all(&kept).map_err(Cause::file("list", &kept))
}

impl Pool {
    /// Opens or makes the pool at `home`, waiting a little for another owner to leave. `limit` bounds the sum of
    /// all sizes, bytes.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if another process keeps it, or its volumes lie on something else than `kind`; what the file
    /// system said.
    pub fn open(home: &Path, kind: PoolKind, limit: Option<u64>) -> Result<Self, Cause> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(home)
            .map_err(Cause::file("create", home))?;
        let home = home.canonicalize().map_err(Cause::file("resolve", home))?;
        let lock = own(&home)?;
        let disk = Disk::open(&home, kind)?;
        let dir = disk.as_ref().map_or_else(|| home.clone(), |disk| disk.folder().to_owned());
        let volumes = record::read_all(&dir).map_err(Cause::file("list", &dir))?;
        let (snapshots, groups) = (kept(&dir, SNAPSHOTS)?, kept(&dir, GROUPS)?);
        let shares = filesystem::shares(&dir)?;
        let records = Mutex::new(Records { volumes, snapshots, groups });
        Ok(Self { dir, home, disk, limit, shares, records, _lock: lock })
    }

    /// The folder that it was opened at, without links: what is not of the volumes themselves is here.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The folder of the images, without links.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file behind volume `id`.
    #[must_use]
    pub fn image(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.img"))
    }

    /// The file behind snapshot `id`.
    #[must_use]
    pub fn snapshot_image(&self, id: &str) -> PathBuf {
        self.dir.join(SNAPSHOTS).join(format!("{id}.img"))
    }

    /// The record of a snapshot that is ready for use.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub fn snapshot(&self, id: &str) -> Result<Snapshot, Cause> {
        let snapshot = self.lock().snapshots.get(id).filter(|s| s.state == State::Ready).cloned();
        snapshot.ok_or_else(|| Cause::NoSnapshot(id.to_owned()))
    }

    /// All snapshots, in whichever state.
    #[must_use]
    pub fn snapshots(&self) -> BTreeMap<String, Snapshot> {
        self.lock().snapshots.clone()
    }

    /// All groups of snapshots, in whichever state.
    #[must_use]
    pub fn groups(&self) -> BTreeMap<String, Group> {
        self.lock().groups.clone()
    }

    /// The record of a volume that is ready for use.
    ///
    /// # Errors
    /// `NOT_FOUND`.
    pub fn get(&self, id: &str) -> Result<Volume, Cause> {
        let volume = self.lock().volumes.get(id).filter(|v| v.state == State::Ready).cloned();
        volume.ok_or_else(|| Cause::NoVolume(id.to_owned()))
    }

    /// All records, in whichever state.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, Volume> {
        self.lock().volumes.clone()
    }

    /// Writes `volume` to disk, then to memory.
    ///
    /// # Errors
    /// What the file system said; the caller must not act then.
    pub fn put(&self, volume: &Volume) -> Result<(), Cause> {
        self.put_locked(&mut self.lock().volumes, volume)
    }

    /// Writes `snapshot` to disk, then to memory.
    ///
    /// # Errors
    /// What the file system said; the caller must not act then.
    pub fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), Cause> {
        self.put_in(SNAPSHOTS, &mut self.lock().snapshots, snapshot)
    }

    /// Writes what `decide` makes of all records and the space there is, so that two calls never promise the
    /// same bytes. `None` changes nothing.
    ///
    /// # Errors
    /// What `decide` or the file system said.
    pub fn promise(
        &self,
        decide: impl FnOnce(&BTreeMap<String, Volume>, Space) -> Result<Option<Volume>, Cause>,
    ) -> Result<Option<Volume>, Cause> {
        let mut records = self.lock();
        let space = self.space_of(&records)?;
        let decided = decide(&records.volumes, space)?;
        if let Some(volume) = &decided {
            self.put_locked(&mut records.volumes, volume)?;
        }
        Ok(decided)
    }

    /// The same for a snapshot.
    ///
    /// # Errors
    /// What `decide` or the file system said.
    pub fn promise_snapshot(
        &self,
        decide: impl FnOnce(&BTreeMap<String, Snapshot>, Space) -> Result<Option<Snapshot>, Cause>,
    ) -> Result<Option<Snapshot>, Cause> {
        let mut records = self.lock();
        let space = self.space_of(&records)?;
        let decided = decide(&records.snapshots, space)?;
        if let Some(snapshot) = &decided {
            self.put_in(SNAPSHOTS, &mut records.snapshots, snapshot)?;
        }
        Ok(decided)
    }

    /// The same for a group and its members. The group's record is there before those of its members.
    ///
    /// # Errors
    /// What `decide` or the file system said.
    pub fn promise_group(
        &self,
        decide: impl FnOnce(&BTreeMap<String, Group>, Space) -> Result<Option<(Group, Vec<Snapshot>)>, Cause>,
    ) -> Result<Option<(Group, Vec<Snapshot>)>, Cause> {
        let mut records = self.lock();
        let space = self.space_of(&records)?;
        let decided = decide(&records.groups, space)?;
        if let Some((group, members)) = &decided {
            if let Some(other) = members.iter().find(|m| records.snapshots.contains_key(&m.id)) {
                return Err(Cause::Exists(format!("a snapshot {:?} exists", other.name)));
            }
            self.put_in(GROUPS, &mut records.groups, group)?;
            failpoint("CreateVolumeGroupSnapshot: promised");
            for member in members {
                self.put_in(SNAPSHOTS, &mut records.snapshots, member)?;
            }
        }
        Ok(decided)
    }

    /// Writes `group` to disk, then to memory.
    ///
    /// # Errors
    /// What the file system said; the caller must not act then.
    pub fn put_group(&self, group: &Group) -> Result<(), Cause> {
        self.put_in(GROUPS, &mut self.lock().groups, group)
    }

    /// Removes the record of group `id`, whose members are gone.
    ///
    /// # Errors
    /// What the file system said; a repetition goes on from there.
    pub fn remove_group(&self, id: &str) -> Result<(), Cause> {
        let dir = self.dir.join(GROUPS);
        let mut records = self.lock();
        record::remove(&dir, id).map_err(Cause::file("remove a record in", &dir))?;
        records.groups.remove(id);
        if records.groups.is_empty() {
            let _ = std::fs::remove_dir(dir);
        }
        Ok(())
    }

    /// The bytes of the disk that the image at `path` has, its own and shared ones.
    #[must_use]
    pub fn written(path: &Path) -> u64 {
        std::fs::metadata(path).map_or(0, |m| m.blocks() * 512)
    }

    /// Makes the image of `volume`, or changes its size. New bytes read as zero and take no space.
    ///
    /// # Errors
    /// What the file system said.
    pub fn shape(&self, volume: &Volume) -> Result<(), Cause> {
        let path = self.image(&volume.id);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(Cause::file("create", &path))?;
        failpoint("image: there");
        file.set_len(volume.bytes).map_err(Cause::file("size", &path))?;
        failpoint("image: sized");
        file.sync_all().map_err(Cause::file("sync", &path))
    }

    /// Removes image and record of `volume`, whatever is left of them.
    ///
    /// # Errors
    /// What the file system said; a repetition goes on from there.
    pub fn remove(&self, volume: &Volume) -> Result<(), Cause> {
        self.put(&volume.in_state(State::Deleting))?;
        unlink(&self.dir, &self.image(&volume.id), &volume.id)?;
        self.lock().volumes.remove(&volume.id);
        Ok(())
    }

    /// Removes image and record of `snapshot`, whatever is left of them.
    ///
    /// # Errors
    /// What the file system said; a repetition goes on from there.
    pub fn remove_snapshot(&self, snapshot: &Snapshot) -> Result<(), Cause> {
        self.put_snapshot(&snapshot.in_state(State::Deleting))?;
        let dir = self.dir.join(SNAPSHOTS);
        unlink(&dir, &self.snapshot_image(&snapshot.id), &snapshot.id)?;
        let mut records = self.lock();
        records.snapshots.remove(&snapshot.id);
        if records.snapshots.is_empty() {
            // A broken record may still be in it.
            let _ = std::fs::remove_dir(dir);
        }
        Ok(())
    }

    /// The pool's figures.
    ///
    /// # Errors
    /// What the file system said.
    pub fn space(&self) -> Result<Space, Cause> {
        self.space_of(&self.lock())
    }

    fn space_of(&self, records: &Records) -> Result<Space, Cause> {
        if let Some(disk) = &self.disk
            && let Err(cause) = disk.follow()
        {
            tracing::warn!(cause = %chain(&cause), "the pool's disk does not grow");
        }
        let inside = filesystem::usage(&self.dir)?;
        let (mut promised, mut unwritten, mut set_aside) = (0_u64, 0_u64, 0_u64);
        for volume in records.volumes.values() {
            let own = self.own(&self.image(&volume.id));
            promised = promised.saturating_add(volume.bytes);
            unwritten = unwritten.saturating_add(volume.bytes.saturating_sub(own.written));
            set_aside = set_aside.saturating_add(own.unwritten);
        }
        for snapshot in records.snapshots.values() {
            promised = promised.saturating_add(snapshot.data);
            if snapshot.state == State::Creating {
                let copied = if self.shares { 0 } else { Self::written(&self.snapshot_image(&snapshot.id)) };
                unwritten = unwritten.saturating_add(snapshot.data.saturating_sub(copied));
            }
        }
        let limit = self.limit.unwrap_or(u64::MAX);
        let (whole, left) = match &self.disk {
            None => (
                inside.total_bytes,
                inside.available_bytes.saturating_sub(unwritten.saturating_sub(set_aside)),
            ),
            Some(disk) => {
                let host = disk.host()?;
                let left = plan::left(inside.available_bytes, host.available_bytes, unwritten, set_aside);
                (inside.total_bytes.min(host.total_bytes), left)
            }
        };
        Ok(Space { whole: whole.min(limit), left: left.min(limit.saturating_sub(promised)) })
    }

    /// What the image at `path` has of the disk for itself. Blocks that a snapshot has, too, are taken anew when the volume is
    /// written to.
    fn own(&self, path: &Path) -> Alone {
        match self.shares {
            true => filesystem::alone(path).unwrap_or_default(),
            false => Alone { written: Self::written(path), unwritten: 0 },
        }
    }

    fn put_locked(&self, volumes: &mut BTreeMap<String, Volume>, volume: &Volume) -> Result<(), Cause> {
        record::write(&self.dir, volume).map_err(Cause::file("write the record in", &self.dir))?;
        volumes.insert(volume.id.clone(), volume.clone());
        Ok(())
    }

    fn put_in<R: Record + Clone>(
        &self,
        folder: &str,
        records: &mut BTreeMap<String, R>,
        record: &R,
    ) -> Result<(), Cause> {
        let dir = self.dir.join(folder);
        std::fs::create_dir_all(&dir).map_err(Cause::file("create", &dir))?;
        record::write(&dir, record).map_err(Cause::file("write the record in", &dir))?;
        records.insert(record.id().to_owned(), record.clone());
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes an image and then its record in `dir`; absent is success.
fn unlink(dir: &Path, image: &Path, id: &str) -> Result<(), Cause> {
    match std::fs::remove_file(image) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Cause::file("remove", image)(e)),
        _ => failpoint("image: removed"),
    }
    record::remove(dir, id).map_err(Cause::file("remove the record of", image))
}

/// Takes the pool's lock file, waiting a little for another owner to leave.
///
/// # Errors
/// `FAILED_PRECONDITION` if another process keeps it.
pub fn own(dir: &Path) -> Result<File, Cause> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(Cause::file("open", &path))?;
    let since = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if since.elapsed() < HANDOVER => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let text = format!("the pool {} belongs to another running driver", dir.display());
                return Err(Cause::Precondition(text));
            }
            Err(e) => return Err(Cause::file("lock", &path)(e.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::volume::tests::volume;

    #[test]
    fn a_pool_has_one_owner_and_keeps_its_records() {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::open(dir.path(), PoolKind::Files, Some(4 << 30)).unwrap();
        let one = volume("one");
        pool.put(&one).unwrap();
        pool.shape(&one).unwrap();
        assert_eq!(pool.space().unwrap().left, 3 << 30);
        let path = dir.path().to_owned();
        let next = std::thread::spawn(move || Pool::open(&path, PoolKind::Files, None).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!next.is_finished(), "the pool has an owner");
        drop(pool);
        let pool = next.join().unwrap();
        assert_eq!(pool.get("one").unwrap(), one);
        pool.remove(&one).unwrap();
        pool.remove(&one).unwrap();
        assert!(matches!(pool.get("one"), Err(Cause::NoVolume(_))));
        let mut left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["lock"]);
    }

    #[test]
    fn a_broken_record_spoils_neither_the_start_nor_its_data() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("v.json"), "{").unwrap();
        std::fs::write(dir.path().join("v.img"), "data").unwrap();
        let pool = Pool::open(dir.path(), PoolKind::Files, None).unwrap();
        assert!(pool.all().is_empty());
        assert_eq!(std::fs::read(dir.path().join("v.img")).unwrap(), b"data");
    }
}

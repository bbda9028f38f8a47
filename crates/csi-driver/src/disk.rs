//! A disk of the pool's own: a sparse file on the host's file system, a loop device, and an XFS whose files share their blocks.
//!
//! ```text
//! pool_dir ── own.disk ── /dev/loopN ── own/ ── <volume>.json, <volume>.img, snapshots/
//!          └─ own.disk.record: whether the disk has been made
//! ```
//!
//! It stays mounted when the driver ends, as its volumes do; [`let_go`] takes it off.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use trine_kernel::filesystem::{self, Kind};
use trine_kernel::loopdev::{self, Attached};
use trine_kernel::mountpoint::{self, Mounted};
use trine_kernel::testing::failpoint;

use crate::config::PoolKind;
use crate::error::{Cause, chain};
use crate::plan::disk::{self as plan, Decision, Facts};
use crate::record::{self, State};

/// How it is mounted: with room given back to the host as soon as files are removed. The UUID is not looked at, as a copy of the
/// folder may be in use on the same machine.
const OPTIONS: [&str; 3] = ["nouuid", "discard", "noatime"];

/// The largest file of an ext4 with blocks of 4 KiB is a little less, bytes; other file systems take less or more.
const LARGEST: u64 = 16 << 40;

/// How long the disk may take to let go of a volume that was just taken off.
const LET_GO: Duration = Duration::from_secs(3);

/// The disk, mounted.
#[derive(Debug)]
pub struct Disk {
    place: Place,
    device: PathBuf,
    /// Keeps it from being taken off: what is written to the folder then would be lost below the next mount.
    _root: File,
}

/// Where its parts are.
#[derive(Debug, Clone)]
struct Place {
    host: PathBuf,
    image: PathBuf,
    folder: PathBuf,
    record: PathBuf,
}

/// What is written beside the image.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    state: State,
}

impl Disk {
    /// Finds or makes the disk of the pool at `host`, a path without links; none if the volumes are to be files.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if what is there is not what is asked for; what the kernel said.
    pub fn open(host: &Path, asked: PoolKind) -> Result<Option<Self>, Cause> {
        let place = Place::of(host);
        let made = place.made()?;
        let facts = Facts {
            made,
            volumes: holds_volumes(host)?,
            shares: asked == PoolKind::Auto && made.is_none() && filesystem::shares(host)?,
            able: Kind::Xfs.available().is_ok(),
        };
        match plan::decide(asked, facts)? {
            Decision::Files => Ok(None),
            Decision::Existing => place.mount().map(Some),
            Decision::Make { must } => match place.make().and_then(|()| place.mount()) {
                Ok(disk) => Ok(Some(disk)),
                Err(cause) if must => Err(cause),
                Err(cause) => {
                    tracing::warn!(cause = %chain(&cause), "no disk of its own: volumes are files on the host's file system");
                    place.unmake()?;
                    Ok(None)
                }
            },
        }
    }

    /// The folder that it is mounted on.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.place.folder
    }

    /// What the host's file system has left, and the size of it, bytes.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn host(&self) -> Result<filesystem::Usage, Cause> {
        Ok(filesystem::usage(&self.place.host)?)
    }

    /// Follows the host's file system, if that has become larger.
    ///
    /// # Errors
    /// What the kernel said; the disk goes on with the size that it has.
    pub fn follow(&self) -> Result<(), Cause> {
        let image = &self.place.image;
        let has = std::fs::metadata(image).map_err(Cause::file("look at", image))?.len();
        let wanted = plan::size(self.host()?.total_bytes);
        if plan::grows(has, wanted) {
            let file = OpenOptions::new().write(true).open(image).map_err(Cause::file("open", image))?;
            stretch(&file, wanted, has).map_err(Cause::file("size", image))?;
            failpoint("disk: stretched");
            self.fill()?;
            tracing::info!(from = has, to = wanted, "the pool's disk has grown with the host's");
        }
        Ok(())
    }

    /// Device and file system become as large as the image.
    fn fill(&self) -> Result<(), Cause> {
        let image = &self.place.image;
        loopdev::refresh_size(&self.device)?;
        let bytes = std::fs::metadata(image).map_err(Cause::file("look at", image))?.len();
        Ok(filesystem::grow_mounted(Kind::Xfs, self.folder(), bytes)?)
    }
}

impl Place {
    fn of(host: &Path) -> Self {
        let at = |name: &str| host.join(name);
        Self {
            host: host.to_owned(),
            image: at("own.disk"),
            folder: at("own"),
            record: at("own.disk.record"),
        }
    }

    /// How far the disk has been made.
    fn made(&self) -> Result<Option<State>, Cause> {
        match std::fs::read(&self.record) {
            Ok(bytes) => match serde_json::from_slice::<Made>(&bytes) {
                Ok(made) => Ok(Some(made.state)),
                Err(error) => Err(Cause::file("read", &self.record)(error.into())),
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Cause::file("read", &self.record)(e)),
        }
    }

    fn note(&self, state: State) -> Result<(), Cause> {
        record::write_file(&self.host, "own.disk.record", &Made { state })
            .map_err(Cause::file("write", &self.record))
    }

    /// Makes image and file system. The record says `Ready` after that only, so what an earlier start has left half done
    /// holds nobody's data.
    fn make(&self) -> Result<(), Cause> {
        self.note(State::Creating)?;
        failpoint("disk: intended");
        self.release()?;
        let bytes = plan::size(filesystem::usage(&self.host)?.total_bytes);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.image)
            .map_err(Cause::file("create", &self.image))?;
        stretch(&file, bytes, Kind::Xfs.min_bytes()).map_err(Cause::file("size", &self.image))?;
        failpoint("disk: image");
        let device = loopdev::attach(&self.image)?;
        failpoint("disk: attached");
        let made = filesystem::make_sharing(&device.device).map_err(Cause::from).and_then(|()| {
            file.sync_all().map_err(Cause::file("sync", &self.image))?;
            failpoint("disk: made");
            self.note(State::Ready)
        });
        if made.is_err() {
            let _ = loopdev::detach(&device);
        }
        made
    }

    /// Removes what a failed making has left.
    fn unmake(&self) -> Result<(), Cause> {
        self.release()?;
        for file in [&self.image, &self.record] {
            match std::fs::remove_file(file) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Cause::file("remove", file)(e));
                }
                _ => {}
            }
        }
        let _ = std::fs::remove_dir(&self.folder);
        Ok(())
    }

    /// Finds the disk mounted, or mounts it.
    fn mount(&self) -> Result<Disk, Cause> {
        // Never made up for: its volumes would seem to be gone.
        std::fs::metadata(&self.image).map_err(Cause::file("find", &self.image))?;
        let mut devices = loopdev::of_file(&self.image)?;
        let table = mountpoint::mounted()?;
        let top = table.iter().rfind(|m| m.target == self.folder);
        let mut used = top.map(|mount| self.recognise(mount, &devices)).transpose()?;
        if used.is_some() && filesystem::usage(&self.folder).is_err() {
            // It has given up after an error, and its volumes with it.
            mountpoint::unmount_all(&self.folder, false)?;
            used = None;
        }
        let device = match used {
            Some(device) => device,
            None => self.mount_anew(devices.first().cloned())?,
        };
        devices.retain(|d| d.device != device);
        for second in &devices {
            loopdev::detach(second)?;
        }
        let root = File::open(&self.folder).map_err(Cause::file("open", &self.folder))?;
        let private = root.set_permissions(Permissions::from_mode(0o700));
        private.map_err(Cause::file("close to others", &self.folder))?;
        let disk = Disk { place: self.clone(), device, _root: root };
        disk.fill()?;
        if let Err(cause) = disk.follow() {
            tracing::warn!(cause = %chain(&cause), "the pool's disk does not grow");
        }
        Ok(disk)
    }

    fn recognise(&self, mount: &Mounted, devices: &[Attached]) -> Result<PathBuf, Cause> {
        if devices.iter().any(|d| d.device == mount.source) {
            return Ok(mount.source.clone());
        }
        let text = format!("{} is mounted at {}", mount.source.display(), self.folder.display());
        Err(Cause::Precondition(text))
    }

    fn mount_anew(&self, attached: Option<Attached>) -> Result<PathBuf, Cause> {
        let device = match attached {
            Some(there) => there,
            None => loopdev::attach(&self.image)?,
        };
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(Cause::file("create", &self.folder))?;
        let options = OPTIONS.map(str::to_owned);
        if let Err(error) = mountpoint::mount_device(&device.device, &self.folder, Kind::Xfs.name(), &options)
        {
            let _ = loopdev::detach(&device);
            return Err(error.into());
        }
        failpoint("disk: mounted");
        Ok(device.device)
    }

    /// Takes the disk off its folder and its device. The kernel may take a moment to let go of the last volume's file.
    fn release(&self) -> Result<(), Cause> {
        let since = Instant::now();
        loop {
            match mountpoint::unmount_all(&self.folder, false) {
                Ok(()) => break,
                Err(e) if e.source.kind() == std::io::ErrorKind::ResourceBusy && since.elapsed() < LET_GO => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(e) => return Err(e.into()),
            }
        }
        for device in loopdev::of_file(&self.image)? {
            loopdev::detach(&device)?;
        }
        Ok(())
    }
}

/// The folder of the volumes of the pool at `host`, whatever they lie on; nothing is mounted for it.
///
/// # Errors
/// What the file system said.
pub fn folder_of(host: &Path) -> Result<PathBuf, Cause> {
    let place = Place::of(host);
    Ok(if place.made()? == Some(State::Ready) { place.folder } else { host.to_owned() })
}

/// Takes the disk of the pool at `host` off, if it has one. Nothing may use its volumes any more. Twice is fine.
///
/// # Errors
/// What the kernel said.
pub fn let_go(host: &Path) -> Result<(), Cause> {
    let place = Place::of(host);
    match place.made()? {
        Some(_) => place.release(),
        None => Ok(()),
    }
}

/// Makes a file as long as `wanted`, or as its file system lets it be, but at least as long as `least`.
fn stretch(file: &File, wanted: u64, least: u64) -> std::io::Result<()> {
    let mut bytes = wanted;
    loop {
        match file.set_len(bytes) {
            Err(e) if e.kind() == std::io::ErrorKind::FileTooLarge && bytes / 2 >= least => {
                // From the largest that is usual downwards.
                bytes = if bytes > LARGEST { LARGEST - (1 << 20) } else { bytes / 2 / 4096 * 4096 };
            }
            done => return done,
        }
    }
}

/// Whether `dir` has volumes or snapshots as plain files.
fn holds_volumes(dir: &Path) -> Result<bool, Cause> {
    for entry in std::fs::read_dir(dir).map_err(Cause::file("list", dir))? {
        let path = entry.map_err(Cause::file("list", dir))?.path();
        if path.extension().is_some_and(|e| e == "img" || e == "json") || path.ends_with("snapshots") {
            return Ok(true);
        }
    }
    Ok(false)
}

//! Staging: device, file system, mount; and all three back.

use std::path::Path;

use trine_contracts::csi;
use trine_kernel::filesystem::{self, Content as Found, Kind};
use trine_kernel::testing::failpoint;
use trine_kernel::{loopdev, mountpoint};

use crate::driver::Driver;
use crate::error::Cause;
use crate::observe::{Observed, real};
use crate::plan::stage::{self as plan, At, Format, Programs};
use crate::record::{Content, Volume};
use crate::request::{Asked, required};

impl Driver {
    /// `NodeStageVolume`. Gives what was done, for the trace.
    pub(crate) fn stage(&self, request: &csi::NodeStageVolumeRequest) -> Result<String, Cause> {
        required(&request.volume_id, "volume_id")?;
        required(&request.staging_target_path, "staging_target_path")?;
        let asked = Asked::read(request.volume_capability.as_ref())?;
        let _guard = self.locks.take(&request.volume_id)?;
        let volume = self.pool.get(&request.volume_id)?;
        plan::fence(&volume, &self.config.node_id, asked.block)?;
        let device = self.device(&volume)?;
        failpoint("NodeStageVolume: device");
        if asked.block {
            self.mark_raw(&volume)?;
            failpoint("NodeStageVolume: raw");
            return Ok(format!("raw {}", device.display()));
        }
        let staging = real(&request.staging_target_path)?;
        let observed = Observed::now(self.pool.dir())?;
        if plan::at(&observed.mounted, &device, &staging)? == At::Done {
            if alive(&staging) {
                return Ok(format!("{} is mounted already", device.display()));
            }
            mountpoint::unmount_all(&staging, true)?;
        }
        self.mount(&volume, &asked, &device, &staging)
    }

    /// `NodeUnstageVolume`; absent is success.
    pub(crate) fn unstage(&self, request: &csi::NodeUnstageVolumeRequest) -> Result<(), Cause> {
        required(&request.volume_id, "volume_id")?;
        required(&request.staging_target_path, "staging_target_path")?;
        let _guard = self.locks.take(&request.volume_id)?;
        let staging = real(&request.staging_target_path)?;
        let image = self.pool.image(&request.volume_id);
        let observed = Observed::now(self.pool.dir())?;
        let Some(device) = observed.device(&image) else { return Ok(()) };
        let places = observed.places(&device.device);
        let published = self
            .targets_of(&request.volume_id)
            .into_iter()
            .find(|target| places.contains(&target.path.as_path()));
        if let Some(target) = published {
            let text = format!("it is still published at {}", target.path.display());
            return Err(Cause::Precondition(text));
        }
        if places.contains(&staging.as_path()) {
            mountpoint::unmount_all(&staging, false)?;
            failpoint("NodeUnstageVolume: unmounted");
        }
        let observed = Observed::now(self.pool.dir())?;
        if let Some(place) = observed.places(&device.device).first() {
            return Err(Cause::Precondition(format!("it is still mounted at {}", place.display())));
        }
        loopdev::detach(device)?;
        failpoint("NodeUnstageVolume: detached");
        Ok(())
    }

    /// The device of `volume`, attached if need be. What it is for can be read back from its backing file, so the
    /// volume's record is record enough.
    fn device(&self, volume: &Volume) -> Result<std::path::PathBuf, Cause> {
        let image = self.pool.image(&volume.id);
        let observed = Observed::now(self.pool.dir())?;
        if let Some(there) = observed.device(&image) {
            if loopdev::device_size(there.number)? != volume.bytes {
                loopdev::refresh_size(&there.device)?;
            }
            return Ok(there.device.clone());
        }
        Ok(loopdev::attach(&image)?.device)
    }

    fn mark_raw(&self, volume: &Volume) -> Result<(), Cause> {
        match volume.content {
            Content::Raw => Ok(()),
            Content::Untouched => self.pool.put(&Volume { content: Content::Raw, ..volume.clone() }),
            Content::Formatting(kind) | Content::Formatted(kind) => {
                Err(Cause::Precondition(format!("it has an {kind} file system and is not handed out raw")))
            }
        }
    }

    fn mount(&self, volume: &Volume, asked: &Asked, device: &Path, staging: &Path) -> Result<String, Cause> {
        let programs = Programs { xfs: Kind::Xfs.available().is_ok(), ext4: Kind::Ext4.available().is_ok() };
        let found = filesystem::inspect(device)?;
        let (kind, made) = match plan::format(volume, asked.filesystem, &found, programs)? {
            Format::Keep(kind) => (kind, false),
            Format::Make(kind) => {
                self.format(volume, kind, device)?;
                (kind, true)
            }
        };
        let short = matches!(found, Found::Ours { bytes, .. } if !made && bytes < volume.bytes);
        if short && kind == Kind::Ext4 {
            filesystem::grow_unmounted(device)?;
            failpoint("NodeStageVolume: grown before");
        }
        std::fs::create_dir_all(staging).map_err(Cause::file("create", staging))?;
        failpoint("NodeStageVolume: folder");
        mountpoint::mount_device(device, staging, kind.name(), &plan::mount_options(kind, &asked.options))?;
        failpoint("NodeStageVolume: mounted");
        if short && kind == Kind::Xfs {
            filesystem::grow_mounted(kind, staging, volume.bytes)?;
            failpoint("NodeStageVolume: grown");
        }
        let verb = if made { "made and mounted" } else { "mounted" };
        Ok(format!("{kind} {verb} on {}", device.display()))
    }

    /// The record says `Formatting` before mkfs and `Formatted` before the first mount, so a crash between
    /// the two is known to have harmed nobody's data.
    fn format(&self, volume: &Volume, kind: Kind, device: &Path) -> Result<(), Cause> {
        kind.available()?;
        self.pool.put(&Volume { content: Content::Formatting(kind), ..volume.clone() })?;
        failpoint("NodeStageVolume: formatting");
        filesystem::make(kind, device)?;
        failpoint("NodeStageVolume: made");
        self.pool.put(&Volume { content: Content::Formatted(kind), ..volume.clone() })
    }
}

/// Whether what is mounted at `path` answers. A mount whose device is gone gives an I/O error.
fn alive(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| !matches!(entries.next(), Some(Err(_))))
        && filesystem::usage(path).is_ok()
}

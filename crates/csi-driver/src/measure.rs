//! Looking at a published volume, at its health, and growing what is on it.

use trine_contracts::csi;
use trine_contracts::csi::volume_usage::Unit;
use trine_kernel::testing::failpoint;
use trine_kernel::{filesystem, loopdev};

use crate::driver::Driver;
use crate::error::Cause;
use crate::observe::{Observed, real};
use crate::record::{Content, Volume};
use crate::request::{Asked, required};

impl Driver {
    /// `NodeGetVolumeStats`.
    pub(crate) fn stats(
        &self,
        request: &csi::NodeGetVolumeStatsRequest,
    ) -> Result<csi::NodeGetVolumeStatsResponse, Cause> {
        let (volume, _, block) = self.at_path(&request.volume_id, &request.volume_path)?;
        let volume_condition = Some(self.condition(&volume));
        if block {
            let usage = vec![usage(volume.bytes, None, None, Unit::Bytes)];
            return Ok(csi::NodeGetVolumeStatsResponse { usage, volume_condition });
        }
        let usage_now = filesystem::usage(std::path::Path::new(&request.volume_path))?;
        let usage = vec![
            usage(
                usage_now.total_bytes,
                Some(usage_now.available_bytes),
                Some(usage_now.used_bytes),
                Unit::Bytes,
            ),
            usage(
                usage_now.total_inodes,
                Some(usage_now.free_inodes),
                Some(usage_now.total_inodes.saturating_sub(usage_now.free_inodes)),
                Unit::Inodes,
            ),
        ];
        Ok(csi::NodeGetVolumeStatsResponse { usage, volume_condition })
    }

    /// `NodeExpandVolume`: the device follows its file, the file system its device. Gives the size.
    pub(crate) fn expand_on_node(&self, request: &csi::NodeExpandVolumeRequest) -> Result<u64, Cause> {
        required(&request.volume_id, "volume_id")?;
        required(&request.volume_path, "volume_path")?;
        if request.volume_capability.is_some() {
            Asked::read(request.volume_capability.as_ref())?;
        }
        let _guard = self.locks.take(&request.volume_id)?;
        let (volume, device, block) = self.at_path(&request.volume_id, &request.volume_path)?;
        loopdev::refresh_size(&device)?;
        failpoint("NodeExpandVolume: device");
        if let (false, Content::Formatted(kind)) = (block, volume.content) {
            filesystem::grow_mounted(kind, std::path::Path::new(&request.volume_path), volume.bytes)?;
            failpoint("NodeExpandVolume: grown");
        }
        Ok(volume.bytes)
    }

    /// What is wrong with the volume, if anything is.
    pub(crate) fn condition(&self, volume: &Volume) -> csi::VolumeCondition {
        let image = self.pool.image(&volume.id);
        let wrong = match std::fs::metadata(&image) {
            Err(error) => Some(format!("its file {} cannot be found: {error}", image.display())),
            Ok(file) if file.len() < volume.bytes => {
                Some(format!("its file {} has only {} bytes", image.display(), file.len()))
            }
            Ok(_) => None,
        };
        csi::VolumeCondition {
            abnormal: wrong.is_some(),
            message: wrong.unwrap_or_else(|| "its file is there".to_owned()),
        }
    }

    /// The volume, its device, and whether `path` shows it raw.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no such volume, or it is not at `path`.
    fn at_path(&self, id: &str, path: &str) -> Result<(Volume, std::path::PathBuf, bool), Cause> {
        required(id, "volume_id")?;
        required(path, "volume_path")?;
        let volume = self.pool.get(id)?;
        // A path that nothing can be published at is simply not where the volume is.
        let real = real(path).unwrap_or_else(|_| path.into());
        let observed = Observed::now(self.pool.dir())?;
        let image = self.pool.image(id);
        let device = observed.device(&image).map(|a| a.device.clone());
        let absent = || Cause::NotAtPath { volume: id.to_owned(), path: real.clone() };
        let device = device.ok_or_else(absent)?;
        let raw = volume.content == Content::Raw;
        // A raw volume may also be named by the link or the staging folder that the caller keeps for it.
        let shown = match observed.top(&real) {
            Some(mount) => observed.behind(mount).is_some_and(|a| a.backing_file == image),
            None => {
                raw && std::fs::symlink_metadata(&real).is_ok()
                    && std::fs::canonicalize(&real).is_ok_and(|to| to == device)
            }
        };
        if shown { Ok((volume, device, raw)) } else { Err(absent()) }
    }
}

fn usage(total: u64, available: Option<u64>, used: Option<u64>, unit: Unit) -> csi::VolumeUsage {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    csi::VolumeUsage {
        total: signed(total),
        available: signed(available.unwrap_or_default()),
        used: signed(used.unwrap_or_default()),
        unit: unit.into(),
    }
}

//! Publishing: the staged volume, or its raw device, bound to the path where a Pod sees it.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use trine_contracts::csi;
use trine_kernel::mountpoint;
use trine_kernel::testing::failpoint;

use crate::driver::Driver;
use crate::error::Cause;
use crate::observe::{Observed, real};
use crate::plan::stage::fence;
use crate::plan::target::{self as plan, Publish, Target, shows};
use crate::request::{Asked, required};

impl Driver {
    /// `NodePublishVolume`.
    pub(crate) fn publish(&self, request: &csi::NodePublishVolumeRequest) -> Result<(), Cause> {
        required(&request.volume_id, "volume_id")?;
        required(&request.target_path, "target_path")?;
        let asked = Asked::read(request.volume_capability.as_ref())?;
        if request.staging_target_path.is_empty() {
            return Err(Cause::Precondition(
                "no staging_target_path: the volume has to be staged".to_owned(),
            ));
        }
        let readonly = request.readonly || asked.readonly || asked.options.iter().any(|o| o == "ro");
        if asked.block && readonly {
            return Err(Cause::Invalid("a raw device for reading only is not offered".to_owned()));
        }
        let _guard = self.locks.take(&request.volume_id)?;
        let volume = self.pool.get(&request.volume_id)?;
        fence(&volume, &self.config.node_id, asked.block)?;
        let target = Target {
            volume: volume.id.clone(),
            path: real(&request.target_path)?,
            block: asked.block,
            readonly,
            exclusive: asked.exclusive,
        };
        let observed = Observed::now(self.pool.dir())?;
        let staging = real(&request.staging_target_path)?;
        let not_staged = || Cause::Precondition(format!("it is not staged at {}", staging.display()));
        let device = &observed.device(&self.pool.image(&volume.id)).ok_or_else(not_staged)?.device;
        if !asked.block && !observed.top(&staging).is_some_and(|m| shows(m, device)) {
            return Err(not_staged());
        }
        match plan::publish(&target, &self.targets_of(&volume.id), &observed.mounted, device)? {
            Publish::Done => Ok(()),
            Publish::Bind => self.bind(&target, if asked.block { device } else { &staging }),
        }
    }

    /// `NodeUnpublishVolume`: the mount, the target and its record; absent is success.
    pub(crate) fn unpublish(&self, request: &csi::NodeUnpublishVolumeRequest) -> Result<(), Cause> {
        required(&request.volume_id, "volume_id")?;
        required(&request.target_path, "target_path")?;
        let _guard = self.locks.take(&request.volume_id)?;
        let path = real(&request.target_path)?;
        let observed = Observed::now(self.pool.dir())?;
        if let Some(mount) = observed.top(&path) {
            let image = self.pool.image(&request.volume_id);
            let ours = observed.behind(mount).is_some_and(|device| device.backing_file == image);
            if !ours {
                let text = format!("{} is mounted at {}", mount.source.display(), path.display());
                return Err(Cause::Precondition(text));
            }
            mountpoint::unmount_all(&path, false)?;
            failpoint("NodeUnpublishVolume: unmounted");
        }
        remove_target(&path)?;
        failpoint("NodeUnpublishVolume: removed");
        self.targets.remove(&path.to_string_lossy())?;
        failpoint("NodeUnpublishVolume: forgotten");
        Ok(())
    }

    fn bind(&self, target: &Target, source: &Path) -> Result<(), Cause> {
        self.targets.put(&target.path.to_string_lossy(), target)?;
        failpoint("NodePublishVolume: intended");
        make_target(target)?;
        failpoint("NodePublishVolume: target");
        mountpoint::bind(source, &target.path, target.readonly)?;
        failpoint("NodePublishVolume: bound");
        Ok(())
    }
}

/// A folder to mount on, or a file to bind a device on. Its parent is the caller's, but made if it is missing.
fn make_target(target: &Target) -> Result<(), Cause> {
    let path = &target.path;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(Cause::file("create", parent))?;
    }
    let made = if target.block {
        OpenOptions::new().create(true).truncate(false).write(true).open(path).map(drop)
    } else {
        match std::fs::DirBuilder::new().mode(0o750).create(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            made => made,
        }
    };
    made.map_err(Cause::file("create", path))
}

/// Removes the empty folder or the file. Never what is inside: it could be somebody's data.
fn remove_target(path: &Path) -> Result<(), Cause> {
    let kind = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Cause::file("look at", path)(e)),
    };
    let removed = if kind.is_dir() { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
    removed.map_err(Cause::file("remove", path))
}

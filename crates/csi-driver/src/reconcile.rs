//! The start: what a crash left half done is finished or undone, and leftover devices are let go.

use std::path::PathBuf;

use trine_kernel::testing::failpoint;
use trine_kernel::{filesystem, loopdev};

use crate::driver::Driver;
use crate::error::Cause;
use crate::observe::Observed;
use crate::plan::leftover;
use crate::record::State;

impl Driver {
    /// Brings records, files and devices into line. One volume's trouble is logged and does not keep the others.
    ///
    /// # Errors
    /// Only if the kernel cannot be asked at all.
    pub fn reconcile(&self) -> Result<(), Cause> {
        let observed = Observed::now(self.pool.dir())?;
        for device in
            leftover::devices(&self.pool.all(), &observed.attached, &observed.mounted, self.pool.dir())
        {
            tracing::info!(device = %device.device.display(), file = %device.backing_file.display(), "leftover device let go");
            if let Err(error) = loopdev::detach(&device) {
                tracing::warn!(%error, "leftover device stays");
            }
        }
        failpoint("start: devices");
        // A copy that was cut off leaves the file system standing still, and everybody in it.
        for device in &observed.attached {
            for place in observed.places(&device.device) {
                match filesystem::thaw(place) {
                    Ok(true) => tracing::info!(place = %place.display(), "a frozen file system goes on"),
                    Ok(false) => {}
                    // Of a raw device, or of a mount that is dead.
                    Err(error) => tracing::debug!(%error, "not thawed"),
                }
            }
        }
        failpoint("start: thawed");
        for group in self.pool.groups().into_values().filter(|g| g.state != State::Ready) {
            if let Err(error) = self.remove_group(&group) {
                tracing::warn!(group = group.id, error = %crate::error::chain(&error), "group snapshot not reconciled");
            }
        }
        for snapshot in self.pool.snapshots().into_values() {
            let done = match snapshot.state {
                State::Creating | State::Deleting => self.pool.remove_snapshot(&snapshot),
                State::Ready => Ok(()),
            };
            if let Err(error) = done {
                tracing::warn!(snapshot = snapshot.id, error = %crate::error::chain(&error), "snapshot not reconciled");
            }
        }
        for volume in self.pool.all().into_values() {
            let done = match volume.state {
                // Nobody was told of it: the caller asks again, or has given up.
                State::Creating => self.pool.remove(&volume),
                State::Deleting => self.pool.remove(&volume),
                State::Ready => self.check_image(&volume),
            };
            if let Err(error) = done {
                tracing::warn!(volume = volume.id, error = %crate::error::chain(&error), "volume not reconciled");
            }
        }
        failpoint("start: records");
        let gone = |path: &PathBuf| observed.top(path).is_none();
        for target in self.targets.all().into_values().filter(|t| gone(&t.path)) {
            self.targets.remove(&target.path.to_string_lossy())?;
        }
        Ok(())
    }

    /// An expansion may have ended between the record and the file. A missing file is never made up for: the
    /// volume's data would seem to be there and empty.
    fn check_image(&self, volume: &crate::record::Volume) -> Result<(), Cause> {
        let path = self.pool.image(&volume.id);
        let length = std::fs::metadata(&path).map_err(Cause::file("find", &path))?.len();
        if length < volume.bytes { self.pool.shape(volume) } else { Ok(()) }
    }
}

//! The controller's acts: making, attaching, growing and removing volumes.

use trine_contracts::csi;
use trine_kernel::testing::failpoint;
use trine_kernel::{filesystem, loopdev};

use crate::driver::Driver;
use crate::error::Cause;
use crate::observe::Observed;
use crate::plan::copy;
use crate::plan::volume::{self as plan, Create};
use crate::record::{Content, State, Volume};
use crate::request::{self, Access, Asked, required};
use crate::size::Range;

impl Driver {
    /// `CreateVolume`: the record, the file or its copy, the record as ready.
    pub(crate) fn create(&self, request: &csi::CreateVolumeRequest) -> Result<Volume, Cause> {
        let id = request::id_of(&request.name)?;
        let access = Access::read(&request.volume_capabilities)?;
        let range = Range::read(request.capacity_range.as_ref())?;
        request::check_parameters(request.parameters.keys())?;
        request::check_parameters(request.mutable_parameters.keys())?;
        let source = request::source(request.volume_content_source.as_ref())?;
        request::check_topology(request.accessibility_requirements.as_ref(), &self.config.node_id)?;
        if let Some(kind) = access.filesystem {
            kind.available()?;
        }
        let _guard = self.locks.take(&id)?;
        let origin = match &source {
            Some(source) if self.pool.get(&id).is_err() => Some(self.origin(source)?),
            _ => None,
        };
        // Of a volume that is there it is only asked whether it is the same, for which its source may be gone.
        let from = source.as_ref().map(|source| (source, origin.as_ref().map_or(0, |o| o.bytes)));
        let content = match &origin {
            Some(origin) => {
                copy::content(origin.content, access, || Ok(filesystem::inspect(&origin.image)?))?
            }
            None => Content::Untouched,
        };
        let fresh = self.pool.promise(|volumes, space| {
            let asked = (range, access);
            match plan::create(volumes.get(&id), asked, from, space, &self.config.node_id)? {
                Create::Existing => Ok(None),
                Create::New(bytes) => Ok(Some(Volume {
                    id: id.clone(),
                    name: request.name.clone(),
                    bytes,
                    state: State::Creating,
                    content,
                    access,
                    published: None,
                    source: source.clone(),
                })),
            }
        })?;
        if let Some(volume) = fresh {
            failpoint("CreateVolume: promised");
            if let Some(origin) = &origin {
                self.copy(origin, &self.pool.image(&id))?;
                failpoint("CreateVolume: copied");
            }
            self.pool.shape(&volume)?;
            failpoint("CreateVolume: shaped");
            self.pool.put(&Volume { state: State::Ready, ..volume })?;
            failpoint("CreateVolume: ready");
        }
        self.pool.get(&id)
    }

    /// `DeleteVolume`; absent is success.
    pub(crate) fn delete(&self, id: &str) -> Result<(), Cause> {
        required(id, "volume_id")?;
        let _guard = self.locks.take(id)?;
        let Some(volume) = self.pool.all().remove(id) else { return Ok(()) };
        if let Some(there) = &volume.published {
            return Err(Cause::Precondition(format!("it is attached to node {}", there.node)));
        }
        self.let_go(id)?;
        failpoint("DeleteVolume: let go");
        self.pool.remove(&volume)?;
        failpoint("DeleteVolume: removed");
        Ok(())
    }

    /// `ControllerPublishVolume`: writes the fence.
    pub(crate) fn attach(&self, request: &csi::ControllerPublishVolumeRequest) -> Result<(), Cause> {
        required(&request.volume_id, "volume_id")?;
        required(&request.node_id, "node_id")?;
        let asked = Asked::read(request.volume_capability.as_ref())?;
        if request.readonly {
            return Err(Cause::Invalid("attaching for reading only is not offered".to_owned()));
        }
        let _guard = self.locks.take(&request.volume_id)?;
        let volume = self.pool.get(&request.volume_id)?;
        self.pool.promise(|volumes, _| {
            let attached = volumes.values().filter(|v| v.published.is_some()).count();
            let (node, ours) = (&request.node_id, &self.config.node_id);
            let fence = plan::publish(&volume, node, asked.block, ours, attached, self.config.max_volumes)?;
            Ok(fence.map(|fence| Volume { published: Some(fence), ..volume }))
        })?;
        failpoint("ControllerPublishVolume: fenced");
        Ok(())
    }

    /// `ControllerUnpublishVolume`: drops the fence, once nothing is mounted any more. An unknown volume or node
    /// is success, or the caller could never finish.
    pub(crate) fn detach(&self, id: &str, node: &str) -> Result<(), Cause> {
        required(id, "volume_id")?;
        let _guard = self.locks.take(id)?;
        let Ok(volume) = self.pool.get(id) else { return Ok(()) };
        let fenced = volume.published.as_ref().is_some_and(|there| node.is_empty() || there.node == node);
        if !fenced {
            return Ok(());
        }
        self.let_go(id)?;
        failpoint("ControllerUnpublishVolume: let go");
        self.pool.put(&Volume { published: None, ..volume })?;
        failpoint("ControllerUnpublishVolume: free");
        Ok(())
    }

    /// `ControllerExpandVolume`: the record, then the file and the device. Gives the size.
    pub(crate) fn expand(&self, request: &csi::ControllerExpandVolumeRequest) -> Result<Volume, Cause> {
        required(&request.volume_id, "volume_id")?;
        let range = request
            .capacity_range
            .as_ref()
            .ok_or_else(|| Cause::Invalid("no capacity_range".to_owned()))
            .and_then(|range| Range::read(Some(range)))?;
        if request.volume_capability.is_some() {
            Asked::read(request.volume_capability.as_ref())?;
        }
        let _guard = self.locks.take(&request.volume_id)?;
        let volume = self.pool.get(&request.volume_id)?;
        if volume.bytes >= range.required {
            return if volume.bytes <= range.limit {
                self.follow(&volume).map(|()| volume)
            } else {
                Err(Cause::Size(format!("it has {} already and cannot shrink", crate::Bytes(volume.bytes))))
            };
        }
        let bytes = range.choose()?;
        let grown = Volume { bytes, ..volume.clone() };
        self.pool.promise(|_, space| {
            plan::fits(bytes, bytes - volume.bytes, space, &self.config.node_id)?;
            Ok(Some(grown.clone()))
        })?;
        failpoint("ControllerExpandVolume: promised");
        self.follow(&grown)?;
        failpoint("ControllerExpandVolume: grown");
        Ok(grown)
    }

    /// Makes image and device as large as the record says.
    fn follow(&self, volume: &Volume) -> Result<(), Cause> {
        self.pool.shape(volume)?;
        failpoint("ControllerExpandVolume: file");
        let observed = Observed::now(self.pool.dir())?;
        match observed.device(&self.pool.image(&volume.id)) {
            Some(device) => Ok(loopdev::refresh_size(&device.device)?),
            None => Ok(()),
        }
    }

    /// Detaches a device of volume `id` that is left over.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the volume is still mounted or bound somewhere.
    fn let_go(&self, id: &str) -> Result<(), Cause> {
        let image = self.pool.image(id);
        let observed = Observed::now(self.pool.dir())?;
        for device in observed.attached.iter().filter(|a| a.backing_file == image) {
            if let Some(place) = observed.places(&device.device).first() {
                return Err(Cause::Precondition(format!("it is still mounted at {}", place.display())));
            }
            loopdev::detach(device)?;
        }
        Ok(())
    }
}

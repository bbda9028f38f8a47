//! Snapshots of several volumes at one moment: all of them stand still while the first to the last is copied.

use std::time::{SystemTime, UNIX_EPOCH};

use trine_contracts::csi;
use trine_kernel::testing::failpoint;

use crate::driver::Driver;
use crate::error::Cause;
use crate::locks::Guard;
use crate::plan::group::{self as plan, Take};
use crate::pool::Pool;
use crate::record::{Group, Snapshot, Source, State};
use crate::request::{self, required};
use crate::snapshot::{Origin, lock_of};

/// Locks of groups are apart from those of their members.
fn lock_of_group(id: &str) -> String {
    format!("group {id}")
}

/// A group with its members, in the order of their volumes.
pub(crate) type Whole = (Group, Vec<Snapshot>);

impl Driver {
    /// `CreateVolumeGroupSnapshot`: the records, the copies while all volumes stand still, the records as ready.
    pub(crate) fn take_group(&self, request: &csi::CreateVolumeGroupSnapshotRequest) -> Result<Whole, Cause> {
        let id = request::id_of(&request.name)?;
        let volumes = plan::volumes(&request.source_volume_ids)?;
        request::check_parameters(request.parameters.keys())?;
        let _guard = self.locks.take(&lock_of_group(&id))?;
        if let Some(there) = self.pool.groups().get(&id).filter(|g| g.state == State::Ready) {
            plan::same(there, &volumes)?;
            return self.group(&id);
        }
        let mut origins = Vec::new();
        for volume in &volumes {
            origins.push(self.origin(&Source::Volume(volume.clone()))?);
        }
        let fresh = self.promise_group(&id, &request.name, &volumes, &origins)?;
        if let Some((group, members)) = fresh {
            // A half-made one of the same name may have had other members.
            let copied = self.copy_all(&origins, &members);
            if let Err(cause) = copied {
                self.remove_group(&group)?;
                return Err(cause);
            }
            failpoint("CreateVolumeGroupSnapshot: copied");
            for member in members {
                self.pool.put_snapshot(&Snapshot { state: State::Ready, ..member })?;
            }
            failpoint("CreateVolumeGroupSnapshot: members");
            self.pool.put_group(&Group { state: State::Ready, ..group })?;
            failpoint("CreateVolumeGroupSnapshot: ready");
        }
        self.group(&id)
    }

    fn promise_group(
        &self,
        id: &str,
        name: &str,
        volumes: &[String],
        origins: &[Origin],
    ) -> Result<Option<Whole>, Cause> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let taken = (
            i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            i32::try_from(now.subsec_nanos()).unwrap_or_default(),
        );
        let written: Vec<u64> = origins.iter().map(|o| Pool::written(&o.image)).collect();
        let half = self.pool.groups().remove(id);
        if let Some(half) = half.filter(|g| g.state != State::Ready) {
            self.remove_group(&half)?;
        }
        self.pool.promise_group(|groups, space| {
            match plan::take(groups.get(id), volumes, &written, space, &self.config.node_id)? {
                Take::Existing => Ok(None),
                Take::New => {
                    let mut members = Vec::new();
                    for (origin, data) in origins.iter().zip(&written) {
                        let Some(volume) = &origin.volume else { continue };
                        members.push(Snapshot {
                            id: request::id_of(&plan::member_name(id, &volume.id))?,
                            name: plan::member_name(id, &volume.id),
                            volume: volume.id.clone(),
                            bytes: volume.bytes,
                            state: State::Creating,
                            content: volume.content,
                            access: volume.access,
                            data: *data,
                            taken,
                            group: Some(id.to_owned()),
                        });
                    }
                    let group = Group {
                        id: id.to_owned(),
                        name: name.to_owned(),
                        state: State::Creating,
                        members: members.iter().map(|m| (m.volume.clone(), m.id.clone())).collect(),
                        taken,
                    };
                    Ok(Some((group, members)))
                }
            }
        })
    }

    fn copy_all(&self, origins: &[Origin], members: &[Snapshot]) -> Result<(), Cause> {
        let still = self.hold(origins)?;
        if let Some(raw) = still.raw.first().filter(|_| origins.len() > 1) {
            return Err(Cause::Precondition(format!(
                "{raw} is in use as a raw device, which cannot be held still beside the others"
            )));
        }
        for (origin, member) in origins.iter().zip(members) {
            Self::copy_still(&origin.image, &self.pool.snapshot_image(&member.id))?;
        }
        Ok(())
    }

    /// `DeleteVolumeGroupSnapshot`, with all its members; absent is success.
    pub(crate) fn drop_group(&self, id: &str, members: &[String]) -> Result<(), Cause> {
        required(id, "group_snapshot_id")?;
        let _guard = self.locks.take(&lock_of_group(id))?;
        let Some(group) = self.pool.groups().remove(id) else { return Ok(()) };
        plan::members(&group, members)?;
        let mut held: Vec<Guard> = Vec::new();
        for member in group.members.values() {
            held.push(self.locks.take(&lock_of(member))?);
        }
        self.remove_group(&group)
    }

    /// Removes the members and then the group, whatever is left of them.
    pub(crate) fn remove_group(&self, group: &Group) -> Result<(), Cause> {
        self.pool.put_group(&Group { state: State::Deleting, ..group.clone() })?;
        failpoint("DeleteVolumeGroupSnapshot: said");
        let there = self.pool.snapshots();
        for member in group.members.values().filter_map(|id| there.get(id)) {
            self.pool.remove_snapshot(member)?;
            failpoint("DeleteVolumeGroupSnapshot: member");
        }
        self.pool.remove_group(&group.id)?;
        failpoint("DeleteVolumeGroupSnapshot: removed");
        Ok(())
    }

    /// `GetVolumeGroupSnapshot`.
    pub(crate) fn look_at_group(&self, id: &str, members: &[String]) -> Result<Whole, Cause> {
        required(id, "group_snapshot_id")?;
        let whole = self.group(id)?;
        plan::members(&whole.0, members)?;
        Ok(whole)
    }

    fn group(&self, id: &str) -> Result<Whole, Cause> {
        let absent = || Cause::NoGroup(id.to_owned());
        let group = self.pool.groups().remove(id).filter(|g| g.state == State::Ready).ok_or_else(absent)?;
        let members: Result<Vec<_>, _> = group.members.values().map(|m| self.pool.snapshot(m)).collect();
        Ok((group, members?))
    }
}

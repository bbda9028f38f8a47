//! The snapshots' part of `csi.v1.Controller`.

use tonic::{Response, Status};
use tracing::info_span;
use trine_contracts::csi;
use trine_contracts::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};

use super::Service;
use super::controller::signed;
use crate::plan::volume::page;
use crate::record::{Snapshot, Source, State};
use crate::request::required;

/// What a volume was copied from, as the contract says it.
pub(super) fn source(source: &Source) -> csi::VolumeContentSource {
    let kind = match source {
        Source::Snapshot(id) => Type::Snapshot(SnapshotSource { snapshot_id: id.clone() }),
        Source::Volume(id) => Type::Volume(VolumeSource { volume_id: id.clone() }),
    };
    csi::VolumeContentSource { r#type: Some(kind) }
}

pub(super) fn describe(snapshot: &Snapshot) -> csi::Snapshot {
    let (seconds, nanos) = snapshot.taken;
    csi::Snapshot {
        size_bytes: signed(snapshot.bytes),
        snapshot_id: snapshot.id.clone(),
        source_volume_id: snapshot.volume.clone(),
        creation_time: Some(prost_types::Timestamp { seconds, nanos }),
        ready_to_use: snapshot.state == State::Ready,
        group_snapshot_id: snapshot.group.clone().unwrap_or_default(),
    }
}

impl Service {
    pub(super) async fn take_snapshot(
        &self,
        request: csi::CreateSnapshotRequest,
    ) -> Result<Response<csi::CreateSnapshotResponse>, Status> {
        let name = request.name.clone();
        let step = info_span!(target: "trine::step", "CreateSnapshot", plane = "csi",
            volume = %request.source_volume_id, detail = %name, error = tracing::field::Empty);
        self.run(step, "CreateSnapshot", &name, move |driver| {
            let snapshot = driver.take(&request)?;
            Ok(csi::CreateSnapshotResponse { snapshot: Some(describe(&snapshot)) })
        })
        .await
    }

    pub(super) async fn remove_snapshot(
        &self,
        request: csi::DeleteSnapshotRequest,
    ) -> Result<Response<csi::DeleteSnapshotResponse>, Status> {
        let id = request.snapshot_id;
        let step = info_span!(target: "trine::step", "DeleteSnapshot", plane = "csi", detail = %id,
            error = tracing::field::Empty);
        self.run(step, "DeleteSnapshot", &id.clone(), move |driver| {
            driver.drop_snapshot(&id).map(|()| csi::DeleteSnapshotResponse {})
        })
        .await
    }

    pub(super) async fn snapshots(
        &self,
        request: csi::ListSnapshotsRequest,
    ) -> Result<Response<csi::ListSnapshotsResponse>, Status> {
        self.run(tracing::Span::none(), "ListSnapshots", "", move |driver| {
            let asked = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
            let all = driver.pool.snapshots();
            let wanted = all.values().filter(|s| {
                asked(&request.snapshot_id, &s.id) && asked(&request.source_volume_id, &s.volume)
            });
            let (found, next_token) = page(wanted, &request.starting_token, request.max_entries)?;
            let entry = |s: &Snapshot| csi::list_snapshots_response::Entry { snapshot: Some(describe(s)) };
            Ok(csi::ListSnapshotsResponse { entries: found.into_iter().map(entry).collect(), next_token })
        })
        .await
    }

    pub(super) async fn one_snapshot(
        &self,
        request: csi::GetSnapshotRequest,
    ) -> Result<Response<csi::GetSnapshotResponse>, Status> {
        let id = request.snapshot_id;
        self.run(tracing::Span::none(), "GetSnapshot", &id.clone(), move |driver| {
            required(&id, "snapshot_id")?;
            let snapshot = driver.pool.snapshot(&id)?;
            Ok(csi::GetSnapshotResponse { snapshot: Some(describe(&snapshot)) })
        })
        .await
    }
}

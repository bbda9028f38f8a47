//! What a snapshot says of its content, and a content of its driver. Pure.

use serde_json::{Value, json};
use trine_contracts::csi;
use trine_objects::quantity::Quantity;
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trine_typed::k8s_openapi::jiff::Timestamp;

use super::kinds::{SnapshotStatus, VolumeSnapshotContent};

/// A snapshot's status, by its content.
#[must_use]
pub fn of(content: &VolumeSnapshotContent) -> SnapshotStatus {
    let status = content.status.clone().unwrap_or_default();
    let size =
        status.restore_size.map(|bytes| ApiQuantity(Quantity::from_bytes(bytes.unsigned_abs()).to_string()));
    let time = status.creation_time.and_then(|nanos| Timestamp::from_nanosecond(nanos.into()).ok());
    // Objects have whole seconds.
    let time = time.and_then(|t| Timestamp::from_second(t.as_second()).ok()).map(Time);
    SnapshotStatus {
        bound_volume_snapshot_content_name: content.metadata.name.clone(),
        creation_time: time,
        ready_to_use: Some(status.ready_to_use.unwrap_or_default()),
        restore_size: size,
        // Said by its group.
        volume_group_snapshot_name: None,
        error: status.error,
    }
}

/// Whether a status says what it should. A size may be written in other ways.
#[must_use]
pub fn says(now: &SnapshotStatus, wanted: &SnapshotStatus) -> bool {
    let size = |status: &SnapshotStatus| {
        status.restore_size.as_ref().and_then(|q| q.0.parse::<Quantity>().ok()).map(|q| q.milli())
    };
    let message = |status: &SnapshotStatus| status.error.as_ref().and_then(|e| e.message.clone());
    now.bound_volume_snapshot_content_name == wanted.bound_volume_snapshot_content_name
        && now.creation_time == wanted.creation_time
        && now.ready_to_use == wanted.ready_to_use
        && size(now) == size(wanted)
        && message(now) == message(wanted)
}

/// A content's status, by what the driver says.
#[must_use]
pub fn taken(snapshot: &csi::Snapshot) -> Value {
    let nanos = snapshot.creation_time.as_ref().map(|t| t.seconds * 1_000_000_000 + i64::from(t.nanos));
    let size = (snapshot.size_bytes > 0).then_some(snapshot.size_bytes);
    json!({"snapshotHandle": snapshot.snapshot_id, "creationTime": nanos, "restoreSize": size,
        "readyToUse": snapshot.ready_to_use, "error": null})
}

/// A content's status, when it could not be taken.
#[must_use]
pub fn failed(message: &str, now: Timestamp) -> Value {
    json!({"readyToUse": false, "error": {"time": Time(now), "message": message}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_says_what_the_driver_said() {
        let told = csi::Snapshot {
            size_bytes: 200 << 20,
            snapshot_id: "h".to_owned(),
            ready_to_use: true,
            creation_time: Some(prost_types::Timestamp { seconds: 1_790_000_000, nanos: 5 }),
            ..Default::default()
        };
        let content: VolumeSnapshotContent =
            serde_json::from_value(json!({"metadata": {"name": "c"}, "status": taken(&told)})).unwrap();
        let status = of(&content);
        let shown = serde_json::to_value(&status).unwrap();
        assert_eq!(
            shown,
            json!({"boundVolumeSnapshotContentName": "c", "creationTime": "2026-09-21T14:13:20Z",
                "readyToUse": true, "restoreSize": "200Mi"})
        );
        let mut other = status.clone();
        other.restore_size = Some(ApiQuantity("209715200".to_owned()));
        assert!(says(&other, &status));
        other.ready_to_use = Some(false);
        assert!(!says(&other, &status));
    }
}

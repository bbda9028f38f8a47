//! Snapshots of several volumes at one moment.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tonic::Code;
use trine_contracts::csi;
use trine_contracts::csi::volume_content_source::{SnapshotSource, Type};

use crate::rig::{MIB, Rig, can_open, can_run, mounted, raw};

fn of_snapshot(id: &str) -> Type {
    Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() })
}

/// Makes, attaches and stages a volume at a folder of its name.
async fn staged(rig: &Rig, id: &str, cap: &csi::VolumeCapability) {
    rig.create(id, 32 * MIB, cap).await.unwrap();
    rig.attach(id, cap).await.unwrap();
    rig.stage_at(id, cap, id).await.unwrap();
}

/// Numbers go into the first volume and, once they are synced there, into the second.
fn writer(first: &Path, second: &Path, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let files = [first, second].map(|dir| std::fs::File::create(dir.join("number")).unwrap());
    let stop = stop.clone();
    std::thread::spawn(move || {
        for n in 1_u64.. {
            for file in &files {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                file.write_all_at(&n.to_le_bytes(), 0).unwrap();
                file.sync_data().unwrap();
            }
        }
    })
}

fn number(dir: &Path) -> u64 {
    let bytes = std::fs::read(dir.join("number")).unwrap();
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// The first volume's number may be one ahead, and the second's never: what was written after what is in one snapshot is in none.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_of_one_moment_though_somebody_writes_to_all_of_it() {
    const TEST: &str = "a_group_is_of_one_moment_though_somebody_writes_to_all_of_it";
    if !can_run(TEST, "ext4") {
        return;
    }
    let rig = Rig::start().await;
    let cap = mounted("ext4");
    for id in ["v", "w"] {
        staged(&rig, id, &cap).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    // The order of writing is that of freezing in one round, and against it in the other.
    for (round, (first, second)) in [("v", "w"), ("w", "v")].into_iter().cycle().take(8).enumerate() {
        stop.store(false, Ordering::SeqCst);
        let writes = writer(&rig.root.join(first), &rig.root.join(second), &stop);
        while number(&rig.root.join(second)) < 3 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let group = rig.take_group(&format!("g{round}"), &["w", "v"]).await.unwrap();
        stop.store(true, Ordering::SeqCst);
        writes.join().unwrap();
        assert!(group.ready_to_use && group.snapshots.len() == 2);
        let mut numbers = Vec::new();
        for source in [first, second] {
            let member = group.snapshots.iter().find(|s| s.source_volume_id == source).unwrap();
            assert!(member.ready_to_use && member.group_snapshot_id == group.group_snapshot_id);
            let copy = format!("copy{round}{source}");
            rig.copy(&copy, of_snapshot(&member.snapshot_id), 32 * MIB, &cap).await.unwrap();
            rig.attach(&copy, &cap).await.unwrap();
            rig.stage_at(&copy, &cap, &copy).await.unwrap();
            numbers.push(number(&rig.root.join(&copy)));
        }
        assert!(numbers[0] >= 3 && numbers[0] - numbers[1] <= 1, "round {round}: {numbers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_taken_once_and_goes_as_a_whole() {
    if !can_open("a_group_is_taken_once_and_goes_as_a_whole") {
        return;
    }
    let mut rig = Rig::start().await;
    let cap = mounted("");
    for id in ["v", "w", "x"] {
        rig.create(id, 16 * MIB, &cap).await.unwrap();
    }
    let group = rig.take_group("g", &["v", "w"]).await.unwrap();
    assert_eq!(rig.take_group("g", &["w", "v", "v"]).await.unwrap(), group);
    let code = |result: Result<csi::VolumeGroupSnapshot, tonic::Status>| result.unwrap_err().code();
    assert_eq!(code(rig.take_group("g", &["v", "x"]).await), Code::AlreadyExists);
    assert_eq!(code(rig.take_group("h", &["v", "none"]).await), Code::NotFound);
    assert_eq!(code(rig.take_group("h", &[]).await), Code::InvalidArgument);
    assert_eq!(code(rig.take_group("", &["v"]).await), Code::InvalidArgument);
    let ids: Vec<String> = group.snapshots.iter().map(|s| s.snapshot_id.clone()).collect();
    let look = |id: &str, members: &[String]| {
        let request = csi::GetVolumeGroupSnapshotRequest {
            group_snapshot_id: id.to_owned(),
            snapshot_ids: members.to_vec(),
            ..Default::default()
        };
        let mut client = rig.groups();
        async move {
            client.get_volume_group_snapshot(request).await.map(|r| r.into_inner().group_snapshot.unwrap())
        }
    };
    assert_eq!(look("g", &ids).await.unwrap(), group);
    assert_eq!(look("none", &[]).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(look("g", &ids[..1]).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(rig.drop_snapshot(&ids[0]).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(rig.drop_group("g", &ids[..1]).await.unwrap_err().code(), Code::InvalidArgument);
    // It outlives its volumes, and the driver.
    rig.delete("v").await.unwrap();
    rig.halt().await;
    rig.run().await;
    assert_eq!(rig.snapshots(csi::ListSnapshotsRequest::default()).await.unwrap().len(), 2);
    for _ in 0..2 {
        rig.drop_group("g", &ids).await.unwrap();
    }
    assert_eq!(rig.snapshots(csi::ListSnapshotsRequest::default()).await.unwrap(), Vec::<String>::new());
    for id in ["w", "x"] {
        rig.delete(id).await.unwrap();
    }
    assert_eq!(rig.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_group_is_none_after_the_start() {
    if !can_open("half_a_group_is_none_after_the_start") {
        return;
    }
    let mut rig = Rig::start().await;
    for id in ["v", "w"] {
        rig.create(id, 16 * MIB, &mounted("")).await.unwrap();
    }
    rig.take_group("whole", &["v", "w"]).await.unwrap();
    rig.take_group("half", &["v", "w"]).await.unwrap();
    rig.halt().await;
    // One member is ready, the other is not.
    let path = rig.images().join("groups/half.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"ready\"", "\"creating\"")).unwrap();
    rig.run().await;
    assert_eq!(rig.snapshots(csi::ListSnapshotsRequest::default()).await.unwrap().len(), 2);
    assert!(!path.exists());
    rig.take_group("half", &["w"]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_device_in_use_is_taken_alone_only() {
    if !can_run("a_raw_device_in_use_is_taken_alone_only", "") {
        return;
    }
    let rig = Rig::start().await;
    rig.create("v", 16 * MIB, &mounted("")).await.unwrap();
    rig.create("r", 16 * MIB, &raw()).await.unwrap();
    rig.take_group("before", &["v", "r"]).await.unwrap();
    rig.attach("r", &raw()).await.unwrap();
    rig.stage("r", &raw()).await.unwrap();
    rig.take_group("alone", &["r"]).await.unwrap();
    let refused = rig.take_group("both", &["v", "r"]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("r is in use as a raw device"), "{refused}");
    assert_eq!(rig.snapshots(csi::ListSnapshotsRequest::default()).await.unwrap().len(), 3);
}

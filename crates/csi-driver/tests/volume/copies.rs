//! Snapshots, and volumes made of snapshots and of volumes: what is in them, whoever writes meanwhile.

use std::os::unix::fs::FileExt;

use tonic::Code;
use trine_contracts::csi;
use trine_contracts::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use trine_kernel::filesystem;

use crate::rig::{MIB, Rig, can_open, can_run, mounted, raw};

fn of_snapshot(id: &str) -> Type {
    Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() })
}

fn of_volume(id: &str) -> Type {
    Type::Volume(VolumeSource { volume_id: id.to_owned() })
}

fn read(rig: &Rig, at: &str) -> String {
    std::fs::read_to_string(rig.root.join(at).join("note")).unwrap()
}

async fn copies_of_a_mounted_volume(kind: &str, bytes: u64) {
    let rig = Rig::start().await;
    let cap = mounted(kind);
    rig.create("v", bytes, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    std::fs::write(rig.root.join("staging/note"), "first").unwrap();
    for _ in 0..2 {
        let taken = rig.snapshot("s", "v").await.unwrap();
        assert!(taken.ready_to_use && taken.source_volume_id == "v");
        assert_eq!(taken.size_bytes.unsigned_abs(), bytes);
    }
    std::fs::write(rig.root.join("staging/note"), "second").unwrap();
    // As large, and larger; both beside their source, whose file system has the same identity.
    for (name, source, size, expected) in [
        ("restored", of_snapshot("s"), bytes, "first"),
        ("larger", of_snapshot("s"), bytes * 2, "first"),
        ("cloned", of_volume("v"), bytes, "second"),
    ] {
        for _ in 0..2 {
            let copy = rig.copy(name, source.clone(), size, &mounted("")).await.unwrap();
            assert_eq!(copy.capacity_bytes.unsigned_abs(), size, "{name}");
            assert_eq!(copy.content_source.unwrap().r#type, Some(source.clone()), "{name}");
        }
        rig.attach(name, &mounted("")).await.unwrap();
        rig.stage_at(name, &mounted(""), name).await.unwrap();
        assert_eq!(read(&rig, name), expected, "{name}");
        let total = filesystem::usage(&rig.root.join(name)).unwrap().total_bytes;
        assert!(total > size * 3 / 4, "{name}: the file system has {total} bytes of {size}");
        std::fs::write(rig.root.join(name).join("note"), name).unwrap();
    }
    assert_eq!(read(&rig, "staging"), "second");
    // None of them needs the others.
    rig.drop_snapshot("s").await.unwrap();
    rig.drop_snapshot("s").await.unwrap();
    assert_eq!(read(&rig, "larger"), "larger");
    assert_eq!(rig.snapshots(csi::ListSnapshotsRequest::default()).await.unwrap(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_xfs_in_use_is_copied_as_it_was_at_that_moment() {
    if can_run("an_xfs_in_use_is_copied_as_it_was_at_that_moment", "xfs") {
        copies_of_a_mounted_volume("xfs", 320 * MIB).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ext4_in_use_is_copied_as_it_was_at_that_moment() {
    if can_run("an_ext4_in_use_is_copied_as_it_was_at_that_moment", "ext4") {
        copies_of_a_mounted_volume("ext4", 32 * MIB).await;
    }
}

/// A writer syncs numbered records while snapshots are taken: each snapshot has all of those that were synced before it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_synced_before_a_snapshot_is_in_it_though_somebody_writes() {
    const TEST: &str = "what_was_synced_before_a_snapshot_is_in_it_though_somebody_writes";
    if !can_run(TEST, "ext4") {
        return;
    }
    let rig = Rig::start().await;
    let cap = mounted("ext4");
    rig.create("v", 32 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    let (stop, path) =
        (std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)), rig.root.join("staging/log"));
    let synced = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let writer = std::thread::spawn({
        let (stop, synced, path) = (stop.clone(), synced.clone(), path.clone());
        move || {
            let file = std::fs::File::create(path).unwrap();
            for n in 1_u64.. {
                if stop.load(std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
                file.write_all_at(&n.to_le_bytes(), (n - 1) * 8).unwrap();
                file.sync_data().unwrap();
                synced.store(n, std::sync::atomic::Ordering::SeqCst);
            }
        }
    });
    for round in 0..4 {
        let before = synced.load(std::sync::atomic::Ordering::SeqCst);
        let (snapshot, copy) = (format!("s{round}"), format!("c{round}"));
        rig.snapshot(&snapshot, "v").await.unwrap();
        rig.copy(&copy, of_snapshot(&snapshot), 32 * MIB, &cap).await.unwrap();
        rig.attach(&copy, &cap).await.unwrap();
        rig.stage_at(&copy, &cap, &copy).await.unwrap();
        let log = std::fs::read(rig.root.join(&copy).join("log")).unwrap();
        let records: Vec<u64> =
            log.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        let whole = records.iter().zip(1_u64..).take_while(|(record, n)| *record == n).count() as u64;
        assert!(whole >= before, "{whole} of {before} synced records");
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    writer.join().unwrap();
    assert!(synced.load(std::sync::atomic::Ordering::SeqCst) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_volume_is_copied_and_never_formatted() {
    if !can_run("a_raw_volume_is_copied_and_never_formatted", "") {
        return;
    }
    let rig = Rig::start().await;
    rig.create("v", 8 * MIB, &raw()).await.unwrap();
    rig.attach("v", &raw()).await.unwrap();
    rig.stage("v", &raw()).await.unwrap();
    rig.publish("v", &raw(), "dev", false).await.unwrap();
    let write = |bytes: &[u8]| {
        let file = std::fs::OpenOptions::new().write(true).open(rig.target("dev")).unwrap();
        file.write_all_at(bytes, 4 * MIB).unwrap();
        file.sync_all().unwrap();
    };
    write(b"first");
    rig.snapshot("s", "v").await.unwrap();
    write(b"other");
    rig.copy("c", of_snapshot("s"), 8 * MIB, &raw()).await.unwrap();
    let image = std::fs::read(rig.images().join("c.img")).unwrap();
    assert_eq!(&image[4 << 20..(4 << 20) + 5], b"first");
    let refused = rig.copy("m", of_snapshot("s"), 8 * MIB, &mounted("")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_outlives_its_volume_and_what_was_cut_off_does_not() {
    if !can_open("a_snapshot_outlives_its_volume_and_what_was_cut_off_does_not") {
        return;
    }
    let mut rig = Rig::start().await;
    rig.create("v", 16 * MIB, &mounted("")).await.unwrap();
    rig.snapshot("kept", "v").await.unwrap();
    rig.snapshot("half", "v").await.unwrap();
    rig.delete("v").await.unwrap();
    rig.halt().await;
    let path = rig.images().join("snapshots/half.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"ready\"", "\"creating\"")).unwrap();
    rig.run().await;
    assert_eq!(rig.snapshots(csi::ListSnapshotsRequest::default()).await.unwrap(), ["kept"]);
    assert!(!rig.images().join("snapshots/half.img").exists());
    let volume = rig.copy("v", of_snapshot("kept"), 16 * MIB, &mounted("")).await.unwrap();
    assert_eq!(volume.capacity_bytes.unsigned_abs(), 16 * MIB);
    rig.delete("v").await.unwrap();
    rig.drop_snapshot("kept").await.unwrap();
    assert_eq!(rig.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_that_a_crash_left_frozen_goes_on_at_the_next_start() {
    const TEST: &str = "a_file_system_that_a_crash_left_frozen_goes_on_at_the_next_start";
    if !can_run(TEST, "ext4") {
        return;
    }
    let mut rig = Rig::start().await;
    let cap = mounted("ext4");
    rig.create("v", 16 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    rig.halt().await;
    // As if the process had died in between.
    filesystem::freeze(&rig.root.join("staging")).unwrap().leave();
    rig.run().await;
    std::fs::write(rig.root.join("staging/note"), "goes on").unwrap();
    assert!(!filesystem::thaw(&rig.root.join("staging")).unwrap(), "it was still frozen");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_cannot_be_are_refused_with_the_contracts_codes() {
    if !can_open("copies_that_cannot_be_are_refused_with_the_contracts_codes") {
        return;
    }
    let rig = Rig::start_with(Some(200 * MIB)).await;
    let cap = mounted("");
    rig.create("v", 64 * MIB, &cap).await.unwrap();
    rig.create("w", 64 * MIB, &cap).await.unwrap();
    rig.snapshot("s", "v").await.unwrap();
    let code = |result: Result<csi::Volume, tonic::Status>| result.unwrap_err().code();
    assert_eq!(code(rig.copy("a", of_snapshot("none"), MIB, &cap).await), Code::NotFound);
    assert_eq!(code(rig.copy("a", of_volume("none"), MIB, &cap).await), Code::NotFound);
    assert_eq!(code(rig.copy("a", of_snapshot("s"), 100 * MIB, &cap).await), Code::ResourceExhausted);
    assert_eq!(code(rig.copy("w", of_snapshot("s"), 64 * MIB, &cap).await), Code::AlreadyExists);
    let status = |result: Result<csi::Snapshot, tonic::Status>| result.unwrap_err().code();
    assert_eq!(status(rig.snapshot("s", "w").await), Code::AlreadyExists);
    assert_eq!(status(rig.snapshot("t", "none").await), Code::NotFound);
    assert_eq!(status(rig.snapshot("", "v").await), Code::InvalidArgument);
    assert_eq!(status(rig.snapshot("t", "").await), Code::InvalidArgument);
    let lists = |request| async { rig.snapshots(request).await.unwrap() };
    rig.snapshot("t", "w").await.unwrap();
    let of = |source: &str| csi::ListSnapshotsRequest {
        source_volume_id: source.to_owned(),
        ..Default::default()
    };
    assert_eq!(lists(of("v")).await, ["s"]);
    assert_eq!(lists(of("x")).await, Vec::<String>::new());
    let one = csi::ListSnapshotsRequest { max_entries: 1, ..Default::default() };
    assert_eq!(lists(one).await, ["s"]);
    assert!(rig.images().join("snapshots").exists());
}

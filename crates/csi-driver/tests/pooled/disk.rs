//! What a disk of its own brings: instant copies, room that goes back to the host, figures that are true of both.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use tonic::Code;
use trine_contracts::csi;
use trine_contracts::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};
use trine_csi_driver::{Config, PoolKind, serve, teardown};
use trine_kernel::{loopdev, testing};

use crate::host::Host;
use crate::rig::{MIB, NODE, Rig, can_run, mounted, raw};

fn used_by_disk(rig: &Rig) -> u64 {
    std::fs::metadata(rig.pool().join("own.disk")).unwrap().blocks() * 512
}

async fn capacity(rig: &Rig) -> u64 {
    let answer = rig.controller().get_capacity(csi::GetCapacityRequest::default()).await.unwrap();
    answer.into_inner().available_capacity.unsigned_abs()
}

/// Writes `bytes` of something that is not zero, synced.
fn write(path: &Path, bytes: u64) -> std::io::Result<()> {
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    let block = vec![0x5a_u8; 1 << 20];
    for at in 0..bytes / MIB {
        file.write_all_at(&block, at * MIB)?;
    }
    file.sync_all()
}

/// Waits until the host's file has less than `bytes`, and does `again` before each look. The disk gives back what is free when
/// its log is written: by itself every half a minute, here at once.
fn soon(what: &str, rig: &Rig, bytes: u64, again: impl Fn()) {
    for _ in 0..200 {
        again();
        rustix::fs::syncfs(std::fs::File::open(rig.images()).unwrap()).unwrap();
        if used_by_disk(rig) < bytes {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("not {what}: {} bytes, not {bytes}", used_by_disk(rig));
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_large_volume_take_a_moment_and_no_room() {
    const TEST: &str = "copies_of_a_large_volume_take_a_moment_and_no_room";
    if !can_run(TEST, "xfs") {
        return;
    }
    let rig = Rig::start().await;
    let cap = mounted("xfs");
    rig.create("v", 1 << 30, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    write(&rig.root.join("staging/data"), 500 * MIB).unwrap();
    let before = used_by_disk(&rig);
    let (mut snapshots, mut clones) = (Vec::new(), Vec::new());
    for round in 0..5 {
        let (snapshot, clone) = (format!("s{round}"), format!("c{round}"));
        let since = std::time::Instant::now();
        rig.snapshot(&snapshot, "v").await.unwrap();
        snapshots.push(since.elapsed());
        let since = std::time::Instant::now();
        let source = Type::Volume(VolumeSource { volume_id: "v".to_owned() });
        rig.copy(&clone, source, 1 << 30, &cap).await.unwrap();
        clones.push(since.elapsed());
    }
    eprintln!("{TEST}: snapshots {snapshots:?}, clones {clones:?}");
    let more = used_by_disk(&rig).saturating_sub(before);
    assert!(more < 16 * MIB, "ten copies took {more} bytes");
    if testing::time_counts() {
        let best = |all: &[std::time::Duration]| all.iter().min().copied().unwrap_or_default();
        // A copy of the bytes takes ten times as long.
        assert!(best(&snapshots).as_millis() < 100 && best(&clones).as_millis() < 100);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_is_found_again_after_a_reboot_and_never_made_up_for() {
    const TEST: &str = "the_disk_is_found_again_after_a_reboot_and_never_made_up_for";
    if !can_run(TEST, "ext4") || !can_run(TEST, "xfs") {
        return;
    }
    let mut rig = Rig::start().await;
    let cap = mounted("ext4");
    rig.create("v", 16 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    std::fs::write(rig.root.join("staging/note"), "kept").unwrap();
    rig.halt().await;
    // The driver ends, the disk stays; then the machine does.
    assert_eq!(loopdev::of_file(&rig.pool().join("own.disk")).unwrap().len(), 1);
    rig.run().await;
    rig.halt().await;
    teardown(&rig.pool()).unwrap();
    assert!(loopdev::of_file(&rig.pool().join("own.disk")).unwrap().is_empty());
    // A device without its mount, and one too many.
    loopdev::attach(&rig.pool().join("own.disk")).unwrap();
    loopdev::attach(&rig.pool().join("own.disk")).unwrap();
    rig.run().await;
    assert_eq!(loopdev::of_file(&rig.pool().join("own.disk")).unwrap().len(), 1);
    rig.stage("v", &cap).await.unwrap();
    assert_eq!(std::fs::read_to_string(rig.root.join("staging/note")).unwrap(), "kept");
    rig.unstage("v").await.unwrap();
    rig.halt().await;
    teardown(&rig.pool()).unwrap();
    let (disk, away) = (rig.pool().join("own.disk"), rig.root.join("away"));
    std::fs::rename(&disk, &away).unwrap();
    assert!(start(&rig, PoolKind::Auto).await.unwrap_err().contains("own.disk"));
    assert!(!disk.exists(), "an empty disk stands where the volumes were");
    std::fs::rename(&away, &disk).unwrap();
    assert!(start(&rig, PoolKind::Files).await.unwrap_err().contains("disk of its own"));
    rig.run().await;
    rig.stage("v", &cap).await.unwrap();
    assert_eq!(std::fs::read_to_string(rig.root.join("staging/note")).unwrap(), "kept");
}

/// Opens the pool as `kind` and gives why that failed.
async fn start(rig: &Rig, kind: PoolKind) -> Result<(), String> {
    let config = Config {
        socket: rig.root.join("other.sock"),
        registration_dir: None,
        pool_dir: rig.pool(),
        pool: kind,
        node_id: NODE.to_owned(),
        max_volumes: 1,
        pool_bytes: None,
    };
    let stop = tokio_util::sync::CancellationToken::new();
    stop.cancel();
    let chain = |error: &dyn std::error::Error| {
        let mut text = error.to_string();
        let mut next = error.source();
        while let Some(source) = next {
            text.push_str(&format!(": {source}"));
            next = source.source();
        }
        text
    };
    serve(config, stop).await.map_err(|error| chain(&error))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_whose_making_was_cut_off_is_made_again_and_plain_files_stay_plain() {
    const TEST: &str = "a_disk_whose_making_was_cut_off_is_made_again_and_plain_files_stay_plain";
    if !can_run(TEST, "xfs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("pool")).unwrap();
    std::fs::write(root.join("pool/own.disk"), vec![1; 1 << 20]).unwrap();
    std::fs::write(root.join("pool/own.disk.record"), "{\"state\":\"creating\"}").unwrap();
    loopdev::attach(&root.join("pool/own.disk")).unwrap();
    let mut rig = Rig::start_in(root.clone()).await;
    rig.create("v", 16 * MIB, &mounted("")).await.unwrap();
    rig.halt().await;
    assert!(rig.images().join("v.img").exists());
    drop(rig);
    let plain = root.join("plain/pool");
    std::fs::create_dir_all(&plain).unwrap();
    std::fs::write(plain.join("v.json"), "{}").unwrap();
    std::fs::write(plain.join("v.img"), "data").unwrap();
    let config = |kind| Config {
        socket: root.join("plain.sock"),
        registration_dir: None,
        pool_dir: plain.clone(),
        pool: kind,
        node_id: NODE.to_owned(),
        max_volumes: 1,
        pool_bytes: None,
    };
    let stop = tokio_util::sync::CancellationToken::new();
    stop.cancel();
    serve(config(PoolKind::Auto), stop.clone()).await.unwrap();
    assert!(!plain.join("own.disk").exists());
    assert!(serve(config(PoolKind::Disk), stop).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_in_a_volume_goes_back_to_the_host() {
    const TEST: &str = "what_is_removed_in_a_volume_goes_back_to_the_host";
    if !can_run(TEST, "xfs") || !testing::program(TEST, "fstrim") {
        return;
    }
    let rig = Rig::start().await;
    let cap = mounted("xfs");
    rig.create("v", 320 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    let empty = used_by_disk(&rig);
    let file = rig.root.join("staging/data");
    write(&file, 128 * MIB).unwrap();
    let full = used_by_disk(&rig);
    assert!(full >= empty + 120 * MIB, "{full} bytes of the host, {empty} before");
    std::fs::remove_file(&file).unwrap();
    // XFS passes over what was freed a moment ago: its inode is let go of in the background, and its log's entry is still open.
    soon("trimmed", &rig, empty + 16 * MIB, || {
        let trimmed = std::process::Command::new("fstrim").arg(rig.root.join("staging")).status();
        assert!(trimmed.unwrap().success());
    });
    write(&file, 128 * MIB).unwrap();
    rig.snapshot("s", "v").await.unwrap();
    rig.unstage("v").await.unwrap();
    rig.detach("v").await.unwrap();
    rig.delete("v").await.unwrap();
    assert!(used_by_disk(&rig) >= empty + 100 * MIB, "the snapshot has its bytes");
    rig.drop_snapshot("s").await.unwrap();
    soon("given back", &rig, empty + 16 * MIB, || ());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_grows_with_the_hosts_while_a_volume_is_in_use() {
    const TEST: &str = "the_disk_grows_with_the_hosts_while_a_volume_is_in_use";
    if !can_run(TEST, "xfs") {
        return;
    }
    let host = Host::new(1 << 30);
    let rig = Rig::start_in(host.place.join("rig")).await;
    let cap = mounted("xfs");
    rig.create("v", 320 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    write(&rig.root.join("staging/data"), 64 * MIB).unwrap();
    let small = capacity(&rig).await;
    assert_eq!(rig.create("w", 2 << 30, &cap).await.unwrap_err().code(), Code::OutOfRange);
    host.grow(4 << 30);
    let large = capacity(&rig).await;
    assert!(large > small + (2 << 30), "from {small} to {large}");
    rig.create("w", 2 << 30, &cap).await.unwrap();
    assert_eq!(std::fs::metadata(rig.root.join("staging/data")).unwrap().len(), 64 * MIB);
    write(&rig.root.join("staging/more"), 64 * MIB).unwrap();
}

/// All that is promised is written, also to what snapshots share, and the host takes it.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_promised_can_be_written() {
    const TEST: &str = "whatever_is_promised_can_be_written";
    if !can_run(TEST, "xfs") {
        return;
    }
    let host = Host::new(1 << 30);
    let rig = Rig::start_in(host.place.join("rig")).await;
    let mut made = Vec::new();
    let mut snapshots = 0;
    while let Ok(volume) = rig.create(&format!("v{}", made.len()), 96 * MIB, &raw()).await {
        let id = volume.volume_id;
        rig.attach(&id, &raw()).await.unwrap();
        rig.stage(&id, &raw()).await.unwrap();
        rig.publish(&id, &raw(), &id, false).await.unwrap();
        if made.len() < 2 {
            // Half of it is shared with a snapshot, and half of what is left has its place set aside.
            write(Path::new(&rig.target(&id)), 48 * MIB).unwrap();
            rig.snapshot(&format!("s{snapshots}"), &id).await.unwrap();
            snapshots += 1;
        }
        made.push(id);
    }
    assert!(made.len() > 4 && snapshots == 2, "{made:?}");
    assert!(capacity(&rig).await < 96 * MIB);
    for id in &made {
        write(Path::new(&rig.target(id)), 96 * MIB)
            .unwrap_or_else(|e| panic!("{id}: {e}, host {}", host.free()));
    }
    assert!(host.free() > 0);
    eprintln!("{TEST}: {} volumes, {} bytes of the host free at the end", made.len(), host.free());
}

/// Somebody else fills the host's file system: whoever writes then is told, and nothing that was synced is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_full_costs_no_synced_byte() {
    const TEST: &str = "a_host_that_is_full_costs_no_synced_byte";
    if !can_run(TEST, "xfs") {
        return;
    }
    let host = Host::new(2 << 30);
    let mut rig = Rig::start_in(host.place.join("rig")).await;
    let cap = mounted("xfs");
    rig.create("v", 400 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    write(&rig.root.join("staging/before"), 32 * MIB).unwrap();
    let ballast = rig.root.join("ballast");
    // A little short of full, then the rest by small pieces.
    let _ = write(&ballast, host.free());
    let mut piece = 0;
    while host.free() > 0 && std::fs::write(rig.root.join(format!("ballast{piece}")), vec![1; 4096]).is_ok() {
        piece += 1;
    }
    let refused = write(&rig.root.join("staging/after"), 64 * MIB);
    assert!(refused.is_err(), "64 MiB went onto a full disk");
    assert_eq!(capacity(&rig).await, 0);
    for old in std::iter::once(ballast).chain((0..piece).map(|n| rig.root.join(format!("ballast{n}")))) {
        std::fs::remove_file(old).unwrap();
    }
    // The volume's file system may have given up; a new Pod starts with a new mount.
    rig.unstage("v").await.unwrap();
    rig.halt().await;
    rig.run().await;
    rig.stage("v", &cap).await.unwrap();
    let kept = std::fs::read(rig.root.join("staging/before")).unwrap();
    assert!(kept.len() as u64 == 32 * MIB && kept.iter().all(|b| *b == 0x5a));
    write(&rig.root.join("staging/again"), 64 * MIB).unwrap();
    rig.snapshot("s", "v").await.unwrap();
    let source = Type::Snapshot(SnapshotSource { snapshot_id: "s".to_owned() });
    rig.copy("c", source, 400 * MIB, &cap).await.unwrap();
}

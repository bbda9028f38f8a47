//! What the driver does not do, and how it says so.

use tonic::Code;
use trine_contracts::csi;
use trine_contracts::csi::volume_capability::access_mode::Mode;

use crate::rig::{MIB, Rig, can_open, can_run, device_of, mounted, with_mode};

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_larger_than_the_disk_is_refused_with_plane_call_and_cause() {
    if !can_open("a_volume_larger_than_the_disk_is_refused_with_plane_call_and_cause") {
        return;
    }
    let rig = Rig::start().await;
    let status = rig.create("pvc-1", 1 << 50, &mounted("")).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    let text = status.message();
    assert!(
        text.starts_with("csi CreateVolume pvc-1: 1 PiB asked for, but the whole pool on node node-1 has"),
        "{text}"
    );
    assert_eq!(rig.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_is_never_promised_twice() {
    if !can_open("the_pool_is_never_promised_twice") {
        return;
    }
    let rig = Rig::start_with(Some(100 * MIB)).await;
    let cap = mounted("ext4");
    rig.create("a", 60 * MIB, &cap).await.unwrap();
    let status = rig.create("b", 60 * MIB, &cap).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("40 MiB left"), "{status}");
    let capacity = rig.controller().get_capacity(csi::GetCapacityRequest::default()).await.unwrap();
    assert_eq!(capacity.into_inner().available_capacity.unsigned_abs(), 40 * MIB);
    assert_eq!(rig.expand("a", 101 * MIB).await.unwrap_err().code(), Code::OutOfRange);
    rig.expand("a", 100 * MIB).await.unwrap();
    rig.delete("a").await.unwrap();
    rig.create("b", 60 * MIB, &cap).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_volumes_at_once_share_the_pool_exactly() {
    if !can_open("many_volumes_at_once_share_the_pool_exactly") {
        return;
    }
    let rig = std::sync::Arc::new(Rig::start_with(Some(64 * MIB)).await);
    let tasks: Vec<_> = (0..12)
        .map(|i| {
            let rig = rig.clone();
            tokio::spawn(async move { rig.create(&format!("v{i}"), 16 * MIB, &mounted("")).await.is_ok() })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        made += usize::from(task.await.unwrap());
    }
    assert_eq!(made, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_xfs_that_is_too_small_is_refused_not_enlarged() {
    if !can_open("a_named_xfs_that_is_too_small_is_refused_not_enlarged") {
        return;
    }
    let rig = Rig::start().await;
    let status = rig.create("v", 100 * MIB, &mounted("xfs")).await.unwrap_err();
    assert!(matches!(status.code(), Code::OutOfRange | Code::FailedPrecondition), "{status}");
    let many = with_mode(mounted(""), Mode::MultiNodeMultiWriter);
    assert_eq!(rig.create("v", 100 * MIB, &many).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn staging_needs_attaching_and_publishing_needs_staging() {
    if !can_run("staging_needs_attaching_and_publishing_needs_staging", "ext4") {
        return;
    }
    let rig = Rig::start().await;
    let cap = mounted("ext4");
    assert_eq!(rig.attach("v", &cap).await.unwrap_err().code(), Code::NotFound);
    rig.create("v", 16 * MIB, &cap).await.unwrap();
    assert_eq!(rig.stage("v", &cap).await.unwrap_err().code(), Code::FailedPrecondition);
    rig.attach("v", &cap).await.unwrap();
    assert_eq!(rig.publish("v", &cap, "a", false).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(rig.stats("v", "a").await.unwrap_err().code(), Code::NotFound);
    // Cleaning up what never was is success.
    rig.unpublish("nobody", "a").await.unwrap();
    rig.unstage("nobody").await.unwrap();
    rig.detach("nobody").await.unwrap();
    rig.delete("nobody").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn data_that_the_driver_did_not_put_there_is_not_formatted_over() {
    if !can_run("data_that_the_driver_did_not_put_there_is_not_formatted_over", "ext4") {
        return;
    }
    use std::os::unix::fs::FileExt;
    let rig = Rig::start().await;
    let cap = mounted("ext4");
    rig.create("v", 16 * MIB, &cap).await.unwrap();
    let image = std::fs::OpenOptions::new().write(true).open(rig.images().join("v.img")).unwrap();
    image.write_all_at(b"precious", 5000).unwrap();
    image.sync_all().unwrap();
    rig.attach("v", &cap).await.unwrap();
    let status = rig.stage("v", &cap).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let mut bytes = [0; 8];
    std::fs::File::open(device_of(&rig, "v")).unwrap().read_exact_at(&mut bytes, 5000).unwrap();
    assert_eq!(&bytes, b"precious");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_mount_at_a_target_is_left_alone() {
    if !can_run("a_foreign_mount_at_a_target_is_left_alone", "ext4") {
        return;
    }
    let rig = Rig::start().await;
    let cap = mounted("ext4");
    rig.create("v", 16 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    let target = std::path::PathBuf::from(rig.target("a"));
    let other = rig.root.join("other");
    std::fs::create_dir_all(&target).unwrap();
    std::fs::create_dir_all(&other).unwrap();
    trine_kernel::mountpoint::bind(&other, &target, false).unwrap();
    let publish = rig.publish("v", &cap, "a", false).await.map_err(|s| s.code());
    let unpublish = rig.unpublish("v", "a").await.map_err(|s| s.code());
    trine_kernel::mountpoint::unmount_all(&target, false).unwrap();
    assert_eq!((publish, unpublish), (Err(Code::FailedPrecondition), Err(Code::FailedPrecondition)));
    // A folder with something in it is not removed either.
    std::fs::write(target.join("file"), "").unwrap();
    rig.unpublish("v", "a").await.unwrap_err();
    assert!(target.join("file").exists());
}

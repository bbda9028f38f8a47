//! The whole life of a volume, every call twice.

use std::os::unix::fs::FileExt;
use std::path::Path;

use tonic::Code;
use trine_contracts::csi::volume_capability::access_mode::Mode;
use trine_kernel::filesystem;

use crate::rig::{MIB, Rig, can_run, device_of, fill, mounted, raw, with_mode};

async fn a_filesystem_lives(kind: &str, bytes: u64) {
    let rig = Rig::start().await;
    let cap = mounted(kind);
    for _ in 0..2 {
        let volume = rig.create("v", bytes, &cap).await.unwrap();
        assert_eq!(volume.capacity_bytes.unsigned_abs(), bytes);
        rig.attach("v", &cap).await.unwrap();
    }
    for _ in 0..2 {
        rig.stage("v", &cap).await.unwrap();
    }
    for _ in 0..2 {
        rig.publish("v", &cap, "a", false).await.unwrap();
        rig.publish("v", &cap, "b", true).await.unwrap();
    }
    let (a, b) = (rig.target("a"), rig.target("b"));
    std::fs::write(Path::new(&a).join("hello"), "world").unwrap();
    assert_eq!(std::fs::read_to_string(Path::new(&b).join("hello")).unwrap(), "world");
    assert!(std::fs::write(Path::new(&b).join("no"), "").is_err(), "the second target is read-only");
    let usage = rig.stats("v", "a").await.unwrap();
    assert!(usage[0].total.unsigned_abs() <= bytes && usage[0].available > 0, "{usage:?}");
    let written = fill(&Path::new(&a).join("all"));
    assert!(written < bytes, "{written} bytes went into a volume of {bytes}");
    // In use, nothing is taken away under the user.
    assert_eq!(rig.unstage("v").await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(rig.detach("v").await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(rig.delete("v").await.unwrap_err().code(), Code::FailedPrecondition);
    for _ in 0..2 {
        rig.unpublish("v", "a").await.unwrap();
        rig.unpublish("v", "b").await.unwrap();
    }
    assert!(!Path::new(&a).exists() && !Path::new(&b).exists());
    for _ in 0..2 {
        rig.unstage("v").await.unwrap();
    }
    // The data is there the next time.
    rig.stage("v", &mounted("")).await.unwrap();
    rig.publish("v", &mounted(""), "c", false).await.unwrap();
    assert_eq!(std::fs::read_to_string(Path::new(&rig.target("c")).join("hello")).unwrap(), "world");
    rig.unpublish("v", "c").await.unwrap();
    rig.unstage("v").await.unwrap();
    for _ in 0..2 {
        rig.detach("v").await.unwrap();
    }
    for _ in 0..2 {
        rig.delete("v").await.unwrap();
    }
    assert_eq!(rig.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_xfs_volume_lives_and_leaves_nothing() {
    if can_run("an_xfs_volume_lives_and_leaves_nothing", "xfs") {
        a_filesystem_lives("xfs", 320 * MIB).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ext4_volume_lives_and_leaves_nothing() {
    if can_run("an_ext4_volume_lives_and_leaves_nothing", "ext4") {
        a_filesystem_lives("ext4", 32 * MIB).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_claim_without_a_file_system_gets_ext4_in_its_own_size() {
    if !can_run("a_small_claim_without_a_file_system_gets_ext4_in_its_own_size", "ext4") {
        return;
    }
    let rig = Rig::start().await;
    let cap = mounted("");
    let volume = rig.create("v", 16 * MIB, &cap).await.unwrap();
    assert_eq!(volume.capacity_bytes.unsigned_abs(), 16 * MIB);
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    let found = filesystem::inspect(&device_of(&rig, "v")).unwrap();
    let kind = filesystem::Kind::Ext4;
    assert_eq!(found, filesystem::Content::Ours { kind, bytes: 16 * MIB });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_raw_volume_is_the_device_itself_and_grows_with_its_file() {
    if !can_run("a_raw_volume_is_the_device_itself_and_grows_with_its_file", "") {
        return;
    }
    let rig = Rig::start().await;
    let cap = raw();
    rig.create("v", 8 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    for _ in 0..2 {
        rig.stage("v", &cap).await.unwrap();
        rig.publish("v", &cap, "dev", false).await.unwrap();
    }
    let node = rig.target("dev");
    let open = || std::fs::OpenOptions::new().read(true).write(true).open(&node).unwrap();
    open().write_all_at(b"deep", 8 * MIB - 4).unwrap();
    assert!(open().write_all_at(b"beyond", 8 * MIB).is_err());
    let grown = rig.expand("v", 16 * MIB).await.unwrap();
    assert_eq!((grown.capacity_bytes.unsigned_abs(), grown.node_expansion_required), (16 * MIB, false));
    open().write_all_at(b"beyond", 8 * MIB).unwrap();
    assert_eq!(rig.stats("v", "dev").await.unwrap()[0].total.unsigned_abs(), 16 * MIB);
    assert_eq!(rig.unstage("v").await.unwrap_err().code(), Code::FailedPrecondition);
    for _ in 0..2 {
        rig.unpublish("v", "dev").await.unwrap();
        rig.unstage("v").await.unwrap();
    }
    // What was a raw device is never formatted, even if its first MiB is still blank.
    rig.detach("v").await.unwrap();
    rig.attach("v", &mounted("")).await.unwrap();
    assert_eq!(rig.stage("v", &mounted("")).await.unwrap_err().code(), Code::FailedPrecondition);
    rig.unstage("v").await.unwrap();
    rig.detach("v").await.unwrap();
    rig.delete("v").await.unwrap();
    assert_eq!(rig.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_xfs_grows_under_its_user() {
    if !can_run("a_mounted_xfs_grows_under_its_user", "xfs") {
        return;
    }
    let rig = Rig::start().await;
    let cap = mounted("xfs");
    rig.create("v", 320 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    rig.publish("v", &cap, "a", false).await.unwrap();
    let before = rig.stats("v", "a").await.unwrap()[0].total;
    for _ in 0..2 {
        let grown = rig.expand("v", 640 * MIB).await.unwrap();
        assert!(grown.node_expansion_required);
        assert_eq!(rig.expand_on_node("v", "a").await.unwrap().unsigned_abs(), 640 * MIB);
    }
    let after = rig.stats("v", "a").await.unwrap()[0].total;
    assert!(after - before > 300 << 20, "{before} -> {after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ext4_grows_mounted_where_it_may_and_else_at_the_next_staging() {
    if !can_run("an_ext4_grows_mounted_where_it_may_and_else_at_the_next_staging", "ext4") {
        return;
    }
    let rig = Rig::start().await;
    let cap = mounted("ext4");
    rig.create("v", 32 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    rig.publish("v", &cap, "a", false).await.unwrap();
    rig.expand("v", 64 * MIB).await.unwrap();
    match rig.expand_on_node("v", "a").await {
        Ok(bytes) => assert_eq!(bytes.unsigned_abs(), 64 * MIB),
        Err(status) => {
            assert_eq!(status.code(), Code::FailedPrecondition);
            assert!(status.message().contains("CAP_SYS_RESOURCE"), "{status}");
            rig.unpublish("v", "a").await.unwrap();
            rig.unstage("v").await.unwrap();
            rig.stage("v", &cap).await.unwrap();
            rig.publish("v", &cap, "a", false).await.unwrap();
        }
    }
    let total = rig.stats("v", "a").await.unwrap()[0].total;
    assert!(total > 50 << 20, "{total}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_volume_has_one_target() {
    if !can_run("an_exclusive_volume_has_one_target", "ext4") {
        return;
    }
    let rig = Rig::start().await;
    let cap = with_mode(mounted("ext4"), Mode::SingleNodeSingleWriter);
    rig.create("v", 16 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    rig.publish("v", &cap, "a", false).await.unwrap();
    assert_eq!(rig.publish("v", &cap, "b", false).await.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(rig.publish("v", &cap, "a", true).await.unwrap_err().code(), Code::AlreadyExists);
    rig.unpublish("v", "a").await.unwrap();
    rig.publish("v", &cap, "b", false).await.unwrap();
}

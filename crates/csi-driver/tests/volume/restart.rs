//! Ends at bad moments, and what the next start makes of them.

use std::path::Path;

use trine_contracts::registration::registration_client::RegistrationClient;
use trine_contracts::registration::{InfoRequest, RegistrationStatus};
use trine_contracts::{csi, socket};
use trine_csi_driver::{Content, PoolKind, State, Volume, teardown};
use trine_kernel::filesystem::Kind;
use trine_kernel::loopdev;

use crate::rig::{MIB, Rig, can_open, can_run, mounted, raw};

fn record(rig: &Rig, id: &str) -> Volume {
    serde_json::from_slice(&std::fs::read(rig.images().join(format!("{id}.json"))).unwrap()).unwrap()
}

fn rewrite(rig: &Rig, volume: &Volume) {
    let path = rig.images().join(format!("{}.json", volume.id));
    std::fs::write(path, serde_json::to_vec(volume).unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_published_volume_outlives_the_driver() {
    if !can_run("a_published_volume_outlives_the_driver", "ext4") {
        return;
    }
    let mut rig = Rig::start().await;
    let cap = mounted("ext4");
    rig.create("v", 16 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.stage("v", &cap).await.unwrap();
    rig.publish("v", &cap, "a", false).await.unwrap();
    rig.halt().await;
    let file = Path::new(&rig.target("a")).join("x");
    std::fs::write(&file, "written while the driver was away").unwrap();
    rig.run().await;
    rig.stage("v", &cap).await.unwrap();
    rig.publish("v", &cap, "a", false).await.unwrap();
    assert!(file.exists());
    assert_eq!(loopdev::of_file(&rig.images().join("v.img")).unwrap().len(), 1);
    rig.unpublish("v", "a").await.unwrap();
    rig.unstage("v").await.unwrap();
    rig.detach("v").await.unwrap();
    rig.delete("v").await.unwrap();
    assert_eq!(rig.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn half_made_and_half_removed_volumes_are_gone_after_the_start() {
    if !can_open("half_made_and_half_removed_volumes_are_gone_after_the_start") {
        return;
    }
    let mut rig = Rig::start().await;
    for id in ["creating", "deleting", "growing"] {
        rig.create(id, 16 * MIB, &mounted("")).await.unwrap();
    }
    rig.halt().await;
    rewrite(&rig, &Volume { state: State::Creating, ..record(&rig, "creating") });
    rewrite(&rig, &Volume { state: State::Deleting, ..record(&rig, "deleting") });
    rewrite(&rig, &Volume { bytes: 32 * MIB, ..record(&rig, "growing") });
    std::fs::remove_file(rig.images().join("deleting.img")).unwrap();
    rig.run().await;
    let mut left = rig.left();
    left.sort();
    assert_eq!(left, ["growing.img", "growing.json"]);
    assert_eq!(std::fs::metadata(rig.images().join("growing.img")).unwrap().len(), 32 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_mkfs_is_done_again() {
    if !can_run("an_interrupted_mkfs_is_done_again", "ext4") {
        return;
    }
    use std::os::unix::fs::FileExt;
    let mut rig = Rig::start().await;
    let cap = mounted("ext4");
    rig.create("v", 16 * MIB, &cap).await.unwrap();
    rig.attach("v", &cap).await.unwrap();
    rig.halt().await;
    rewrite(&rig, &Volume { content: Content::Formatting(Kind::Ext4), ..record(&rig, "v") });
    let image = std::fs::OpenOptions::new().write(true).open(rig.images().join("v.img")).unwrap();
    image.write_all_at(&[9; 4096], 4096).unwrap();
    rig.run().await;
    rig.stage("v", &cap).await.unwrap();
    assert_eq!(record(&rig, "v").content, Content::Formatted(Kind::Ext4));
}

#[tokio::test(flavor = "multi_thread")]
async fn leftover_devices_go_at_the_start() {
    if !can_run("leftover_devices_go_at_the_start", "") {
        return;
    }
    let mut rig = Rig::start().await;
    rig.create("v", 16 * MIB, &raw()).await.unwrap();
    rig.halt().await;
    let image = rig.images().join("v.img");
    loopdev::attach(&image).unwrap();
    let orphan = rig.images().join("orphan.img");
    std::fs::write(&orphan, vec![0; 8192]).unwrap();
    loopdev::attach(&orphan).unwrap();
    std::fs::remove_file(&orphan).unwrap();
    rig.run().await;
    let mut left = rig.left();
    left.sort();
    assert_eq!(left, ["v.img", "v.json"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn teardown_lets_go_of_everything_and_keeps_the_data() {
    if !can_run("teardown_lets_go_of_everything_and_keeps_the_data", "ext4") {
        return;
    }
    let mut rig = Rig::start().await;
    let cap = mounted("ext4");
    for (id, cap) in [("v", &cap), ("w", &raw())] {
        rig.create(id, 16 * MIB, cap).await.unwrap();
        rig.attach(id, cap).await.unwrap();
        rig.stage(id, cap).await.unwrap();
        rig.publish(id, cap, id, false).await.unwrap();
    }
    std::fs::write(Path::new(&rig.target("v")).join("x"), "kept").unwrap();
    rig.halt().await;
    // Even if the records of targets are lost.
    std::fs::remove_file(rig.pool().join("targets.ledger")).unwrap();
    teardown(&rig.pool()).unwrap();
    teardown(&rig.pool()).unwrap();
    if crate::pool() == PoolKind::Disk {
        assert_eq!(rig.left(), Vec::<String>::new());
        assert!(loopdev::of_file(&rig.pool().join("own.disk")).unwrap().is_empty());
        rig.run().await;
        rig.halt().await;
    }
    let mut left = rig.left();
    left.sort();
    assert_eq!(left, ["v.img", "v.json", "w.img", "w.json"]);
    rig.run().await;
    rig.stage("v", &cap).await.unwrap();
    rig.publish("v", &cap, "v", false).await.unwrap();
    assert_eq!(std::fs::read_to_string(Path::new(&rig.target("v")).join("x")).unwrap(), "kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_finds_the_driver_and_both_sockets_go_with_it() {
    if !can_open("a_kubelet_finds_the_driver_and_both_sockets_go_with_it") {
        return;
    }
    let mut rig = Rig::start().await;
    let path = rig.root.join("reg/disk.csi.trine.dev@reg.sock");
    let mut client = RegistrationClient::new(socket::connect(&path));
    let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", "disk.csi.trine.dev"));
    assert_eq!(info.supported_versions, ["1.0.0"]);
    client
        .notify_registration_status(RegistrationStatus { plugin_registered: true, error: String::new() })
        .await
        .unwrap();
    let mut node = trine_contracts::csi::node_client::NodeClient::new(socket::connect(info.endpoint));
    let info = node.node_get_info(csi::NodeGetInfoRequest {}).await.unwrap().into_inner();
    let segments = info.accessible_topology.unwrap().segments;
    assert_eq!(segments["topology.disk.csi.trine.dev/node"], info.node_id);
    rig.halt().await;
    assert!(!path.exists() && !rig.root.join("csi.sock").exists());
}

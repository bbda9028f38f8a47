//! The calls, one after the other.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use trine_contracts::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};

use crate::rig::{MIB, Rig, mounted};

/// What each call took, by its name.
pub type Times = BTreeMap<&'static str, Vec<Duration>>;

/// What is in the volume that is copied, bytes, and its size.
const DATA: u64 = 500 * MIB;
const SIZE: u64 = 1 << 30;

struct Watch(Times);

impl Watch {
    async fn time<T>(
        &mut self,
        name: &'static str,
        call: impl Future<Output = Result<T, tonic::Status>>,
    ) -> T {
        let since = Instant::now();
        let done = call.await;
        self.0.entry(name).or_default().push(since.elapsed());
        done.unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

/// A volume's whole life `rounds` times, then copies of one that has data.
pub async fn measure(rounds: usize) -> Times {
    let rig = Rig::start().await;
    let mut watch = Watch(Times::new());
    for round in 0..rounds {
        life(&rig, &mut watch, &format!("v{round}")).await;
    }
    let cap = mounted("xfs");
    rig.create("full", SIZE, &cap).await.unwrap();
    rig.attach("full", &cap).await.unwrap();
    rig.stage("full", &cap).await.unwrap();
    rig.publish("full", &cap, "full", false).await.unwrap();
    fill(&rig.root.join("staging/data"));
    for round in 0..rounds {
        copies(&rig, &mut watch, round).await;
    }
    for round in 0..rounds as u64 {
        let bytes = SIZE + (round + 1) * 16 * MIB;
        watch.time("ControllerExpandVolume", rig.expand("full", bytes)).await;
        watch.time("NodeExpandVolume", rig.expand_on_node("full", "full")).await;
    }
    watch.0
}

async fn life(rig: &Rig, watch: &mut Watch, id: &str) {
    let cap = mounted("xfs");
    watch.time("CreateVolume", rig.create(id, SIZE, &cap)).await;
    watch.time("ControllerPublishVolume", rig.attach(id, &cap)).await;
    watch.time("NodeStageVolume, new", rig.stage(id, &cap)).await;
    watch.time("NodePublishVolume", rig.publish(id, &cap, id, false)).await;
    watch.time("NodeUnpublishVolume", rig.unpublish(id, id)).await;
    watch.time("NodeUnstageVolume", rig.unstage(id)).await;
    watch.time("NodeStageVolume", rig.stage(id, &cap)).await;
    rig.unstage(id).await.unwrap();
    watch.time("ControllerUnpublishVolume", rig.detach(id)).await;
    watch.time("DeleteVolume", rig.delete(id)).await;
}

async fn copies(rig: &Rig, watch: &mut Watch, round: usize) {
    let cap = mounted("xfs");
    let (snapshot, restored, clone) = (format!("s{round}"), format!("r{round}"), format!("c{round}"));
    // Somebody writes, so that there is something to hold still.
    std::fs::write(rig.root.join("staging/note"), round.to_string()).unwrap();
    watch.time("CreateSnapshot, 500 MiB", rig.snapshot(&snapshot, "full")).await;
    let source = Type::Snapshot(SnapshotSource { snapshot_id: snapshot.clone() });
    watch.time("CreateVolume of it", rig.copy(&restored, source, SIZE, &cap)).await;
    let source = Type::Volume(VolumeSource { volume_id: "full".to_owned() });
    watch.time("CreateVolume of the volume", rig.copy(&clone, source, SIZE, &cap)).await;
    watch
        .time("CreateVolumeGroupSnapshot, of three", rig.take_group("g", &["full", &restored, &clone]))
        .await;
    watch.time("DeleteVolumeGroupSnapshot", rig.drop_group("g", &[])).await;
    rig.delete(&restored).await.unwrap();
    rig.delete(&clone).await.unwrap();
    watch.time("DeleteSnapshot", rig.drop_snapshot(&snapshot)).await;
}

/// Something that no zeroes are in.
fn fill(path: &Path) {
    let mut file = std::fs::File::create(path).unwrap();
    let block: Vec<u8> = (0..MIB).map(|n| (n % 251) as u8 + 1).collect();
    for _ in 0..DATA / MIB {
        file.write_all(&block).unwrap();
    }
    file.sync_all().unwrap();
}

//! The deaths themselves. Whoever comes next has adopted or undone what it finds, the same call succeeds, every record that was
//! synced is there, and at the end nothing is.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use trine_csi_driver::teardown;
use trine_kernel::loopdev;
use trine_kernel::testing::deaths;

use crate::apart::Apart;
use crate::calls::{ALL, Call};
use crate::host::Host;
use crate::rig::{MIB, Rig, can_run, mounted};
use crate::writer::{Writer, whole};

/// Everything that the deaths have in common.
struct Stage {
    // Dropped in this order: while somebody uses them, devices cannot be let go of.
    writer: Writer,
    driver: Apart,
    rig: Rig,
    /// The size of the volume that is written to, bytes.
    size: AtomicU64,
    deaths: usize,
    places: BTreeSet<String>,
    /// What there is while only that volume is.
    base: Vec<String>,
}

impl Stage {
    async fn set() -> Self {
        let rig = Rig::bare();
        let driver = Apart::serving(&rig.root).await;
        let (cap, bytes) = (mounted("xfs"), 320 * MIB);
        rig.create("v", bytes, &cap).await.unwrap();
        rig.attach("v", &cap).await.unwrap();
        rig.stage("v", &cap).await.unwrap();
        rig.publish("v", &cap, "a", false).await.unwrap();
        let writer = Writer::at(Path::new(&rig.target("a")));
        let base = there(&rig);
        let size = AtomicU64::new(bytes);
        Self { rig, driver, writer, size, deaths: 0, places: BTreeSet::new(), base }
    }

    async fn all(&self, calls: &[Call]) {
        for call in calls {
            call.make(&self.rig, &self.size).await.unwrap_or_else(|e| panic!("{call:?}: {e}"));
            call.done(&self.size);
        }
    }

    /// Makes the call once, and says where the driver went through.
    async fn places_of(&mut self, call: Call) -> Vec<(String, usize)> {
        self.all(call.before()).await;
        deaths::watch(&self.rig.root).unwrap();
        self.all(&[call]).await;
        let visited = deaths::visited(&self.rig.root).unwrap();
        self.all(call.after()).await;
        self.nothing_more(&format!("{call:?}"));
        self.places.extend(visited.keys().cloned());
        visited.into_iter().collect()
    }

    /// Makes the call in a driver that dies at a place, `again` also at one of its next start, and then in one that lives.
    async fn die_at(&mut self, call: Call, (name, occurrence): (&str, usize), again: Option<&str>) {
        let here = format!("{call:?} at {name:?} {occurrence}, {again:?}");
        self.all(call.before()).await;
        let before = self.writer.synced();
        deaths::arm(&self.rig.root, name, occurrence).unwrap();
        let answer = call.make(&self.rig, &self.size).await;
        assert!(answer.is_err(), "{here} was not reached");
        self.driver.died().await;
        self.deaths += 1;
        if let Some(again) = again {
            deaths::arm(&self.rig.root, again, 1).unwrap();
            self.driver = Apart::start(&self.rig.root);
            self.driver.died().await;
            self.deaths += 1;
        }
        self.driver = Apart::serving(&self.rig.root).await;
        self.writer.goes_on(&here).await;
        self.all(&[call]).await;
        if call == Call::StageRestored {
            let restored = whole(&self.rig.root.join("r-staging/log"));
            assert!(restored > 0 && restored <= self.writer.synced() + 1, "{here}: {restored}");
        }
        self.all(call.after()).await;
        self.writer.check(&here);
        assert!(self.writer.synced() > before, "{here}: nothing was written meanwhile");
        self.nothing_more(&here);
    }

    fn nothing_more(&self, here: &str) {
        assert_eq!(there(&self.rig), self.base, "{here}");
    }

    /// The volume goes as others do; its file system, and the disk that it was on, are whole.
    async fn end(self) {
        let (rig, writer) = (self.rig, self.writer);
        let target = rig.target("a");
        let synced = writer.end();
        assert!(whole(&Path::new(&target).join("log")) >= synced);
        rig.unpublish("v", "a").await.unwrap();
        rig.unstage("v").await.unwrap();
        rig.detach("v").await.unwrap();
        repaired(&rig.images().join("v.img"));
        rig.delete("v").await.unwrap();
        assert_eq!(rig.left(), Vec::<String>::new());
        drop(self.driver);
        teardown(&rig.pool()).unwrap();
        assert!(loopdev::of_file(&rig.pool().join("own.disk")).unwrap().is_empty());
        repaired(&rig.pool().join("own.disk"));
        println!("{} deaths at {} places, {synced} records", self.deaths, self.places.len());
    }
}

/// What is there, in an order.
fn there(rig: &Rig) -> Vec<String> {
    let mut left = rig.left();
    left.retain(|name| !name.starts_with("/dev/loop"));
    left.push(format!("{} devices", rig.left().iter().filter(|n| n.starts_with("/dev/loop")).count()));
    left.sort();
    left
}

/// `xfs_repair` finds nothing to repair.
fn repaired(image: &Path) {
    let mut check = std::process::Command::new("xfs_repair");
    check.args(["-n", "-f"]).arg(image).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    let said = check.output().unwrap();
    assert!(said.status.success(), "{}: {}", image.display(), String::from_utf8_lossy(&said.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_between_two_effects_of_a_volumes_life_loses_and_leaves_nothing() {
    const TEST: &str = "whoever_dies_between_two_effects_of_a_volumes_life_loses_and_leaves_nothing";
    if !can_run(TEST, "xfs") || !can_run(TEST, "ext4") {
        return;
    }
    let mut stage = Stage::set().await;
    for call in ALL {
        for (name, times) in stage.places_of(call).await {
            stage.die_at(call, (&name, 1), None).await;
            if times > 1 {
                stage.die_at(call, (&name, times), None).await;
            }
        }
    }
    // Dead while volumes stand still, or half way through a group, the driver dies again at each place of its next start.
    for (call, name) in [
        (Call::Group, "copy: made"),
        (Call::Delete, "image: removed"),
        (Call::Publish, "NodePublishVolume: bound"),
    ] {
        for again in ["start: devices", "start: thawed", "start: records"] {
            stage.die_at(call, (name, 1), Some(again)).await;
            stage.places.insert(again.to_owned());
        }
    }
    let missed: Vec<String> = places_in_the_code()
        .into_iter()
        .filter(|p| !p.starts_with("disk: ") && !stage.places.contains(p))
        .collect();
    assert!(missed.is_empty(), "no call goes through {missed:?}");
    assert!(stage.places.len() >= 40, "{:?}", stage.places);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_whose_maker_dies_at_any_place_is_made_and_used_by_the_next() {
    const TEST: &str = "a_disk_whose_maker_dies_at_any_place_is_made_and_used_by_the_next";
    if !can_run(TEST, "xfs") {
        return;
    }
    let mut places: Vec<String> =
        places_in_the_code().into_iter().filter(|p| p.starts_with("disk: ")).collect();
    places.retain(|p| p != "disk: stretched");
    assert!(places.len() > 4, "{places:?}");
    for name in places {
        let rig = Rig::bare();
        deaths::arm(&rig.root, &name, 1).unwrap();
        Apart::start(&rig.root).died().await;
        let driver = Apart::serving(&rig.root).await;
        rig.create("v", 16 * MIB, &mounted("")).await.unwrap();
        assert!(rig.images().join("v.img").exists(), "{name}");
        assert_eq!(loopdev::of_file(&rig.pool().join("own.disk")).unwrap().len(), 1, "{name}");
        rig.delete("v").await.unwrap();
        assert_eq!(rig.left(), Vec::<String>::new(), "{name}");
        drop(driver);
        teardown(&rig.pool()).unwrap();
        repaired(&rig.pool().join("own.disk"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_was_growing_has_grown_after_the_next_start() {
    const TEST: &str = "a_disk_that_was_growing_has_grown_after_the_next_start";
    if !can_run(TEST, "xfs") {
        return;
    }
    let host = Host::new(1 << 30);
    let rig = Rig::start_in(host.place.join("rig")).await;
    drop(rig);
    let rig = Rig::bare_in(host.place.join("rig"));
    host.grow(4 << 30);
    deaths::arm(&rig.root, "disk: stretched", 1).unwrap();
    Apart::start(&rig.root).died().await;
    let driver = Apart::serving(&rig.root).await;
    rig.create("v", 2 << 30, &mounted("")).await.unwrap();
    rig.delete("v").await.unwrap();
    drop(driver);
}

/// The names of all places in the driver's code.
fn places_in_the_code() -> BTreeSet<String> {
    fn read(dir: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, names);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for rest in text.split("failpoint(\"").skip(1) {
                names.extend(rest.split('"').next().map(str::to_owned));
            }
        }
    }
    let mut names = BTreeSet::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
    names
}

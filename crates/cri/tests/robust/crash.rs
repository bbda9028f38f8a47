//! The runtime dies by `kill -9` at every place between two effects of every call. The next one has adopted or cleaned what it
//! finds, the same call succeeds, nothing is left at the end, and who stood by was not touched.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use trine_contracts::cri::*;
use trine_kernel::testing::deaths;

use crate::apart::Apart;
use crate::harness::{Node, inside, script};
use crate::registry::Registry;
use crate::scenario::{Call, ON_TWO_NETWORKS, Subject, attempt};
use crate::world::{self, World};

/// What runs beside all of it, and what ended before it: attempts of the same Pod.
struct Bystanders {
    runs: String,
    ended: String,
}

impl Bystanders {
    async fn start(node: &Node) -> Self {
        let pod = node.run_pod(&attempt(node, 1, true)).await;
        let count = "n=0; while true; do n=$((n+1)); echo $n; sleep 0.05; done";
        let runs = node.run(&pod, script("runs", count)).await;
        let ended = node.run(&pod, script("ended", "exit 7")).await;
        node.ended(&ended).await;
        Self { runs, ended }
    }

    /// That its process is the same is seen in the world.
    async fn check(&self, node: &Node) {
        let status = node.status(&self.runs).await;
        assert_eq!(status.state(), ContainerState::ContainerRunning);
        let log = std::fs::read_to_string(&status.log_path).unwrap();
        for (line, number) in log.lines().zip(1..) {
            assert!(line.ends_with(&format!(" stdout F {number}")), "line {number} is {line:?}");
        }
        let ended = node.status(&self.ended).await;
        assert_eq!((ended.state(), ended.exit_code), (ContainerState::ContainerExited, 7));
    }
}

/// Everything that a test of deaths works with.
struct Stage {
    node: Node,
    registry: Registry,
    bystanders: Bystanders,
    base: World,
    daemon: Apart,
    deaths: usize,
    places: BTreeSet<String>,
}

impl Stage {
    async fn set(test: &str, pod_cidr: &str) -> Option<Self> {
        let node = Node::new(test)?;
        node.with_network(pod_cidr);
        let daemon = Apart::serving(&node).await;
        let registry = Registry::start().await;
        let bystanders = Bystanders::start(&node).await;
        let base = world::calm(&node).await;
        Some(Self { node, registry, bystanders, base, daemon, deaths: 0, places: BTreeSet::new() })
    }

    /// Makes the call once and says where the runtime went through.
    async fn places_of(&mut self, call: Call) -> Vec<(String, usize)> {
        let node = &self.node;
        let subject = call.prepare(node, &self.registry).await;
        deaths::watch(node.dir.path()).unwrap();
        let answer = call.make(node, &subject).await.unwrap();
        let visited = deaths::visited(self.node.dir.path()).unwrap();
        call.holds(node, &subject, &answer).await;
        call.clean(node, &subject, &answer).await;
        world::again(node, &self.base).await.unwrap_or_else(|e| panic!("{call:?}: {e}"));
        self.places.extend(visited.keys().cloned());
        visited.into_iter().collect()
    }

    /// Makes the call in a runtime that dies in it; says what the call was about, and what there was before.
    async fn cut(&mut self, call: Call, name: &str, occurrence: usize) -> (Subject, World) {
        let subject = call.prepare(&self.node, &self.registry).await;
        let before = world::calm(&self.node).await;
        deaths::arm(self.node.dir.path(), name, occurrence).unwrap();
        let answer = call.make(&self.node, &subject).await;
        assert!(answer.is_err(), "{call:?} did not reach {name:?} {occurrence}");
        self.daemon.died().await;
        self.deaths += 1;
        (subject, before)
    }

    /// What a runtime that has just been started has to make of it.
    async fn carry_on(&self, here: &str, call: Call, subject: &Subject, before: &World) {
        let node = &self.node;
        let adopted = call.made(node, subject).await;
        if call.makes() && adopted.is_none() {
            world::again(node, before).await.unwrap_or_else(|e| panic!("{here}, before another try: {e}"));
        }
        let answer = call.make(node, subject).await.unwrap_or_else(|e| panic!("{here}, again: {e}"));
        if let Some(adopted) = adopted {
            assert_eq!(answer, adopted, "{here}");
        }
        call.holds(node, subject, &answer).await;
        call.clean(node, subject, &answer).await;
        world::again(node, &self.base).await.unwrap_or_else(|e| panic!("{here}: {e}"));
        self.bystanders.check(node).await;
    }

    async fn die_at(&mut self, call: Call, name: &str, occurrence: usize) {
        let (subject, before) = self.cut(call, name, occurrence).await;
        self.daemon = Apart::serving(&self.node).await;
        self.carry_on(&format!("{call:?} at {name:?} {occurrence}"), call, &subject, &before).await;
    }

    /// The call is cut at `name`, and then the runtime dies again wherever it goes through while it finds that.
    async fn die_again_after(&mut self, call: Call, name: &str) {
        let (subject, before) = self.cut(call, name, 1).await;
        deaths::watch(self.node.dir.path()).unwrap();
        self.daemon = Apart::serving(&self.node).await;
        // What goes on behind the service is over when nothing changes any more.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let visited = deaths::visited(self.node.dir.path()).unwrap();
        self.carry_on(name, call, &subject, &before).await;
        self.places.extend(visited.keys().cloned());
        for again in visited.into_keys() {
            let (subject, before) = self.cut(call, name, 1).await;
            deaths::arm(self.node.dir.path(), &again, 1).unwrap();
            self.daemon = Apart::start(&self.node);
            self.daemon.died().await;
            self.deaths += 1;
            self.daemon = Apart::serving(&self.node).await;
            let here = format!("{call:?} at {name:?}, and again at {again:?}");
            self.carry_on(&here, call, &subject, &before).await;
        }
    }

    /// Every call dies where it goes through: at the first time, and, in the long form, also at the last. A removal goes through
    /// a stop; in the short form it dies beyond that.
    async fn die_everywhere(&mut self, calls: &[Call]) {
        let all = long_form();
        let mut of_a_stop = BTreeSet::new();
        for call in calls {
            for (name, times) in self.places_of(*call).await {
                match call {
                    Call::StopPodSandbox => drop(of_a_stop.insert(name.clone())),
                    Call::RemovePodSandbox if !all && of_a_stop.contains(&name) => continue,
                    _ => {}
                }
                self.die_at(*call, &name, 1).await;
                if all && times > 1 {
                    self.die_at(*call, &name, times).await;
                }
            }
        }
    }

    /// The call dies where it goes through more than once, at the last time: with the network beside the default one.
    async fn die_at_last_times(&mut self, call: Call) {
        for (name, times) in self.places_of(call).await.into_iter().filter(|(_, times)| *times > 1) {
            self.die_at(call, &name, times).await;
        }
    }

    async fn end(mut self, prefixes: &[&str]) {
        let missed: Vec<_> = places_in_the_code()
            .into_iter()
            .filter(|place| prefixes.iter().any(|prefix| place.starts_with(&format!("{prefix}: "))))
            .filter(|place| !self.places.contains(place) && !FIRST_USE.contains(&place.as_str()))
            .collect();
        assert!(missed.is_empty(), "no call goes through {missed:?}");
        println!("{} deaths at {} places", self.deaths, self.places.len());
        self.daemon.kill();
        drop(self.daemon);
        self.node.finish().await;
    }
}

/// True in `cargo xtask churn`.
fn long_form() -> bool {
    std::env::var_os("TRINE_TEST_ALL_DEATHS").is_some()
}

const PODS: [&str; 10] = [
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "keeper",
    "netns",
    "ADD",
    "DEL",
    "CNI cache",
    "routed",
    "address",
];
const CONTAINERS: [&str; 11] = [
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "UpdateContainerResources",
    "ReopenContainerLog",
    "Exec",
    "ExecSync",
    "cgroup",
    "snapshot",
    "record",
];
const IMAGES: [&str; 4] = ["pull", "image", "image session", "image index"];
const RECOVERY: [&str; 1] = ["recovery"];
/// Plugins that the network which a Pod has by default does not call: no call of the CRI goes through their places here.
const OTHER_PLUGINS: [&str; 6] = ["bandwidth", "bridge", "device", "link", "ptp", "tuning"];
/// Places that are passed when a network's folder is used for the first time, before a test's own calls.
const FIRST_USE: [&str; 3] = ["address: counted", "address: other boots forgotten", "address: taken over"];

/// The places that the code of the runtime and what it stands on names.
fn places_in_the_code() -> BTreeSet<String> {
    fn read(path: &Path, places: &mut BTreeSet<String>) {
        if path.is_dir() {
            std::fs::read_dir(path).unwrap().flatten().for_each(|entry| read(&entry.path(), places));
        } else if let Ok(text) = std::fs::read_to_string(path) {
            let named = text.split("failpoint(\"").skip(1).filter_map(|rest| rest.split('"').next());
            places.extend(named.map(str::to_owned));
        }
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut places = BTreeSet::new();
    ["cri", "images", "cni", "kernel"]
        .iter()
        .for_each(|name| read(&crates.join(name).join("src"), &mut places));
    places
}

#[test]
fn every_place_belongs_to_a_test() {
    let places = places_in_the_code();
    assert!(places.len() >= 30, "{places:?}");
    let known: Vec<&str> = [&PODS[..], &CONTAINERS, &IMAGES, &RECOVERY, &OTHER_PLUGINS].concat();
    for place in places {
        let prefix = place.split(": ").next().unwrap();
        assert!(known.contains(&prefix), "no test goes to {place:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_dies_in_a_call_about_pods_leaves_nothing_and_harms_nobody() {
    let test = "crash::a_runtime_that_dies_in_a_call_about_pods_leaves_nothing_and_harms_nobody";
    if !inside(test) {
        return;
    }
    let Some(mut stage) = Stage::set(test, "10.81.0.0/24").await else { return };
    stage.die_everywhere(&[Call::RunPodSandbox, Call::StopPodSandbox, Call::RemovePodSandbox]).await;
    stage.end(&PODS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_dies_at_a_network_beside_the_default_one_leaves_nothing_and_harms_nobody() {
    let test =
        "crash::a_runtime_that_dies_at_a_network_beside_the_default_one_leaves_nothing_and_harms_nobody";
    if !inside(test) {
        return;
    }
    ON_TWO_NETWORKS.store(true, Ordering::Relaxed);
    let Some(mut stage) = Stage::set(test, "10.85.0.0/24").await else { return };
    stage.die_at_last_times(Call::RunPodSandbox).await;
    stage.die_at_last_times(Call::StopPodSandbox).await;
    assert!(stage.places.contains("StopPodSandbox: network") && stage.deaths > 10, "{:?}", stage.places);
    stage.end(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_dies_in_a_call_about_containers_leaves_nothing_and_harms_nobody() {
    let test = "crash::a_runtime_that_dies_in_a_call_about_containers_leaves_nothing_and_harms_nobody";
    if !inside(test) {
        return;
    }
    let Some(mut stage) = Stage::set(test, "10.82.0.0/24").await else { return };
    let calls = [
        Call::CreateContainer,
        Call::StartContainer,
        Call::StopContainer,
        Call::RemoveContainer,
        Call::UpdateContainerResources,
        Call::ReopenContainerLog,
        Call::ExecSync,
    ];
    stage.die_everywhere(&calls).await;
    stage.end(&CONTAINERS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_dies_in_a_call_about_images_leaves_nothing_and_harms_nobody() {
    let test = "crash::a_runtime_that_dies_in_a_call_about_images_leaves_nothing_and_harms_nobody";
    if !inside(test) {
        return;
    }
    let Some(mut stage) = Stage::set(test, "10.83.0.0/24").await else { return };
    stage.die_everywhere(&[Call::PullImage, Call::RemoveImage]).await;
    stage.end(&IMAGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_dies_again_while_it_finds_what_the_last_one_left_still_leaves_nothing() {
    let test = "crash::a_runtime_that_dies_again_while_it_finds_what_the_last_one_left_still_leaves_nothing";
    if !inside(test) {
        return;
    }
    let Some(mut stage) = Stage::set(test, "10.84.0.0/24").await else { return };
    stage.die_again_after(Call::RunPodSandbox, "RunPodSandbox: attached").await;
    stage.die_again_after(Call::CreateContainer, "CreateContainer: set up").await;
    if long_form() {
        stage.die_again_after(Call::StopPodSandbox, "StopPodSandbox: not ready").await;
    }
    stage.end(&RECOVERY).await;
}

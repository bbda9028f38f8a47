//! Bugs that others had with paths that hang, keepers that do not answer, clients that do not read, and records that are broken.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use trine_contracts::cri::*;
use trine_cri::keeper::spawn;

use crate::harness::{Node, inside, script};
use crate::scenario::sandbox;
use crate::world;

/// A file system that never answers, as a dead server's. It is seen in this test's mount namespace only.
struct Dead {
    device: Option<OwnedFd>,
    folder: PathBuf,
}

impl Dead {
    fn mount(folder: PathBuf) -> Self {
        std::fs::create_dir(&folder).unwrap();
        let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount("dead", &folder, "fuse", MountFlags::empty(), options.as_c_str()).unwrap();
        Self { device: Some(device), folder }
    }

    /// Whoever waits for it gets an error.
    fn end(&mut self) {
        self.device = None;
        let _ = rustix::mount::unmount(&self.folder, UnmountFlags::DETACH);
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        self.end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_hangs_holds_up_nobody_else_and_keeps_no_name() {
    let test = "process_bugs::a_path_that_hangs_holds_up_nobody_else_and_keeps_no_name";
    if !Path::new("/dev/fuse").exists() {
        trine_kernel::testing::skip(test, "needs /dev/fuse");
        return;
    }
    if !inside(test) {
        return;
    }
    let Some(mut node) = Node::new(test) else { return };
    node.config.paths_deadline = Duration::from_millis(300);
    node.serve().await;
    let pod = node.run_pod(&node.pod("hangs")).await;
    // The first container makes the Pod's group.
    let first = node.create(&pod, script("first", "exec sleep 1000")).await.unwrap();
    node.client().remove_container(RemoveContainerRequest { container_id: first }).await.unwrap();
    let base = world::calm(&node).await;
    let mut dead = Dead::mount(node.dir.path().join("dead"));
    let host_path = dead.folder.join("below").to_string_lossy().into_owned();
    let mount = Mount { container_path: "/data".into(), host_path, ..Default::default() };
    let config = ContainerConfig { mounts: vec![mount], ..script("main", "exec sleep 1000") };
    let begun = Instant::now();
    let (hanging, ()) = tokio::join!(node.create(&pod, config), async {
        let other = node.run_pod(&node.pod("other")).await;
        let id = node.run(&other, script("main", "exec sleep 1000")).await;
        assert_eq!(node.stdout(&id, "echo hi").await, "hi");
        let all = node.client().list_containers(ListContainersRequest::default()).await.unwrap();
        assert_eq!(all.into_inner().containers.len(), 1, "what hangs is not there yet");
        let request = RemovePodSandboxRequest { pod_sandbox_id: other };
        node.client().remove_pod_sandbox(request).await.unwrap();
    });
    assert_eq!(hanging.unwrap_err().code(), tonic::Code::DeadlineExceeded);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    world::again(&node, &mounted(base.clone())).await.unwrap();
    let id = node.create(&pod, script("main", "exec sleep 1000")).await.unwrap();
    node.client().remove_container(RemoveContainerRequest { container_id: id }).await.unwrap();
    dead.end();
    world::again(&node, &base).await.unwrap();
    node.finish().await;
}

/// With the dead file system.
fn mounted(mut base: world::World) -> world::World {
    base.insert("mount dead".to_owned());
    base
}

fn folder(node: &Node, pod: &str) -> PathBuf {
    node.config.state_dir.join("sandboxes").join(pod)
}

fn signal_keeper(node: &Node, pod: &str, signal: Signal) {
    let process = spawn::recorded(&folder(node, pod)).unwrap();
    let number = signal.as_raw();
    trine_kernel::proc::signal_pidfd(process.open().unwrap(), number).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_that_does_not_answer_for_a_while_is_not_killed_and_is_taken_over_when_it_does() {
    let test = "process_bugs::a_keeper_that_does_not_answer_for_a_while_is_not_killed_and_is_taken_over_when_it_does";
    if !inside(test) {
        return;
    }
    let Some(mut node) = Node::start(test).await else { return };
    let pod = node.run_pod(&node.pod("slow")).await;
    let id = node.run(&pod, script("main", "exec sleep 1000")).await;
    let other = node.run_pod(&node.pod("other")).await;
    let quick = node.run(&other, script("main", "exec sleep 1000")).await;
    let before = world::calm(&node).await;
    node.end_daemon().await;
    signal_keeper(&node, &pod, Signal::STOP);
    let begun = Instant::now();
    node.serve().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(node.stdout(&quick, "echo hi").await, "hi", "the other Pod is there at once");
    assert_eq!(node.status(&id).await.state(), ContainerState::ContainerRunning);
    assert_eq!(sandbox(&node, &pod).await.unwrap().state(), PodSandboxState::SandboxReady);
    signal_keeper(&node, &pod, Signal::CONT);
    let mut client = node.client();
    let request = ExecSyncRequest { container_id: id.clone(), cmd: vec!["true".into()], timeout: 5 };
    for _ in 0..1000 {
        if client.exec_sync(request.clone()).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let second = node.run(&pod, script("second", "exec sleep 1000")).await;
    client.remove_container(RemoveContainerRequest { container_id: second }).await.unwrap();
    world::again(&node, &before).await.unwrap();
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_behind_everybodys_back_has_ended() {
    let test = "process_bugs::a_process_that_is_killed_behind_everybodys_back_has_ended";
    let Some(node) = Node::start(test).await else { return };
    let pod = node.run_pod(&node.pod("behind")).await;
    let marker = node.dir.path().display().to_string();
    let id = node.run(&pod, script("main", &format!(": {marker}-behind; sleep 1000; true"))).await;
    let waiting = node.create(&pod, script("waits", "exec sleep 1000")).await.unwrap();
    let keeper = spawn::recorded(&folder(&node, &pod)).unwrap();
    let mut killed = 0;
    for pid in children(keeper.pid) {
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        killed += 1;
    }
    assert_eq!(killed, 2, "the one that runs and the one that waits for its start");
    assert_eq!(node.ended(&id).await.exit_code, 137);
    let waited = node.ended(&waiting).await;
    assert_eq!((waited.exit_code, waited.reason.as_str()), (128, "StartError"));
    let mut client = node.client();
    for container_id in [id, waiting] {
        let stop = StopContainerRequest { container_id: container_id.clone(), timeout: 30 };
        client.stop_container(stop).await.unwrap();
        client.remove_container(RemoveContainerRequest { container_id }).await.unwrap();
    }
    node.finish().await;
}

fn children(of: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_keeps_no_container_from_stopping() {
    let test = "process_bugs::a_client_that_does_not_read_keeps_no_container_from_stopping";
    let Some(node) = Node::start(test).await else { return };
    let pod = node.run_pod(&node.pod("unread")).await;
    let id = node.run(&pod, script("main", "exec sleep 1000")).await;
    let cmd = ["sh", "-c", "while true; do echo much; done"].map(str::to_owned).to_vec();
    let request = ExecRequest { container_id: id.clone(), cmd, stdout: true, ..Default::default() };
    let url = node.client().exec(request).await.unwrap().into_inner().url;
    let (socket, _) = tokio_tungstenite::connect_async(url.replace("http://", "ws://")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begun = Instant::now();
    let stop = StopContainerRequest { container_id: id.clone(), timeout: 0 };
    node.client().stop_container(stop).await.unwrap();
    node.client().remove_container(RemoveContainerRequest { container_id: id }).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(socket);
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_another_boot_and_broken_ones_keep_nothing_from_being_served() {
    let test = "process_bugs::records_of_another_boot_and_broken_ones_keep_nothing_from_being_served";
    let Some(mut node) = Node::start(test).await else { return };
    let mut pods = Vec::new();
    for name in ["sound", "rebooted", "half", "odd"] {
        let pod = node.run_pod(&node.pod(name)).await;
        let id = node.run(&pod, script("main", "exec sleep 1000")).await;
        pods.push((pod, id));
    }
    let [(sound, runs), (rebooted, was), (half, broken), (odd, _)] = &pods[..] else { panic!() };
    node.end_daemon().await;
    let change = |path: PathBuf, from: &str, to: &str| {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(path, text.replace(from, to)).unwrap();
    };
    let boot = trine_kernel::proc::boot_id().unwrap();
    change(folder(&node, rebooted).join("record.json"), &boot, "another");
    std::fs::write(folder(&node, half).join("containers").join(broken).join("record.json"), "{").unwrap();
    change(folder(&node, odd).join("record.json"), "\"config\":\"", "\"config\":\"no hex ");
    // The same record twice, a folder without any, and a line that was cut.
    let twin = folder(&node, "twin");
    std::fs::create_dir_all(twin.join("containers")).unwrap();
    std::fs::copy(folder(&node, sound).join("record.json"), twin.join("record.json")).unwrap();
    std::fs::create_dir_all(folder(&node, "empty")).unwrap();
    let ledger = node.config.state_dir.join("ledger");
    std::fs::write(&ledger, std::fs::read_to_string(&ledger).unwrap() + "{\"key\":\"x").unwrap();
    node.serve().await;
    let state = |pod: String| {
        let node = &node;
        async move { sandbox(node, &pod).await.unwrap().state() }
    };
    assert_eq!(state(sound.clone()).await, PodSandboxState::SandboxReady);
    assert_eq!(node.stdout(runs, "echo hi").await, "hi");
    assert_eq!(state(rebooted.clone()).await, PodSandboxState::SandboxNotready);
    assert_eq!(node.status(was).await.state(), ContainerState::ContainerExited);
    assert_eq!(state(half.clone()).await, PodSandboxState::SandboxReady);
    let listed = node.client().list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.items.len(), 4, "{listed:?}");
    let containers = node.client().list_containers(ListContainersRequest::default()).await.unwrap();
    assert_eq!(containers.into_inner().containers.len(), 3, "the broken one is gone");
    assert!(!twin.exists() && !folder(&node, "empty").exists());
    node.run(half, script("main", "exec sleep 1000")).await;
    node.finish().await;
}

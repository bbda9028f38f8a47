//! A Pod's life on the real socket: run, create, start, look, stop, remove.

#![allow(clippy::unwrap_used)]

mod harness;

use std::path::Path;
use std::time::Duration;

use harness::{Node, container, script, secured};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use tonic::Code;
use trine_contracts::cri::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_writes_its_log_takes_execs_and_goes_without_a_trace() {
    let Some(node) = Node::start("a_pod_runs_writes_its_log_takes_execs_and_goes_without_a_trace").await
    else {
        return;
    };
    let config = node.pod("life");
    let pod = node.run_pod(&config).await;
    assert_eq!(node.run_pod(&config).await, pod, "a repeated call gets the same sandbox");
    let id = node.run(&pod, script("main", "echo out; echo err >&2; printf tail; exec sleep 1000")).await;
    let status = node.status(&id).await;
    assert_eq!((status.state(), status.image_ref.is_empty()), (ContainerState::ContainerRunning, false));
    assert_eq!(
        node.stdout(&id, "echo $FROM_IMAGE $$; cat /proc/1/cmdline | head -c 5").await.lines().count(),
        2
    );
    let failed = node.exec(&id, "echo no >&2; exit 7").await;
    assert_eq!((failed.exit_code, failed.stderr.as_slice()), (7, &b"no\n"[..]));
    let mut log = node.log(&id).await;
    log.sort();
    assert_eq!(log, ["stderr F err", "stdout F out"]);
    let mut client = node.client();
    client.stop_container(StopContainerRequest { container_id: id.clone(), timeout: 0 }).await.unwrap();
    let status = node.status(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "Error"));
    assert!(status.finished_at >= status.started_at && status.started_at > 0);
    assert!(node.log(&id).await.contains(&"stdout P tail".to_owned()));
    client.remove_container(RemoveContainerRequest { container_id: id.clone() }).await.unwrap();
    client.remove_container(RemoveContainerRequest { container_id: id.clone() }).await.unwrap();
    let gone = client.container_status(ContainerStatusRequest { container_id: id, verbose: false }).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
    for _ in 0..2 {
        client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod.clone() }).await.unwrap();
    }
    let request = PodSandboxStatusRequest { pod_sandbox_id: pod.clone(), verbose: true };
    let status = client.pod_sandbox_status(request).await.unwrap().into_inner().status.unwrap();
    assert_eq!(status.state(), PodSandboxState::SandboxNotready);
    for _ in 0..2 {
        client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: pod.clone() }).await.unwrap();
    }
    let listed = client.list_pod_sandbox(ListPodSandboxRequest::default()).await.unwrap().into_inner();
    assert!(listed.items.is_empty());
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_told_with_code_and_reason() {
    let Some(node) = Node::start("ends_are_told_with_code_and_reason").await else { return };
    let pod = node.run_pod(&node.pod("ends")).await;
    for (name, command, code, reason) in [
        ("fine", "exit 0", 0, "Completed"),
        ("bad", "exit 42", 42, "Error"),
        ("killed", "kill -9 $$; sleep 9", 137, "Error"),
    ] {
        // A shell that is process 1 cannot kill itself; its child can be killed.
        let command = if name == "killed" { "sh -c 'kill -9 $$'; exit $?" } else { command };
        let id = node.run(&pod, script(name, command)).await;
        let status = node.ended(&id).await;
        assert_eq!((status.exit_code, status.reason.as_str()), (code, reason), "{name}");
    }
    let mut greedy = script(
        "greedy",
        "head -c 200000000 /dev/zero | tail -c 1; x=$(head -c 100000000 /dev/zero | cat -v); echo $x",
    );
    greedy.command = ["sh", "-c", "a=x; while true; do a=$a$a; done"].map(str::to_owned).into();
    greedy.linux = Some(LinuxContainerConfig {
        resources: Some(LinuxContainerResources { memory_limit_in_bytes: 16 << 20, ..Default::default() }),
        security_context: None,
    });
    let id = node.run(&pod, greedy).await;
    let status = node.ended(&id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_right_after_the_start_waits_until_the_program_hears_it() {
    let test = "a_stop_right_after_the_start_waits_until_the_program_hears_it";
    let Some(node) = Node::start(test).await else { return };
    let pod = node.run_pod(&node.pod("early")).await;
    let polite = "sleep 0.3; n=0; trap 'n=$((n + 1)); echo told $n' TERM; while [ $n = 0 ]; do sleep 0.02; done; sleep 0.3; exit 7";
    let id = node.run(&pod, script("polite", polite)).await;
    let begun = std::time::Instant::now();
    let stop = |timeout| StopContainerRequest { container_id: id.clone(), timeout };
    // The first caller gives up while the program is deaf; of the others one tells it.
    let given_up = Duration::from_millis(50);
    assert!(tokio::time::timeout(given_up, node.client().stop_container(stop(20))).await.is_err());
    let (mut a, mut b) = (node.client(), node.client());
    let (a, b) = tokio::join!(a.stop_container(stop(20)), b.stop_container(stop(20)));
    a.and(b).unwrap();
    assert_eq!(node.status(&id).await.exit_code, 7, "it ended by itself");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(node.log(&id).await, ["stdout F told 1"], "once");
    let id = node.run(&pod, container("deaf", &["sleep", "1000"])).await;
    let begun = std::time::Instant::now();
    node.client()
        .stop_container(StopContainerRequest { container_id: id.clone(), timeout: 1 })
        .await
        .unwrap();
    assert_eq!(node.status(&id).await.exit_code, 137, "one that never hears is killed");
    assert!((1..3).contains(&begun.elapsed().as_secs()), "after its grace: {:?}", begun.elapsed());
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_come_in_the_order_in_which_they_were_given() {
    let Some(node) = Node::start("variables_come_in_the_order_in_which_they_were_given").await else {
        return;
    };
    let pod = node.run_pod(&node.pod("order")).await;
    let variable = |key: &str| KeyValue { key: key.into(), value: key.to_lowercase().into() };
    let shown = ContainerConfig { envs: ["Z", "M", "A"].map(variable).into(), ..container("main", &["env"]) };
    let id = node.run(&pod, shown).await;
    node.ended(&id).await;
    let log = node.log(&id).await;
    let ours: Vec<_> = log.iter().filter(|l| ["Z=z", "M=m", "A=a"].iter().any(|v| l.ends_with(v))).collect();
    assert_eq!(ours, ["stdout F Z=z", "stdout F M=m", "stdout F A=a"], "{log:?}");
    assert!(log.last().unwrap().starts_with("stdout F HOME="), "{log:?}");
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_named_when_the_container_starts() {
    let Some(node) = Node::start("a_program_that_is_not_there_is_named_when_the_container_starts").await
    else {
        return;
    };
    let pod = node.run_pod(&node.pod("nosuch")).await;
    let id = node.create(&pod, container("bad", &["nosuch"])).await.unwrap();
    let error = node.start_container(&id).await.unwrap_err();
    assert!(error.message().contains("exec: \"nosuch\": executable file not found in $PATH"), "{error:?}");
    let status = node.status(&id).await;
    assert_eq!(
        (status.state(), status.exit_code, status.reason.as_str()),
        (ContainerState::ContainerExited, 128, "StartError")
    );
    assert!(status.message.contains("nosuch"));
    let again = node.start_container(&id).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    let id = node.run(&pod, container("good", &[])).await;
    let cmd = vec!["/nosuch".to_owned()];
    let exec =
        node.client().exec_sync(ExecSyncRequest { container_id: id, cmd, timeout: 5 }).await.unwrap_err();
    assert!(exec.message().contains("stat /nosuch: no such file or directory"), "{exec:?}");
    let missing = ContainerConfig {
        image: Some(ImageSpec { image: "localhost/none:1".into(), ..Default::default() }),
        ..container("none", &[])
    };
    assert_eq!(node.create(&pod, missing).await.unwrap_err().code(), Code::NotFound);
    let source = Mount { container_path: "/x".into(), host_path: "/dev/null/x".into(), ..Default::default() };
    let refused = ContainerConfig { mounts: vec![source], ..container("mount", &[]) };
    assert!(node.create(&pod, refused).await.unwrap_err().message().contains("/dev/null/x"));
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_that_takes_too_long_is_killed_and_one_whose_child_holds_its_output_ends() {
    let test = "an_exec_that_takes_too_long_is_killed_and_one_whose_child_holds_its_output_ends";
    let Some(node) = Node::start(test).await else { return };
    let pod = node.run_pod(&node.pod("exec")).await;
    let id = node.run(&pod, container("main", &[])).await;
    let cmd = ["sh", "-c", "sleep 500"].map(str::to_owned).to_vec();
    let request = ExecSyncRequest { container_id: id.clone(), cmd, timeout: 1 };
    let late = node.client().exec_sync(request).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let left = node.stdout(&id, "cat /proc/[0-9]*/cmdline | grep -c 'slee[p].500' || true").await;
    assert_eq!(left, "0", "the late one is gone");
    let begun = std::time::Instant::now();
    let response = node.exec(&id, "sleep 30 & echo done").await;
    assert_eq!((response.exit_code, response.stdout.as_slice()), (0, &b"done\n"[..]));
    assert!(begun.elapsed() < Duration::from_secs(5));
    let big = node.exec(&id, "head -c 3000000 /dev/zero").await;
    assert_eq!(big.stdout.len(), 3_000_000);
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_sees_what_its_configuration_says() {
    let Some(node) = Node::start("a_container_sees_what_its_configuration_says").await else { return };
    let host = node.dir.path().join("data");
    std::fs::create_dir(&host).unwrap();
    std::fs::write(host.join("f"), "hello").unwrap();
    let pod = node.run_pod(&node.pod("sees")).await;
    let mount = |readonly, to: &str| Mount {
        container_path: to.into(),
        host_path: host.to_string_lossy().into_owned(),
        readonly,
        ..Default::default()
    };
    let value = |value| Some(Int64Value { value });
    let security = LinuxContainerSecurityContext {
        run_as_username: "www".into(),
        supplemental_groups: vec![7],
        readonly_rootfs: true,
        no_new_privs: true,
        masked_paths: vec!["/proc/kcore".into(), "/sys/firmware".into()],
        readonly_paths: vec!["/proc/sys".into()],
        capabilities: Some(Capability { drop_capabilities: vec!["ALL".into()], ..Default::default() }),
        ..Default::default()
    };
    let config = ContainerConfig {
        mounts: vec![mount(true, "/ro"), mount(false, "/rw")],
        working_dir: "/made/here".into(),
        ..secured("plain", "sleep 1000", security)
    };
    let id = node.run(&pod, config).await;
    for (command, expected) in [
        ("id -u; id -g; id -G", "33\n33\n33 7 5000"),
        ("pwd", "/made/here"),
        ("cat /ro/f", "hello"),
        ("touch /ro/x 2>/dev/null || echo denied", "denied"),
        ("touch /x 2>/dev/null || echo denied", "denied"),
        ("grep -E 'CapBnd|CapEff' /proc/1/status | grep -vc 0000000000000000 || true", "0"),
        ("grep NoNewPrivs /proc/1/status | grep -c 1", "1"),
        ("head -c 1 /proc/kcore | wc -c", "0"),
        ("test -w /dev/null && test -c /dev/urandom && echo ok", "ok"),
        ("ls -d /sys/fs/cgroup/*memory* /sys/fs/cgroup/memory.* 2>/dev/null | wc -l | grep -vc '^0$'", "1"),
    ] {
        assert_eq!(node.stdout(&id, command).await, expected, "{command}");
    }
    let rooted =
        LinuxContainerSecurityContext { run_as_user: value(0), privileged: true, ..Default::default() };
    let privileged =
        ContainerConfig { mounts: vec![mount(false, "/rw")], ..secured("root", "sleep 1000", rooted) };
    let id = node.run(&pod, privileged).await;
    assert_eq!(node.stdout(&id, "touch /rw/new && id -u").await, "0");
    assert!(host.join("new").exists());
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pods_containers_share_its_shm_and_its_pids_only_if_it_says_so() {
    let Some(node) = Node::start("a_pods_containers_share_its_shm_and_its_pids_only_if_it_says_so").await
    else {
        return;
    };
    let mut config = node.pod("shared");
    let security = config.linux.as_mut().unwrap().security_context.as_mut().unwrap();
    security.namespace_options.as_mut().unwrap().pid = NamespaceMode::Pod as i32;
    let pod = node.run_pod(&config).await;
    let options = NamespaceOption {
        pid: NamespaceMode::Pod as i32,
        network: NamespaceMode::Node as i32,
        ..Default::default()
    };
    let sharing = LinuxContainerSecurityContext { namespace_options: Some(options), ..Default::default() };
    let one = node.run(&pod, secured("one", "echo hi > /dev/shm/f; exec sleep 1111", sharing.clone())).await;
    let two = node.run(&pod, secured("two", "sleep 2222", sharing)).await;
    assert_eq!(node.stdout(&two, "cat /dev/shm/f").await, "hi");
    let seen = node.stdout(&two, "cat /proc/[0-9]*/cmdline | grep -c 'slee[p].1111'").await;
    assert_eq!(seen, "1", "the other's process is seen");
    let alone = node.run(&pod, script("three", "sleep 3333")).await;
    let seen = node.stdout(&alone, "cat /proc/[0-9]*/cmdline | grep -c 'slee[p].1111' || true").await;
    assert_eq!(seen, "0", "it is not seen from a pid namespace of its own");
    let _ = one;
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_container_mounts_on_a_shared_volume_is_seen_on_the_host_and_nothing_else_is_unmounted_there()
{
    let test =
        "what_a_container_mounts_on_a_shared_volume_is_seen_on_the_host_and_nothing_else_is_unmounted_there";
    let Some(node) = Node::start(test).await else { return };
    let shared = Shared::new();
    let (volume, other) = (shared.0.path().join("volume"), shared.0.path().join("other"));
    let mounted = |place: &Path| {
        let mounted = trine_kernel::mountpoint::mounted().unwrap();
        mounted.iter().any(|mount| mount.target == place)
    };
    let mut pod = node.pod("shared");
    let security = pod.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
    security.unwrap().privileged = true;
    let pod = node.run_pod(&pod).await;
    for (name, propagation, seen) in [
        ("both", MountPropagation::PropagationBidirectional, true),
        ("down", MountPropagation::PropagationHostToContainer, false),
        ("none", MountPropagation::PropagationPrivate, false),
    ] {
        let mount = Mount {
            container_path: "/volume".into(),
            host_path: volume.display().to_string(),
            propagation: propagation.into(),
            ..Default::default()
        };
        let security = LinuxContainerSecurityContext { privileged: true, ..Default::default() };
        let config = ContainerConfig { mounts: vec![mount], ..secured(name, "exec sleep 1000", security) };
        let id = node.run(&pod, config).await;
        let done = node.exec(&id, "mount -o bind /tmp /volume/inside").await;
        assert_eq!(done.exit_code, 0, "{name}: {}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(mounted(&volume.join("inside")), seen, "{name}");
        assert!(mounted(&other), "{name}");
        if seen {
            unmount(volume.join("inside"), UnmountFlags::DETACH).unwrap();
        }
    }
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_container_has_mounted_for_all_the_next_one_can_take_off() {
    let test = "what_one_container_has_mounted_for_all_the_next_one_can_take_off";
    let Some(node) = Node::start(test).await else { return };
    let shared = Shared::new();
    let volume = shared.0.path().join("volume");
    let mounted = || {
        let mounted = trine_kernel::mountpoint::mounted().unwrap();
        mounted.iter().any(|mount| mount.target == volume.join("inside"))
    };
    let mut pod = node.pod("after");
    let security = pod.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
    security.unwrap().privileged = true;
    let pod = node.run_pod(&pod).await;
    let driver = |name: &str| {
        let mount = Mount {
            container_path: "/volume".into(),
            host_path: volume.display().to_string(),
            propagation: MountPropagation::PropagationBidirectional.into(),
            ..Default::default()
        };
        let security = LinuxContainerSecurityContext { privileged: true, ..Default::default() };
        ContainerConfig { mounts: vec![mount], ..secured(name, "exec sleep 1000", security) }
    };
    let first = node.run(&pod, driver("first")).await;
    let done =
        node.exec(&first, "mount -t tmpfs own /volume/inside && echo kept > /volume/inside/note").await;
    assert_eq!(done.exit_code, 0, "{}", String::from_utf8_lossy(&done.stderr));
    node.client().remove_container(RemoveContainerRequest { container_id: first }).await.unwrap();
    assert!(mounted(), "it is there without the one who made it");
    let next = node.run(&pod, driver("next")).await;
    assert_eq!(node.stdout(&next, "cat /volume/inside/note").await, "kept");
    let done = node.exec(&next, "grep /volume /proc/self/mountinfo; umount /volume/inside").await;
    let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!(done.exit_code, 0, "{said:?}");
    assert!(!mounted(), "it is taken off everywhere");
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_mounted_while_a_container_begins_is_missed_by_none_that_hears_of_mounts() {
    let test = "what_is_mounted_while_a_container_begins_is_missed_by_none_that_hears_of_mounts";
    let Some(node) = Node::start(test).await else { return };
    let shared = Shared::new();
    let volume = shared.0.path().join("volume");
    const MOST: usize = 4000;
    let place = |i: usize| volume.join(format!("inside/{i}"));
    (0..MOST).for_each(|i| std::fs::create_dir_all(place(i)).unwrap());
    let what = shared.0.path().join("what");
    std::fs::create_dir_all(&what).unwrap();
    let mut pod = node.pod("beginning");
    let security = pod.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
    security.unwrap().privileged = true;
    let pod = node.run_pod(&pod).await;
    let mut made = 0;
    for propagation in
        [MountPropagation::PropagationBidirectional, MountPropagation::PropagationHostToContainer]
    {
        for round in 0..4 {
            let mount = Mount {
                container_path: "/volume".into(),
                host_path: volume.display().to_string(),
                propagation: propagation.into(),
                ..Default::default()
            };
            let security = LinuxContainerSecurityContext { privileged: true, ..Default::default() };
            let name = format!("{propagation:?}-{round}").to_lowercase();
            let config =
                ContainerConfig { mounts: vec![mount], ..secured(&name, "exec sleep 1000", security) };
            let (from, done) = (made, std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
            let (stop, base, what) = (std::sync::Arc::clone(&done), volume.join("inside"), what.clone());
            let mounting = std::thread::spawn(move || {
                let mut next = from;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) && next < MOST {
                    mount_bind(&what, base.join(next.to_string())).unwrap();
                    next += 1;
                    std::thread::sleep(std::time::Duration::from_micros(100));
                }
                next
            });
            let id = node.run(&pod, config).await;
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            made = mounting.join().unwrap();
            assert!(made < MOST, "{made} mounts were not enough for the container's beginning");
            let seen = node.stdout(&id, "grep -c ' /volume/inside/' /proc/self/mountinfo").await;
            assert_eq!(seen, made.to_string(), "{name}, {from} before it");
            node.client().remove_container(RemoveContainerRequest { container_id: id }).await.unwrap();
        }
    }
    node.finish().await;
}

/// A folder with two shared mounts in it, gone when dropped.
struct Shared(tempfile::TempDir);

impl Shared {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("trine-shared-").tempdir().unwrap();
        for place in ["volume", "other"] {
            let place = folder.path().join(place);
            std::fs::create_dir_all(place.join("inside")).unwrap();
            mount_bind(&place, &place).unwrap();
            mount_change(&place, MountPropagationFlags::SHARED).unwrap();
        }
        Self(folder)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for place in ["volume/inside", "volume", "other"] {
            let _ = unmount(self.0.path().join(place), UnmountFlags::DETACH);
        }
    }
}

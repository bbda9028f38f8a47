//! Pods with users of their own: root inside is nobody on the host.

#![allow(clippy::unwrap_used)]

mod harness;

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use harness::{IMAGE, Node, container, script};
use tonic::Code;
use trine_contracts::cri::*;

/// The host's ids of a Pod.
const FIRST: u32 = 7 * 65536;

fn users() -> UserNamespace {
    let ids = vec![IdMapping { host_id: FIRST, container_id: 0, length: 65536 }];
    UserNamespace { mode: NamespaceMode::Pod as i32, uids: ids.clone(), gids: ids }
}

fn with_users(mut config: PodSandboxConfig, users: UserNamespace) -> PodSandboxConfig {
    let options = NamespaceOption {
        pid: NamespaceMode::Container as i32,
        userns_options: Some(users),
        ..Default::default()
    };
    let security = LinuxSandboxSecurityContext { namespace_options: Some(options), ..Default::default() };
    config.linux = Some(LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() });
    config
}

/// A network that is nothing but the loopback.
fn no_network(node: &Node) {
    std::fs::create_dir_all(&node.config.cni_conf_dir).unwrap();
    let conflist = serde_json::json!({
        "cniVersion": "1.1.0", "name": "none", "plugins": [{"type": "loopback"}],
    });
    std::fs::write(node.config.cni_conf_dir.join("10-none.conflist"), conflist.to_string()).unwrap();
}

fn mapped(path: &std::path::Path) -> Mount {
    let users = users();
    Mount {
        container_path: "/data".into(),
        host_path: path.to_string_lossy().into_owned(),
        uid_mappings: users.uids,
        gid_mappings: users.gids,
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn root_of_a_pod_with_its_own_users_is_nobody_on_the_host() {
    let test = "root_of_a_pod_with_its_own_users_is_nobody_on_the_host";
    let Some(mut node) = Node::start(test).await else { return };
    if !trine_kernel::mountpoint::can_map_owners(&node.config.images_dir) {
        trine_kernel::testing::skip(test, "needs a file system whose owners can be mapped");
        node.finish().await;
        return;
    }
    no_network(&node);
    let data = node.dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(data.join("of-the-host"), "read me").unwrap();
    let pod = node.run_pod(&with_users(node.pod("users"), users())).await;
    let volume = Mount {
        container_path: "/image".into(),
        readonly: true,
        image: Some(ImageSpec { image: IMAGE.into(), ..Default::default() }),
        ..Default::default()
    };
    let config = ContainerConfig { mounts: vec![mapped(&data), volume], ..container("main", &[]) };
    let id = node.run(&pod, config).await;

    // Whole lines of what a shell inside sees.
    let rows = [
        ("cat /proc/self/uid_map", "0 458752 65536"),
        ("cat /proc/1/gid_map", "0 458752 65536"),
        ("id -u; id -g", "0 0"),
        (
            "ls -nd /etc/passwd /image/etc/passwd /data /data/of-the-host /dev /dev/shm /etc/resolv.conf | grep -c ' 0 *0 '",
            "7",
        ),
        ("echo inside >/etc/new && echo written >/data/new && ls -n /data/new | grep -c ' 0 *0 '", "1"),
        ("echo x >/proc/sys/kernel/core_pattern 2>/dev/null || echo refused", "refused"),
        ("hostname", "users"),
        ("echo out >/dev/stdout", "out"),
    ];
    for (command, expected) in rows {
        let said = node.stdout(&id, command).await;
        let said: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(said.join(" "), expected, "{command}");
    }
    let owner = |path: &std::path::Path| {
        let meta = std::fs::metadata(path).unwrap();
        (meta.uid(), meta.gid())
    };
    let root = node.config.images_dir.join("snapshots").join(&id);
    assert_eq!(owner(&root.join("upper/etc/new")), (FIRST, FIRST));
    assert_eq!(owner(&data.join("new")), (0, 0), "a volume keeps the host's owners");
    let group = trine_kernel::cgroup::Hierarchies::discover().unwrap();
    let group =
        group.group(&std::path::PathBuf::from(format!("trine-{}/poduid-users/{id}", node.config.instance)));
    let pid = *group.processes().first().unwrap();
    assert_eq!(owner(std::path::Path::new(&format!("/proc/{pid}"))), (FIRST, FIRST));
    let layers = trine_kernel::mountpoint::mounted().unwrap();
    assert!(!layers.iter().any(|m| m.target.starts_with(root.join("layers"))), "layers stay mounted");

    node.end_daemon().await;
    node.serve().await;
    assert_eq!(node.stdout(&id, "echo still").await, "still", "the next daemon leaves it alone");
    node.client().stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod }).await.unwrap();
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_inside_may_mount_but_takes_nothing_off() {
    let test = "an_administrator_inside_may_mount_but_takes_nothing_off";
    let Some(node) = Node::start(test).await else { return };
    if !trine_kernel::mountpoint::can_map_owners(&node.config.images_dir) {
        trine_kernel::testing::skip(test, "needs a file system whose owners can be mapped");
        node.finish().await;
        return;
    }
    no_network(&node);
    let pod = node.run_pod(&with_users(node.pod("admin"), users())).await;
    let capabilities = Capability { add_capabilities: vec!["SYS_ADMIN".into()], ..Default::default() };
    let security = LinuxContainerSecurityContext {
        capabilities: Some(capabilities),
        masked_paths: vec!["/proc/kcore".into()],
        namespace_options: Some(NamespaceOption {
            pid: NamespaceMode::Container as i32,
            userns_options: Some(users()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let linux = LinuxContainerConfig { security_context: Some(security), ..Default::default() };
    let config = ContainerConfig { linux: Some(linux), ..container("main", &[]) };
    let id = node.run(&pod, config).await;
    assert_eq!(node.stdout(&id, "mount -t tmpfs none /tmp && echo mounted").await, "mounted");
    let taken = node.exec(&id, "busybox umount /proc/kcore").await;
    assert_ne!(taken.exit_code, 0, "what is masked stays so");
    let device = node.exec(&id, "mknod /tmp/sda b 8 0").await;
    assert_ne!(device.exit_code, 0, "devices are the host's to make");
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_that_cannot_be_are_refused_and_leave_nothing() {
    let test = "users_that_cannot_be_are_refused_and_leave_nothing";
    let Some(node) = Node::start(test).await else { return };
    no_network(&node);
    let range = |container_id| IdMapping { host_id: FIRST, container_id, length: 65536 };
    let of = |mode: NamespaceMode, ids: Vec<IdMapping>| UserNamespace {
        mode: mode as i32,
        uids: ids.clone(),
        gids: ids,
    };
    let rows = [
        ("two", of(NamespaceMode::Pod, vec![range(0), range(0)]), "one uid mapping"),
        ("none", of(NamespaceMode::Pod, Vec::new()), "one uid mapping"),
        ("not-root", of(NamespaceMode::Pod, vec![range(1)]), "begin at 0"),
        ("container", of(NamespaceMode::Container, Vec::new()), "CONTAINER"),
        ("target", of(NamespaceMode::Target, Vec::new()), "TARGET"),
    ];
    for (name, users, words) in rows {
        let config = Some(with_users(node.pod(name), users));
        let request = RunPodSandboxRequest { config, runtime_handler: String::new() };
        let refused = node.client().run_pod_sandbox(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{name}: {refused:?}");
        assert!(refused.message().contains(words), "{name}: {refused:?}");
    }
    let pod = node.run_pod(&with_users(node.pod("node"), of(NamespaceMode::Node, Vec::new()))).await;
    let id = node.run(&pod, script("main", "cat /proc/self/uid_map; sleep 100")).await;
    assert_eq!(
        node.stdout(&id, "cat /proc/self/uid_map").await,
        std::fs::read_to_string("/proc/self/uid_map").unwrap().trim_end()
    );
    node.finish().await;
}

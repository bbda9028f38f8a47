//! What a container may use: its limits, and the devices that it was given.

#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Node, script, secured};
use trine_contracts::cri::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_container_sees_its_limits_as_its_own_group_and_their_change() {
    let test = "a_container_sees_its_limits_as_its_own_group_and_their_change";
    if !trine_kernel::testing::cgroup_2(test) {
        return;
    }
    let Some(node) = Node::start(test).await else { return };
    let pod = node.run_pod(&node.pod("limited")).await;
    let resources = LinuxContainerResources {
        cpu_shares: 1024,
        cpu_quota: 50_000,
        cpu_period: 100_000,
        memory_limit_in_bytes: 64 << 20,
        memory_swap_limit_in_bytes: 64 << 20,
        unified: [("memory.oom.group".to_owned(), "1".to_owned())].into(),
        ..Default::default()
    };
    let mut config = script("main", "sleep 1000");
    config.linux = Some(LinuxContainerConfig { resources: Some(resources), security_context: None });
    let id = node.run(&pod, config).await;
    for (file, expected) in [
        ("cpu.weight", "100"),
        ("cpu.max", "50000 100000"),
        ("memory.max", "67108864"),
        ("memory.swap.max", "0"),
        ("memory.oom.group", "1"),
    ] {
        assert_eq!(node.stdout(&id, &format!("cat /sys/fs/cgroup/{file}")).await, expected, "{file}");
    }
    assert_eq!(node.stdout(&id, "cat /proc/self/cgroup").await, "0::/");
    let change =
        LinuxContainerResources { cpu_quota: 20_000, memory_limit_in_bytes: 96 << 20, ..Default::default() };
    let request = UpdateContainerResourcesRequest {
        container_id: id.clone(),
        linux: Some(change),
        ..Default::default()
    };
    node.client().update_container_resources(request).await.unwrap();
    assert_eq!(node.stdout(&id, "cat /sys/fs/cgroup/cpu.max").await, "20000 100000");
    assert_eq!(node.stdout(&id, "cat /sys/fs/cgroup/memory.max").await, "100663296");
    let stats = node.client().container_stats(ContainerStatsRequest { container_id: id }).await.unwrap();
    let memory = stats.into_inner().stats.unwrap().memory.unwrap();
    assert!(memory.working_set_bytes.unwrap().value > 0);
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_what_a_container_uses_and_may_use() {
    let Some(node) = Node::start("metrics_tell_what_a_container_uses_and_may_use").await else {
        return;
    };
    let pod = node.run_pod(&node.pod("metered")).await;
    let resources = LinuxContainerResources {
        cpu_quota: 50_000,
        cpu_period: 100_000,
        memory_limit_in_bytes: 64 << 20,
        ..Default::default()
    };
    let mut config = script("main", "head -c 300000 /dev/zero > /written; exec sleep 1000");
    config.linux = Some(LinuxContainerConfig { resources: Some(resources), security_context: None });
    let id = node.run(&pod, config).await;
    assert_eq!(node.stdout(&id, "until test -s /written; do sleep 0.01; done; sync; echo yes").await, "yes");
    let answer = node.client().list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await.unwrap();
    let all = answer.into_inner().pod_metrics;
    let of_pod = all.iter().find(|metrics| metrics.pod_sandbox_id == pod).unwrap();
    let [container] = &of_pod.container_metrics[..] else { panic!("{all:?}") };
    assert_eq!(container.container_id, id);
    let value = |metrics: &[Metric], name: &str| {
        let metric = metrics.iter().find(|m| m.name == name).unwrap_or_else(|| panic!("no {name}"));
        assert!(metric.label_values.contains(&"metered".to_owned()), "{metric:?}");
        metric.value.unwrap().value
    };
    for (name, expected) in [
        ("container_spec_cpu_quota", 50_000),
        ("container_spec_memory_limit_bytes", 64 << 20),
        ("container_processes", 1),
        ("container_threads", 1),
    ] {
        assert_eq!(value(&container.metrics, name), expected, "{name}");
    }
    assert!(value(&container.metrics, "container_memory_usage_bytes") > 0);
    assert!(value(&container.metrics, "container_fs_usage_bytes") >= 300_000);
    // On the host's network nothing is its own.
    assert!(of_pod.metrics.is_empty(), "{of_pod:?}");
    let described = node.client().list_metric_descriptors(ListMetricDescriptorsRequest {}).await.unwrap();
    assert!(described.into_inner().descriptors.len() > 50);
    node.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_opens_only_the_devices_that_it_was_given() {
    let Some(node) = Node::start("a_container_opens_only_the_devices_that_it_was_given").await else {
        return;
    };
    let pod = node.run_pod(&node.pod("devices")).await;
    // /dev/kmsg, and a disk that is not there: what is forbidden is so before anybody looks for it.
    let script = "mknod /tmp/kmsg c 1 11 && mknod /tmp/disk b 8 0 || exit 9
        for device in /dev/null /dev/urandom /tmp/kmsg /tmp/disk; do
            (exec <$device) 2>/dev/null && echo $device may || echo $device may not
        done; exec sleep 1000";
    let mut config = secured("main", script, LinuxContainerSecurityContext::default());
    config.devices = vec![Device {
        container_path: "/dev/given".into(),
        host_path: "/dev/zero".into(),
        permissions: "r".into(),
    }];
    let id = node.run(&pod, config).await;
    assert_eq!(node.stdout(&id, "head -c 3 /dev/given | wc -c").await, "3");
    let mut said = Vec::new();
    for _ in 0..500 {
        said = node.log(&id).await;
        if said.len() == 4 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let expected = ["/dev/null may", "/dev/urandom may", "/tmp/kmsg may not", "/tmp/disk may not"];
    assert_eq!(said, expected.map(|line| format!("stdout F {line}")));
    let privileged = LinuxContainerSecurityContext { privileged: true, ..Default::default() };
    let id = node.run(&pod, secured("all", "mknod /tmp/kmsg c 1 11; exec sleep 1000", privileged)).await;
    assert_eq!(node.stdout(&id, "(exec </tmp/kmsg) && echo may").await, "may");
    node.finish().await;
}

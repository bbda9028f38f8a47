//! Tables for the specification of containers.

use std::path::Path;

use trine_contracts::cri::{
    self, ContainerConfig, KeyValue, LinuxContainerConfig, LinuxContainerSecurityContext, NamespaceMode,
    NamespaceOption, SecurityProfile, security_profile::ProfileType,
};
use trine_images::ImageConfig;
use trine_kernel::container::oci::{Spec, User};

use super::spec::{Inputs, Refused, device_rules, limits, spec};

fn image() -> ImageConfig {
    ImageConfig {
        env: vec!["A=image".into(), "B=image".into()],
        entrypoint: vec!["/entry".into()],
        cmd: vec!["cmd".into()],
        working_dir: "/work".into(),
        ..ImageConfig::default()
    }
}

fn make(config: &ContainerConfig) -> Result<Spec, Refused> {
    make_with(config, &image())
}

fn make_with(config: &ContainerConfig, image: &ImageConfig) -> Result<Spec, Refused> {
    spec(&Inputs {
        config,
        image,
        rootfs: Path::new("/root/fs"),
        user: &User::default(),
        hostname: "pod-1",
        sandbox: Path::new("/sandbox"),
        host_ipc: false,
        cgroup: Path::new("t/p/c"),
        unified: false,
        seccomp: None,
        devices: &[],
        owners: None,
    })
}

fn with(security: LinuxContainerSecurityContext) -> ContainerConfig {
    ContainerConfig {
        linux: Some(LinuxContainerConfig { resources: None, security_context: Some(security) }),
        ..Default::default()
    }
}

#[test]
fn command_and_arguments_replace_the_images_as_kubernetes_says() {
    let rows: [(&[&str], &[&str], &[&str]); 4] = [
        (&[], &[], &["/entry", "cmd"]),
        (&[], &["x"], &["/entry", "x"]),
        (&["/c"], &[], &["/c"]),
        (&["/c"], &["x", "y"], &["/c", "x", "y"]),
    ];
    for (command, args, expected) in rows {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        let config = ContainerConfig { command: own(command), args: own(args), ..Default::default() };
        assert_eq!(make(&config).unwrap().process.args, expected, "{command:?} {args:?}");
    }
    assert!(
        make_with(&ContainerConfig::default(), &ImageConfig::default()).unwrap_err().0.contains("no command")
    );
}

#[test]
fn the_environment_is_the_images_with_the_pods_over_it() {
    let config = ContainerConfig {
        envs: vec![KeyValue { key: "B".into(), value: b"pod=1".to_vec() }],
        ..Default::default()
    };
    let env = make(&config).unwrap().process.env;
    for line in ["A=image", "B=pod=1", "HOSTNAME=pod-1", "HOME=/root"] {
        assert!(env.contains(&line.to_owned()), "{line} in {env:?}");
    }
    assert_eq!(env.iter().filter(|line| line.starts_with("B=")).count(), 1);
}

#[test]
fn a_plain_container_has_its_own_pid_namespace_and_a_privileged_one_sees_everything() {
    let plain = make(&ContainerConfig::default()).unwrap();
    assert!(plain.linux.namespaces.iter().any(|n| n.kind == "pid"));
    assert!(plain.linux.masked_paths.contains(&"/proc/kcore".to_owned()));
    let privileged = make(&with(LinuxContainerSecurityContext {
        privileged: true,
        namespace_options: Some(NamespaceOption { pid: NamespaceMode::Node as i32, ..Default::default() }),
        ..Default::default()
    }))
    .unwrap();
    assert!(!privileged.linux.namespaces.iter().any(|n| n.kind == "pid"));
    assert!(privileged.linux.masked_paths.is_empty());
    assert_eq!(privileged.process.capabilities.bounding.len(), 41);
    let sys = privileged.mounts.iter().find(|m| m.destination == Path::new("/sys")).unwrap();
    assert!(sys.options.contains(&"rw".to_owned()));
}

#[test]
fn a_pods_mounts_replace_the_defaults_and_come_outermost_first() {
    let m = |container: &str, host: &str| cri::Mount {
        container_path: container.into(),
        host_path: host.into(),
        ..Default::default()
    };
    let config = ContainerConfig {
        mounts: vec![m("/data/inner", "/h/2"), m("/etc/resolv.conf", "/h/3"), m("/data", "/h/1")],
        ..Default::default()
    };
    let mounts = make(&config).unwrap().mounts;
    let at = |path: &str| mounts.iter().position(|m| m.destination == Path::new(path)).unwrap();
    assert!(at("/data") < at("/data/inner"));
    let resolv: Vec<_> = mounts.iter().filter(|m| m.destination == Path::new("/etc/resolv.conf")).collect();
    assert_eq!((resolv.len(), resolv[0].source.as_path()), (1, Path::new("/h/3")));
    let dev = ContainerConfig { mounts: vec![m("/dev", "/dev")], ..Default::default() };
    assert_eq!(make(&dev).unwrap().mounts.iter().filter(|m| m.destination.starts_with("/dev")).count(), 1);
}

#[test]
fn what_is_not_supported_is_refused_by_name_and_defaults_are_not() {
    let profile =
        |kind: ProfileType| Some(SecurityProfile { profile_type: kind as i32, localhost_ref: "x".into() });
    let refused = with(LinuxContainerSecurityContext {
        apparmor: profile(ProfileType::Localhost),
        ..Default::default()
    });
    assert!(make(&refused).unwrap_err().0.contains("AppArmor"));
    let usual = with(LinuxContainerSecurityContext {
        apparmor: profile(ProfileType::RuntimeDefault),
        ..Default::default()
    });
    assert!(make(&usual).is_ok());
}

#[test]
fn zero_in_resources_means_not_said() {
    let none = limits(&cri::LinuxContainerResources::default());
    assert_eq!(none, trine_kernel::cgroup::Limits::default());
    let some = limits(&cri::LinuxContainerResources {
        cpu_shares: 102,
        cpu_quota: 20_000,
        memory_limit_in_bytes: 1 << 20,
        ..Default::default()
    });
    assert_eq!((some.cpu_shares, some.cpu_quota, some.memory), (Some(102), Some(20_000), Some(1 << 20)));
}

#[test]
fn a_container_may_use_its_devices_and_no_others() {
    let plain = device_rules(&ContainerConfig::default(), &[]);
    assert!(plain.contains(&"c 1:3 rwm".to_owned()));
    assert!(!plain.contains(&"a".to_owned()));
    let privileged = with(LinuxContainerSecurityContext { privileged: true, ..Default::default() });
    assert_eq!(device_rules(&privileged, &[]), ["a"]);
}

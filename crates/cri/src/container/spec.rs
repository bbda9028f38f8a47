//! The OCI specification of a container, from what the kubelet asks for and what the image says. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use trine_contracts::cri::security_profile::ProfileType;
use trine_contracts::cri::{
    ContainerConfig, LinuxContainerResources, LinuxContainerSecurityContext, MountPropagation, NamespaceMode,
    SecurityProfile,
};
use trine_images::ImageConfig;
use trine_kernel::cgroup::Limits;
use trine_kernel::container::Owners;
use trine_kernel::container::oci::{Device, Linux, Mount, Namespace, Process, Root, Spec, User};
use trine_kernel::seccomp::profile::Seccomp;

use super::capabilities;
use crate::sandbox::record::{ids, mapped};

/// The specification's version.
const OCI_VERSION: &str = "1.2.0";
/// For an image without one (that of Docker and containerd).
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Hidden from containers whose Pod does not say (the kubelet's default list).
const MASKED: [&str; 9] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/sys/firmware",
];
/// Read-only for containers whose Pod does not say (the kubelet's default list).
const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// Devices of every container: path, major, minor.
const DEVICES: [(&str, u32, u32); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

/// All that a specification depends on.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// What the kubelet asks for.
    pub config: &'a ContainerConfig,
    /// What the image says.
    pub image: &'a ImageConfig,
    /// Its mounted root.
    pub rootfs: &'a Path,
    /// Who it runs as.
    pub user: &'a User,
    /// The Pod's host name; empty for the host's.
    pub hostname: &'a str,
    /// Where the Pod's `resolv.conf`, `hostname` and `shm` are.
    pub sandbox: &'a Path,
    /// The Pod uses the host's IPC namespace, so the host's `/dev/shm` too.
    pub host_ipc: bool,
    /// Where its cgroups are.
    pub cgroup: &'a Path,
    /// Version 2 cgroups alone.
    pub unified: bool,
    /// Which system calls it may make; all if none.
    pub seccomp: Option<&'a Seccomp>,
    /// Devices that it asked for, or all of the host for a privileged one.
    pub devices: &'a [Device],
    /// The Pod's own users, if they are not the host's.
    pub owners: Option<&'a Owners>,
}

/// What the kubelet asks for cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// The specification.
///
/// # Errors
/// [`Refused`] for what is contradictory or not supported.
pub fn spec(inputs: &Inputs<'_>) -> Result<Spec, Refused> {
    let none = LinuxContainerSecurityContext::default();
    let linux = inputs.config.linux.as_ref();
    let security = linux.and_then(|l| l.security_context.as_ref()).unwrap_or(&none);
    check(security, inputs.owners)?;
    let resources = linux.and_then(|l| l.resources.as_ref());
    let pid = pid_mode(security);
    let mut namespaces = vec![Namespace { kind: "mount".into(), path: None }];
    if pid == NamespaceMode::Container {
        namespaces.push(Namespace { kind: "pid".into(), path: None });
    }
    if inputs.owners.is_some() {
        namespaces.push(Namespace { kind: "user".into(), path: Some(inputs.sandbox.join("userns")) });
    }
    let owners = inputs.owners.cloned().unwrap_or_default();
    if inputs.unified && !security.privileged {
        namespaces.push(Namespace { kind: "cgroup".into(), path: None });
    }
    let (masked, readonly) = protected(security, linux.is_some());
    let mounts = mounts(inputs, security)?;
    Ok(Spec {
        oci_version: OCI_VERSION.to_owned(),
        process: process(inputs, security, resources)?,
        root: Root { path: inputs.rootfs.to_owned(), readonly: security.readonly_rootfs },
        hostname: String::new(),
        linux: Linux {
            namespaces,
            uid_mappings: owners.uids,
            gid_mappings: owners.gids,
            devices: devices(inputs.devices),
            cgroups_path: inputs.cgroup.to_owned(),
            sysctl: BTreeMap::new(),
            masked_paths: masked,
            readonly_paths: readonly,
            seccomp: inputs.seccomp.cloned(),
            rootfs_propagation: propagation(inputs.config),
        },
        mounts,
        annotations: BTreeMap::new(),
    })
}

/// In whose pid namespace a container lives.
#[must_use]
pub fn pid_mode(security: &LinuxContainerSecurityContext) -> NamespaceMode {
    security.namespace_options.as_ref().map_or(NamespaceMode::Container, |options| options.pid())
}

/// What is not there yet is refused rather than ignored, unless ignoring it is what a default means.
fn check(security: &LinuxContainerSecurityContext, owners: Option<&Owners>) -> Result<(), Refused> {
    let localhost = |profile: &Option<SecurityProfile>| {
        profile.as_ref().is_some_and(|p| p.profile_type() == ProfileType::Localhost)
    };
    if localhost(&security.apparmor) || security.apparmor_profile.starts_with("localhost/") {
        return Err(Refused("AppArmor profiles of type Localhost are not supported by this runtime".into()));
    }
    let asked = mapped(security.namespace_options.as_ref()).map_err(Refused)?;
    match asked {
        Some(asked) if Some(&asked) != owners => {
            Err(Refused("a container's user namespace is its Pod's, which has other users".into()))
        }
        _ => Ok(()),
    }
}

fn process(
    inputs: &Inputs<'_>,
    security: &LinuxContainerSecurityContext,
    resources: Option<&LinuxContainerResources>,
) -> Result<Process, Refused> {
    let cwd = [&inputs.config.working_dir, &inputs.image.working_dir]
        .into_iter()
        .find(|dir| !dir.is_empty())
        .map_or_else(|| PathBuf::from("/"), PathBuf::from);
    if !cwd.is_absolute() {
        return Err(Refused(format!("working directory {:?} is not absolute", cwd.display().to_string())));
    }
    let score = resources.map_or(0, |r| r.oom_score_adj);
    Ok(Process {
        terminal: inputs.config.tty,
        user: inputs.user.clone(),
        args: args(inputs.config, inputs.image)?,
        env: env(inputs),
        cwd,
        capabilities: capabilities::sets(security.capabilities.as_ref(), security.privileged),
        rlimits: Vec::new(),
        no_new_privileges: security.no_new_privs,
        oom_score_adj: i32::try_from(score.clamp(-1000, 1000)).ok(),
    })
}

/// The command replaces the image's entry point, and its arguments the image's; arguments alone keep the entry point.
fn args(config: &ContainerConfig, image: &ImageConfig) -> Result<Vec<String>, Refused> {
    let (command, args) = match (config.command.is_empty(), config.args.is_empty()) {
        (true, true) => (&image.entrypoint, &image.cmd),
        (true, false) => (&image.entrypoint, &config.args),
        (false, _) => (&config.command, &config.args),
    };
    let all: Vec<String> = command.iter().chain(args).cloned().collect();
    if all.is_empty() {
        return Err(Refused("no command specified, neither by the container nor by its image".into()));
    }
    Ok(all)
}

fn env(inputs: &Inputs<'_>) -> Vec<String> {
    let mut env: Vec<String> = Vec::new();
    let mut set = |line: String| {
        let key = line.split_once('=').map_or(line.as_str(), |(key, _)| key).to_owned() + "=";
        match env.iter_mut().find(|known| known.starts_with(&key)) {
            Some(known) => *known = line,
            None => env.push(line),
        }
    };
    set(DEFAULT_PATH.to_owned());
    if !inputs.hostname.is_empty() {
        set(format!("HOSTNAME={}", inputs.hostname));
    }
    if inputs.config.tty {
        set("TERM=xterm".to_owned());
    }
    inputs.image.env.iter().cloned().for_each(&mut set);
    for pair in &inputs.config.envs {
        set(format!("{}={}", pair.key, String::from_utf8_lossy(&pair.value)));
    }
    if !env.iter().any(|line| line.starts_with("HOME=")) {
        let home = if inputs.user.uid == 0 { "/root" } else { "/" };
        env.push(format!("HOME={home}"));
    }
    env
}

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Mount {
    Mount {
        destination: destination.into(),
        kind: kind.into(),
        source: source.into(),
        options: options.iter().map(|o| (*o).to_owned()).collect(),
        ..Mount::default()
    }
}

fn mounts(inputs: &Inputs<'_>, security: &LinuxContainerSecurityContext) -> Result<Vec<Mount>, Refused> {
    let access = if security.privileged { "rw" } else { "ro" };
    let shm = if inputs.host_ipc { PathBuf::from("/dev/shm") } else { inputs.sandbox.join("shm") };
    let mut all = vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount(
            "/dev/shm",
            "bind",
            &shm.to_string_lossy(),
            &["rbind", "nosuid", "noexec", "nodev", "rprivate"],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", access]),
    ];
    let own = |file: &str| inputs.sandbox.join(file).to_string_lossy().into_owned();
    let file =
        if security.readonly_rootfs { ["rbind", "rprivate", "ro"] } else { ["rbind", "rprivate", "rw"] };
    all.push(mount("/etc/resolv.conf", "bind", &own("resolv.conf"), &file));
    if !inputs.hostname.is_empty() {
        all.push(mount("/etc/hostname", "bind", &own("hostname"), &file));
    }
    let mut asked = Vec::new();
    for wanted in &inputs.config.mounts {
        asked.push(asked_mount(wanted)?);
    }
    // A folder must be mounted before what is mounted inside it.
    asked.sort_by_key(|m: &Mount| m.destination.components().count());
    let replaced = |m: &Mount| {
        asked.iter().any(|a| {
            m.destination == a.destination
                || (a.destination == Path::new("/dev") && m.destination.starts_with("/dev"))
        })
    };
    all.retain(|m| !replaced(m));
    all.extend(asked);
    Ok(all)
}

fn asked_mount(wanted: &trine_contracts::cri::Mount) -> Result<Mount, Refused> {
    let destination = Path::new(&wanted.container_path);
    if wanted.recursive_read_only
        && (!wanted.readonly || wanted.propagation() != MountPropagation::PropagationPrivate)
    {
        return Err(Refused(format!(
            "{}: recursive_read_only needs readonly and private propagation",
            wanted.container_path
        )));
    }
    if wanted.container_path.is_empty() || wanted.host_path.is_empty() {
        return Err(Refused("a mount has no path".into()));
    }
    let mut options = vec![
        "rbind",
        match wanted.propagation() {
            MountPropagation::PropagationPrivate => "rprivate",
            MountPropagation::PropagationHostToContainer => "rslave",
            MountPropagation::PropagationBidirectional => "rshared",
        },
    ];
    if wanted.recursive_read_only {
        options.push("rro");
    }
    options.push(if wanted.readonly { "ro" } else { "rw" });
    let absolute = Path::new("/").join(destination);
    Ok(Mount {
        uid_mappings: ids(&wanted.uid_mappings),
        gid_mappings: ids(&wanted.gid_mappings),
        ..mount(&absolute.to_string_lossy(), "bind", &wanted.host_path, &options)
    })
}

fn propagation(config: &ContainerConfig) -> String {
    let shared = config.mounts.iter().any(|m| m.propagation() == MountPropagation::PropagationBidirectional);
    if shared { "shared".to_owned() } else { "slave".to_owned() }
}

fn protected(security: &LinuxContainerSecurityContext, said: bool) -> (Vec<String>, Vec<String>) {
    if security.privileged {
        return (Vec::new(), Vec::new());
    }
    if !said {
        return (MASKED.map(str::to_owned).into(), READONLY.map(str::to_owned).into());
    }
    (security.masked_paths.clone(), security.readonly_paths.clone())
}

fn devices(asked: &[Device]) -> Vec<Device> {
    let defaults = DEVICES.iter().map(|(path, major, minor)| Device {
        kind: "c".into(),
        path: (*path).into(),
        major: *major,
        minor: *minor,
        file_mode: 0o666,
        uid: 0,
        gid: 0,
    });
    let mut all: Vec<Device> = defaults.filter(|d| asked.iter().all(|a| a.path != d.path)).collect();
    all.extend(asked.iter().cloned());
    all
}

/// Which devices its processes may use, as the devices controller wants it.
#[must_use]
pub fn device_rules(config: &ContainerConfig, devices: &[Device]) -> Vec<String> {
    let security = config.linux.as_ref().and_then(|l| l.security_context.as_ref());
    if security.is_some_and(|s| s.privileged) {
        return vec!["a".to_owned()];
    }
    // Making any device file is allowed, opening it is not.
    let mut rules: Vec<String> = ["c *:* m", "b *:* m", "c 5:2 rwm", "c 136:* rwm"].map(str::to_owned).into();
    rules.extend(DEVICES.iter().map(|(_, major, minor)| format!("c {major}:{minor} rwm")));
    for device in devices {
        let wanted = config.devices.iter().find(|d| Path::new(&d.container_path) == device.path);
        let permissions = wanted.map(|d| d.permissions.as_str()).filter(|p| !p.is_empty()).unwrap_or("rwm");
        rules.push(format!("{} {}:{} {permissions}", device.kind, device.major, device.minor));
    }
    rules
}

/// The limits that `resources` name; zero means "not said".
#[must_use]
pub fn limits(resources: &LinuxContainerResources) -> Limits {
    let said = |n: i64| (n != 0).then_some(n);
    let text = |s: &str| (!s.is_empty()).then(|| s.to_owned());
    Limits {
        cpu_shares: said(resources.cpu_shares).and_then(|n| u64::try_from(n).ok()),
        cpu_quota: said(resources.cpu_quota),
        cpu_period: said(resources.cpu_period).and_then(|n| u64::try_from(n).ok()),
        memory: said(resources.memory_limit_in_bytes),
        memory_and_swap: said(resources.memory_swap_limit_in_bytes),
        pids: None,
        cpus: text(&resources.cpuset_cpus),
        mems: text(&resources.cpuset_mems),
        huge_pages: resources.hugepage_limits.iter().map(|h| (h.page_size.clone(), h.limit)).collect(),
        unified: resources.unified.clone().into_iter().collect(),
    }
}

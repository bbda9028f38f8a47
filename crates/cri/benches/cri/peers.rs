//! The runtimes that are measured, in one temporary folder, with the same image and the same network.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use trine_contracts::cri::runtime_service_client::RuntimeServiceClient;
use trine_contracts::cri::*;
use trine_contracts::socket::connect;
use trine_images::BuildSpec;

use crate::memory::Helpers;
use crate::{Asked, Outcome};

/// Trine's runtime, built as the rest of this run.
const RUNTIME: &str = env!("CARGO_BIN_EXE_trine-runtime");
/// The image of containers, and of containerd's sandboxes.
const IMAGE: &str = "trine.local/busybox:1";
const START_DEADLINE: Duration = Duration::from_secs(60);
const END_DEADLINE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// Pods' addresses: the range for measurements (RFC 2544), so nobody's.
const RANGES: [&str; 2] = ["198.18.0.0/24", "198.18.1.0/24"];

/// One way to run Pods.
#[derive(Debug, Clone)]
pub struct Peer {
    /// What the page calls it.
    pub name: String,
    /// The runtime handler that is asked for.
    pub handler: &'static str,
    /// The daemon's process.
    pub daemon: i32,
    /// Its helpers.
    pub helpers: Helpers,
    channel: Channel,
    logs: PathBuf,
    group: String,
}

impl Peer {
    /// A client.
    #[must_use]
    pub fn client(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
    }
}

/// The daemons and their folder; all of it goes with this.
pub struct Stage {
    /// What is measured, in the order of turns.
    pub peers: Vec<Peer>,
    /// What could not be measured here, and why.
    pub left_out: Vec<String>,
    /// What the network is.
    pub network: String,
    dir: tempfile::TempDir,
    daemons: Vec<Child>,
    instances: [String; 2],
}

impl Stage {
    /// Starts what is asked for.
    ///
    /// # Errors
    /// If something does not come up.
    pub async fn start(asked: &Asked) -> Outcome<Self> {
        let dir = tempfile::Builder::new().prefix("trine-bench-cri-").tempdir()?;
        let id = std::process::id();
        let instances = [0, 1].map(|n| format!("{:06x}", (id << 1 | n) & 0xff_ffff));
        let network = if asked.bridge.is_some() { "bridge, host-local" } else { "routed, portmap" };
        let mut stage = Self {
            peers: Vec::new(),
            left_out: Vec::new(),
            network: network.to_owned(),
            dir,
            daemons: Vec::new(),
            instances,
        };
        let archive = stage.dir.path().join("image.tar");
        image().write_archive(&archive)?;
        stage.trine(asked, &archive)?;
        if let Some(programs) = &asked.containerd {
            stage.containerd(asked, programs, &archive)?;
        }
        for peer in &stage.peers {
            soon(&format!("{} answers", peer.name), async || {
                peer.client().version(VersionRequest::default()).await.is_ok()
            })
            .await?;
        }
        Ok(stage)
    }

    fn folder(&self, name: &str, range: usize, asked: &Asked) -> Outcome<PathBuf> {
        let dir = self.dir.path().join(name);
        std::fs::create_dir_all(dir.join("net.d"))?;
        match &asked.bridge {
            Some(plugins) => {
                std::os::unix::fs::symlink(plugins, dir.join("bin"))?;
                let bridge = format!("trbench{range}");
                let list = serde_json::json!({"cniVersion": "1.0.0", "name": "bench", "plugins": [{
                    "type": "bridge", "bridge": bridge, "isDefaultGateway": true,
                    "ipam": {"type": "host-local", "dataDir": dir.join("ipam"), "ranges": [[{"subnet": RANGES[range]}]]},
                }]});
                std::fs::write(dir.join("net.d/10-bridge.conflist"), list.to_string())?;
            }
            None => {
                let bin = dir.join("bin");
                std::fs::create_dir_all(&bin)?;
                for plugin in trine_cni::built_in() {
                    std::os::unix::fs::symlink(RUNTIME, bin.join(plugin))?;
                }
            }
        }
        Ok(dir)
    }

    fn daemon(&mut self, name: &str, command: &mut Command) -> Outcome<i32> {
        let log = File::create(self.dir.path().join(format!("{name}.log")))?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let pid = i32::try_from(child.id())?;
        self.daemons.push(child);
        Ok(pid)
    }

    fn peer(&self, name: &str, handler: &'static str, socket: &Path, daemon: i32, helpers: Helpers) -> Peer {
        Peer {
            name: name.to_owned(),
            handler,
            daemon,
            helpers,
            channel: connect(socket),
            logs: self.dir.path().join("logs").join(format!("{name}{handler}")),
            group: group(),
        }
    }

    fn trine(&mut self, asked: &Asked, archive: &Path) -> Outcome<()> {
        let dir = self.folder("trine", 0, asked)?;
        said(Command::new(RUNTIME).arg("import").arg(&dir).arg(archive))?;
        let mut command = Command::new(RUNTIME);
        command.arg("serve").arg(&dir).args([&self.instances[0], RANGES[0]]);
        let pid = self.daemon("trine", &mut command)?;
        let keepers = Helpers::Keepers(dir.join("cri/sandboxes"));
        let peer = self.peer("Trine", "", &dir.join("cri.sock"), pid, keepers);
        self.peers.push(peer);
        Ok(())
    }

    fn containerd(&mut self, asked: &Asked, programs: &Path, archive: &Path) -> Outcome<()> {
        let dir = self.folder("containerd", 1, asked)?;
        if asked.bridge.is_none() {
            let mut command = Command::new(RUNTIME);
            let list = said(command.arg("network").arg(&dir).args([&self.instances[1], RANGES[1]]))?;
            std::fs::write(dir.join("net.d/90-trine.conflist"), list)?;
        }
        let handlers: Vec<(&str, &PathBuf)> = [("runc", &asked.runc), ("crun", &asked.crun)]
            .into_iter()
            .filter_map(|(name, file)| Some((name, file.as_ref()?)))
            .collect();
        let settings = dir.join("containerd.toml");
        let older = older_specification(&dir)?;
        std::fs::write(&settings, config(&dir, &handlers, &older))?;
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(programs.join("containerd"));
        command.arg("--config").arg(&settings).env("PATH", path);
        // For its helpers' script.
        command.envs(asked.crun.as_ref().map(|crun| ("TRINE_BENCH_CRUN", crun)));
        let pid = self.daemon("containerd", &mut command)?;
        let socket = dir.join("containerd.sock");
        let since = Instant::now();
        let import = || {
            let mut command = Command::new(programs.join("ctr"));
            command.arg("--address").arg(&socket).args(["--namespace", "k8s.io", "images", "import"]);
            said(command.arg(archive))
        };
        while let Err(error) = import() {
            if since.elapsed() > START_DEADLINE {
                return Err(error);
            }
            std::thread::sleep(POLL);
        }
        let version = said(Command::new(programs.join("containerd")).arg("--version"))?;
        let version = version.split_whitespace().nth(2).unwrap_or_default().to_owned();
        for (handler, file) in handlers {
            let handler = if handler == "runc" { "runc" } else { "crun" };
            let said = said(Command::new(file).arg("--version"))?;
            let number = said.split_whitespace().nth(2).unwrap_or_default();
            let name = format!("containerd {version}, {handler} {number}");
            let words = ["containerd-shim-runc-v2".to_owned(), dir.display().to_string()];
            let peer = self.peer(&name, handler, &socket, pid, Helpers::Shims(words));
            self.peers.push(peer);
        }
        Ok(())
    }

    /// Removes all Pods that are left, so that nothing outlives the run.
    pub async fn end(&self) {
        for peer in &self.peers {
            let mut client = peer.client();
            let Ok(all) = client.list_pod_sandbox(ListPodSandboxRequest { filter: None }).await else {
                continue;
            };
            for pod_sandbox_id in all.into_inner().items.into_iter().map(|pod| pod.id) {
                let stop = StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
                let _ = client.stop_pod_sandbox(stop).await;
                let _ = client.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id }).await;
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = Command::new("kill").arg(daemon.id().to_string()).stderr(Stdio::null()).status();
            let since = Instant::now();
            while matches!(daemon.try_wait(), Ok(None)) {
                if since.elapsed() > END_DEADLINE {
                    let _ = daemon.kill();
                }
                std::thread::sleep(POLL);
            }
        }
        let dir = self.dir.path().join("trine");
        let _ = Command::new(RUNTIME).arg("end").arg(dir).arg(&self.instances[0]).status();
        for bridge in 0..RANGES.len() {
            let _ = Command::new("ip")
                .args(["link", "del", &format!("trbench{bridge}")])
                .stderr(Stdio::null())
                .status();
        }
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            remove_groups(&hierarchy.path().join(group().trim_start_matches('/')));
        }
    }
}

fn remove_groups(dir: &Path) {
    for below in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if below.path().is_dir() {
            remove_groups(&below.path());
        }
    }
    let _ = std::fs::remove_dir(dir);
}

/// The group of containerd's Pods, which it does not nest below its own.
fn group() -> String {
    format!("/trine-bench-{}", std::process::id())
}

async fn soon(what: &str, is_so: impl AsyncFn() -> bool) -> Outcome<()> {
    let since = Instant::now();
    while !is_so().await {
        if since.elapsed() > START_DEADLINE {
            return Err(format!("{what}: not in time").into());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

fn said(command: &mut Command) -> Outcome<String> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", command.get_program().display(), said.trim()).into())
}

/// A program that does nothing, for containers and for containerd's sandboxes.
fn image() -> BuildSpec {
    let busybox = PathBuf::from("/bin/busybox");
    BuildSpec {
        reference: IMAGE.to_owned(),
        files: vec![(busybox.clone(), "/bin/busybox".to_owned()), (busybox, "/bin/sleep".to_owned())],
        texts: vec![("/etc/passwd".to_owned(), "root:x:0:0::/root:/bin/sh\n".to_owned(), 0o644)],
        entrypoint: vec!["/bin/sleep".to_owned()],
        cmd: vec!["1000000".to_owned()],
        ..BuildSpec::default()
    }
}

fn namespaces() -> NamespaceOption {
    NamespaceOption { pid: NamespaceMode::Container as i32, ..Default::default() }
}

/// A Pod as a kubelet asks for it.
#[must_use]
pub fn pod(peer: &Peer, name: &str) -> PodSandboxConfig {
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("{name}-{}", peer.handler),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        hostname: name.to_owned(),
        log_directory: peer.logs.join(name).display().to_string(),
        dns_config: Some(DnsConfig {
            servers: vec!["10.96.0.10".to_owned()],
            searches: vec!["default.svc.cluster.local".to_owned(), "svc.cluster.local".to_owned()],
            options: vec!["ndots:5".to_owned()],
        }),
        labels: HashMap::from([("app".to_owned(), name.to_owned())]),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: peer.group.clone(),
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Its container, with the kubelet's usual words.
#[must_use]
pub fn container() -> ContainerConfig {
    let hidden = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"];
    let readonly = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: 0 }),
        image: Some(ImageSpec { image: IMAGE.to_owned(), ..Default::default() }),
        command: vec!["/bin/sleep".to_owned()],
        args: vec!["1000000".to_owned()],
        log_path: "main/0.log".to_owned(),
        linux: Some(LinuxContainerConfig {
            resources: Some(LinuxContainerResources {
                cpu_shares: 102,
                memory_limit_in_bytes: 64 << 20,
                oom_score_adj: 1000,
                ..Default::default()
            }),
            security_context: Some(LinuxContainerSecurityContext {
                namespace_options: Some(namespaces()),
                masked_paths: hidden.map(str::to_owned).into(),
                readonly_paths: readonly.map(str::to_owned).into(),
                ..Default::default()
            }),
        }),
        ..Default::default()
    }
}

/// A program that runs `crun`, 1.8 of Debian 12, on a specification as old as that knows: it refuses the number that containerd
/// writes. It costs two small programs when a container is made, one otherwise, some ms of a busy machine.
fn older_specification(dir: &Path) -> Outcome<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let script = r#"#!/bin/busybox sh
bundle= create=
for word; do
  [ "$before" = --bundle ] && bundle=$word
  [ "$word" = create ] && create=yes
  before=$word
done
[ $create ] && busybox sed -i 's/"ociVersion":"[^"]*"/"ociVersion":"1.0.2"/' "$bundle/config.json"
exec "$TRINE_BENCH_CRUN" "$@"
"#;
    let path = dir.join("crun-older");
    std::fs::write(&path, script)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// containerd's settings: everything of it in the run's folder. Its sandboxes may not be spared from the kernel's memory killer,
/// which needs a right that this machine may not have.
fn config(dir: &Path, handlers: &[(&str, &PathBuf)], older: &Path) -> String {
    let at = dir.display();
    let runtimes: String = handlers
        .iter()
        .map(|(name, file)| {
            let file = if *name == "crun" { older } else { file };
            format!(
                r#"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}]
      runtime_type = 'io.containerd.runc.v2'
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}.options]
        BinaryName = '{}'
        Root = '{at}/{name}'
"#,
                file.display()
            )
        })
        .collect();
    format!(
        r#"version = 3
root = '{at}/root'
state = '{at}/state'
disabled_plugins = ['io.containerd.internal.v1.opt']
[grpc]
  address = '{at}/containerd.sock'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{IMAGE}'
[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = '127.0.0.1'
  stream_server_port = '0'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{at}/bin']
    conf_dir = '{at}/net.d'
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = 'runc'
{runtimes}"#
    )
}

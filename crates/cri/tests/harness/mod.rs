//! A runtime of its own in a temporary folder, with an image made of busybox, and everything gone at the end.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use trine_contracts::cri::image_service_client::ImageServiceClient;
use trine_contracts::cri::runtime_service_client::RuntimeServiceClient;
use trine_contracts::cri::*;
use trine_contracts::socket::connect;
use trine_cri::Config;
use trine_images::{BuildSpec, ImageStore};

pub const IMAGE: &str = "localhost/busybox:1";
/// Set in the run of a test that is inside a network namespace of its own.
const INSIDE: &str = "TRINE_TEST_INSIDE_NETNS";
static NEXT: AtomicU32 = AtomicU32::new(0);

/// True if this is the run inside a network namespace that stands for the node; else that run is made, and has passed.
pub fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if !trine_kernel::testing::root(test)
        || !trine_kernel::testing::program(test, "unshare")
        || !trine_kernel::testing::program(test, "ip")
    {
        return false;
    }
    let passed = Command::new("unshare")
        .args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(passed.success());
    false
}

pub struct Node {
    pub config: Config,
    pub dir: tempfile::TempDir,
    /// Of [`IMAGE`].
    pub image_id: String,
    stop: CancellationToken,
    serving: Option<tokio::task::JoinHandle<Result<(), trine_cri::CriError>>>,
}

impl Node {
    /// A runtime that serves, or none if the machine has no busybox or we are not root.
    pub async fn start(test: &str) -> Option<Self> {
        let mut node = Self::new(test)?;
        node.serve().await;
        Some(node)
    }

    /// The same without a daemon.
    pub fn new(test: &str) -> Option<Self> {
        if !trine_kernel::testing::root(test) {
            return None;
        }
        if !std::path::Path::new("/bin/busybox").is_file() {
            trine_kernel::testing::skip(test, "needs /bin/busybox");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("trine-cri-").tempdir().unwrap();
        let instance =
            format!("{:06x}", (std::process::id() << 6 | NEXT.fetch_add(1, Ordering::Relaxed)) & 0xff_ffff);
        let config = config(dir.path(), instance);
        let image_id = make_image(&config);
        Some(Self { config, dir, image_id, stop: CancellationToken::new(), serving: None })
    }

    /// A network of its own for its Pods; to be used inside a network namespace of the test's.
    pub fn with_network(&self, pod_cidr: &str) {
        std::fs::create_dir_all(&self.config.cni_conf_dir).unwrap();
        let conflist = trine_cni::default_network(&trine_cni::DefaultNetwork {
            instance: &self.config.instance,
            pod_cidrs: &[pod_cidr.parse().unwrap()],
            data_dir: &self.config.cni_state_dir,
            mtu: None,
        });
        std::fs::write(self.config.cni_conf_dir.join("90-trine.conflist"), conflist.to_string()).unwrap();
    }

    pub async fn serve(&mut self) {
        self.stop = CancellationToken::new();
        let (config, stop) = (self.config.clone(), self.stop.clone());
        self.serving = Some(tokio::spawn(trine_cri::serve(config, stop)));
        let mut client = self.client();
        for _ in 0..500 {
            if client.version(VersionRequest::default()).await.is_ok() {
                return;
            }
            if self.serving.as_ref().unwrap().is_finished() {
                panic!("{:?}", self.serving.take().unwrap().await);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the runtime does not serve");
    }

    /// Ends the daemon; Pods go on.
    pub async fn end_daemon(&mut self) {
        self.stop.cancel();
        if let Some(serving) = self.serving.take() {
            serving.await.unwrap().unwrap();
        }
    }

    pub fn client(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(connect(&self.config.socket))
    }

    pub fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(connect(&self.config.socket))
    }

    pub fn logs(&self) -> PathBuf {
        self.dir.path().join("logs")
    }

    /// A Pod on the host's network.
    pub fn pod(&self, name: &str) -> PodSandboxConfig {
        let options = NamespaceOption {
            network: NamespaceMode::Node as i32,
            pid: NamespaceMode::Container as i32,
            ..Default::default()
        };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.into(),
                uid: format!("uid-{name}"),
                namespace: "default".into(),
                attempt: 0,
            }),
            log_directory: self.logs().join(name).to_string_lossy().into_owned(),
            labels: HashMap::from([("app".to_owned(), name.to_owned())]),
            linux: Some(LinuxPodSandboxConfig {
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(options),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    pub async fn run_pod(&self, config: &PodSandboxConfig) -> String {
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        self.client().run_pod_sandbox(request).await.unwrap().into_inner().pod_sandbox_id
    }

    pub async fn create(&self, pod: &str, config: ContainerConfig) -> Result<String, tonic::Status> {
        let request =
            CreateContainerRequest { pod_sandbox_id: pod.into(), config: Some(config), sandbox_config: None };
        Ok(self.client().create_container(request).await?.into_inner().container_id)
    }

    pub async fn start_container(&self, id: &str) -> Result<(), tonic::Status> {
        let request = StartContainerRequest { container_id: id.into() };
        self.client().start_container(request).await.map(drop)
    }

    /// A container that was created and started.
    pub async fn run(&self, pod: &str, config: ContainerConfig) -> String {
        let id = self.create(pod, config).await.unwrap();
        self.start_container(&id).await.unwrap();
        id
    }

    pub async fn status(&self, id: &str) -> ContainerStatus {
        let request = ContainerStatusRequest { container_id: id.into(), verbose: false };
        self.client().container_status(request).await.unwrap().into_inner().status.unwrap()
    }

    pub async fn ended(&self, id: &str) -> ContainerStatus {
        for _ in 0..2000 {
            let status = self.status(id).await;
            if status.state() == ContainerState::ContainerExited {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{id} does not end");
    }

    pub async fn exec(&self, id: &str, script: &str) -> ExecSyncResponse {
        let cmd = ["sh", "-c", script].map(str::to_owned).into();
        let request = ExecSyncRequest { container_id: id.into(), cmd, timeout: 10 };
        self.client().exec_sync(request).await.unwrap().into_inner()
    }

    pub async fn stdout(&self, id: &str, script: &str) -> String {
        let response = self.exec(id, script).await;
        assert_eq!(response.exit_code, 0, "{}", String::from_utf8_lossy(&response.stderr));
        String::from_utf8(response.stdout).unwrap().trim_end().to_owned()
    }

    /// Texts of a container's log, with stream and tag.
    pub async fn log(&self, id: &str) -> Vec<String> {
        let path = self.status(id).await.log_path;
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    /// Prints the medians of the calls of a Pod's life, one after the other.
    pub async fn measure(&self, change: impl Fn(PodSandboxConfig) -> PodSandboxConfig) {
        const ROUNDS: usize = 20;
        let names = ["RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox"];
        let mut times: [Vec<Duration>; 5] = Default::default();
        let mut client = self.client();
        for round in 0..ROUNDS {
            let mut begun = Instant::now();
            let mut lap = |step: usize| {
                times[step].push(begun.elapsed());
                begun = Instant::now();
            };
            let pod = self.run_pod(&change(self.pod(&format!("p{round}")))).await;
            lap(0);
            let id = self.create(&pod, container("main", &[])).await.unwrap();
            lap(1);
            self.start_container(&id).await.unwrap();
            lap(2);
            client.stop_container(StopContainerRequest { container_id: id, timeout: 0 }).await.unwrap();
            lap(3);
            client.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: pod }).await.unwrap();
            lap(4);
        }
        for (name, times) in names.iter().zip(&mut times) {
            times.sort_unstable();
            println!("{name}: p50 {:.1} ms", times[ROUNDS / 2].as_secs_f64() * 1000.0);
        }
    }

    /// Ends everything and says what is left.
    pub async fn finish(mut self) {
        self.end_daemon().await;
        trine_cri::teardown(&self.config).await.unwrap();
        let left = self.leftovers();
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    fn leftovers(&self) -> Vec<String> {
        let root = self.dir.path();
        let mounts = trine_kernel::mountpoint::mounted().unwrap();
        let mounts =
            mounts.iter().filter(|m| m.target.starts_with(root)).map(|m| format!("{}", m.target.display()));
        let group = PathBuf::from(format!("trine-{}", self.config.instance));
        let groups = trine_kernel::cgroup::Hierarchies::discover().unwrap();
        let groups = groups.group(&group).exists().then(|| format!("cgroup {}", group.display()));
        let sandboxes = std::fs::read_dir(self.config.state_dir.join("sandboxes")).unwrap().flatten();
        let sandboxes = sandboxes.map(|entry| format!("{}", entry.path().display()));
        let marker = root.to_string_lossy().into_owned();
        let processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let words = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
            words.contains(&marker).then(|| format!("process {:?}: {words}", entry.file_name()))
        });
        mounts.chain(groups).chain(sandboxes).chain(processes).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stop.cancel();
            let config = self.config.clone();
            let clean = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(trine_cri::teardown(&config))
            });
            eprintln!("cleaned up: {:?}", clean.join());
        }
    }
}

/// The settings of a runtime in `dir`.
pub fn config(dir: &Path, instance: String) -> Config {
    Config {
        socket: dir.join("cri.sock"),
        state_dir: dir.join("cri"),
        images_dir: dir.join("images"),
        cni_conf_dir: dir.join("net.d"),
        cni_bin_dirs: vec![dir.join("bin")],
        cni_state_dir: dir.join("cni"),
        instance,
        keeper: Some(env!("CARGO_BIN_EXE_trine-keeper").into()),
        ..Config::default()
    }
}

fn make_image(config: &Config) -> String {
    let store = ImageStore::open(&config.images_dir, config.images.clone()).unwrap();
    let applets = [
        "sh", "echo", "sleep", "cat", "id", "hostname", "ls", "env", "pwd", "touch", "kill", "true", "head",
        "dd", "stty", "test", "wc", "grep", "mount", "umount", "trap", "mknod", "nc",
    ];
    let mut files = vec![(PathBuf::from("/bin/busybox"), "/bin/busybox".to_owned())];
    files.extend(applets.iter().map(|a| (PathBuf::from("/bin/busybox"), format!("/bin/{a}"))));
    let text = |path: &str, text: &str| (path.to_owned(), text.to_owned(), 0o644);
    store
        .build(&BuildSpec {
            reference: IMAGE.to_owned(),
            files,
            dirs: vec![("/tmp".to_owned(), 0o1777), ("/root".to_owned(), 0o755)],
            texts: vec![
                text("/etc/passwd", "root:x:0:0::/root:/bin/sh\nwww:x:33:33::/:/bin/sh\n"),
                text("/etc/group", "root:x:0:\nwww:x:33:\nextra:x:5000:www\n"),
            ],
            cmd: vec!["sleep".to_owned(), "1000".to_owned()],
            env: vec!["FROM_IMAGE=yes".to_owned()],
            ..BuildSpec::default()
        })
        .unwrap()
        .id
}

/// A container of the image.
pub fn container(name: &str, command: &[&str]) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: name.into(), attempt: 0 }),
        image: Some(ImageSpec { image: IMAGE.into(), ..Default::default() }),
        command: command.iter().map(|s| (*s).to_owned()).collect(),
        log_path: format!("{name}/0.log"),
        ..Default::default()
    }
}

/// The same, of a shell script.
pub fn script(name: &str, script: &str) -> ContainerConfig {
    container(name, &["sh", "-c", script])
}

/// The same, with a security context.
pub fn secured(name: &str, command: &str, security: LinuxContainerSecurityContext) -> ContainerConfig {
    ContainerConfig {
        linux: Some(LinuxContainerConfig { resources: None, security_context: Some(security) }),
        ..script(name, command)
    }
}

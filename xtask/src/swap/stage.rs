//! A run: its folder, its processes, and how nothing is left of either.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;

use super::process::Process;
use super::{authority, story};
use crate::upstream::etcd::Etcd;

/// How long a process may take until what it makes is there.
const START_DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// How long killed processes may take to leave their group.
const GROUPS_DEADLINE: Duration = Duration::from_secs(5);
/// What the folders of runs begin with; the process id of the run ends them.
const PREFIX: &str = "trine-swap-";

/// A run of one part.
pub struct Stage {
    /// The workspace.
    pub root: PathBuf,
    /// `trine`.
    pub program: PathBuf,
    /// The run's folder.
    pub dir: PathBuf,
    logs: PathBuf,
    processes: Vec<Process>,
    etcd: Option<Etcd>,
}

/// The ranges that a data dir has chosen.
pub struct Ranges {
    /// Pods of the cluster.
    pub pods: String,
    /// Services.
    pub services: String,
}

impl Stage {
    /// An empty one.
    ///
    /// # Errors
    /// What the file system says.
    pub fn new(root: &Path, program: &Path, part: &str) -> anyhow::Result<Self> {
        sweep(program);
        let dir = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
        let logs = root.join("target/upstream/swap").join(part);
        std::fs::create_dir_all(&dir)?;
        let _ = std::fs::remove_dir_all(&logs);
        std::fs::create_dir_all(&logs)?;
        Ok(Self {
            root: root.to_owned(),
            program: program.to_owned(),
            dir,
            logs,
            processes: Vec::new(),
            etcd: None,
        })
    }

    /// The data dir of the node's planes.
    #[must_use]
    pub fn node(&self) -> PathBuf {
        self.dir.join("node")
    }

    /// The data dir of the control plane.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.dir.join("control")
    }

    /// The administrator's kubeconfig of [`Stage::server`].
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.control().join("kubeconfig")
    }

    /// The group of Pods of a peer that does not nest them below its own.
    #[must_use]
    pub fn cgroup(&self) -> String {
        format!("{PREFIX}{}", std::process::id())
    }

    /// Starts somebody's program, to be ended with the run.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn peer(&mut self, name: &str, command: &mut Command) -> anyhow::Result<()> {
        let log = self.logs.join(format!("{name}.log"));
        self.processes.push(Process::start(name, command, &log)?);
        Ok(())
    }

    /// Starts an etcd, to be ended after all processes; where it is.
    ///
    /// # Errors
    /// If it cannot be built, or does not answer.
    pub fn etcd(&mut self) -> anyhow::Result<String> {
        let etcd = Etcd::start(&self.root)?;
        let url = etcd.url.clone();
        self.etcd = Some(etcd);
        Ok(url)
    }

    /// Starts a plane of Trine.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn plane<W: AsRef<std::ffi::OsStr>>(&mut self, plane: &str, words: &[W]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command.arg(plane).args(words);
        self.peer(&format!("trine-{plane}"), &mut command)
    }

    /// Starts a plane of the node, in the node's data dir.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn node_plane(&mut self, plane: &str, words: &[&str]) -> anyhow::Result<()> {
        let node = self.node().display().to_string();
        let mut all = vec!["--data-dir", &node];
        all.extend(words);
        self.plane(plane, &all)
    }

    /// Starts Trine's control plane; its ranges.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn server(&mut self) -> anyhow::Result<Ranges> {
        let control = self.control().display().to_string();
        self.plane("server", &["--data-dir", &control])?;
        let record = self.control().join("run/daemon.json");
        self.until("the API server", || {
            std::fs::read_to_string(&record).is_ok_and(|text| text.contains("\"ready\":true"))
        })?;
        ranges(&self.control())
    }

    /// Starts Trine's runtime, and gives it the story's image.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn runtime(&mut self) -> anyhow::Result<()> {
        self.node_plane("cri", &[])?;
        self.until_there("run/cri.sock")?;
        let archive = story::image(&self.program, &self.dir)?;
        story::import(&self.program, &archive, &self.node())
    }

    /// Starts Trine's kubelet, which joins the cluster by a token.
    ///
    /// # Errors
    /// If there is no token, or it cannot be started.
    pub fn kubelet(&mut self, admin: &Path, words: &[&str]) -> anyhow::Result<()> {
        let (server, _) = authority::server_of(admin)?;
        let token = self.token(admin)?;
        let mut all = vec!["--server", &server, "--token", &token];
        all.extend(words);
        self.node_plane("kubelet", &all)
    }

    /// A token with which a node joins.
    ///
    /// # Errors
    /// If the API server makes none.
    pub fn token(&self, admin: &Path) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        let token = story::said(command.args(["token", "create", "--kubeconfig"]).arg(admin))?;
        Ok(token.trim().to_owned())
    }

    /// Starts Trine's CSI driver and, if wanted, the controllers that go with it.
    ///
    /// # Errors
    /// If the driver does not come up.
    pub fn storage(&mut self, kubeconfig: &Path, controllers: bool) -> anyhow::Result<()> {
        self.node_plane("csi-driver", &[])?;
        self.until_there("kubelet/plugins/disk.csi.trine.dev/csi.sock")?;
        let file = kubeconfig.display().to_string();
        if controllers {
            self.node_plane("csi-controllers", &["--create-objects", "--kubeconfig", &file])?;
        }
        Ok(())
    }

    /// Starts Trine's proxy.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn proxy(&mut self, kubeconfig: &Path, ranges: &Ranges) -> anyhow::Result<()> {
        let file = kubeconfig.display().to_string();
        let words =
            ["--kubeconfig", &file, "--cluster-cidr", &ranges.pods, "--service-cidr", &ranges.services];
        self.node_plane("proxy", &words)
    }

    /// Tells the story, while all processes live.
    ///
    /// # Errors
    /// If it fails, or a process has ended meanwhile.
    pub fn story(&mut self, kubeconfig: &Path) -> anyhow::Result<super::facts::Facts> {
        let told = story::tell(&self.program, kubeconfig);
        self.all_live()?;
        told
    }

    /// Waits for a file in the node's data dir.
    ///
    /// # Errors
    /// As [`Stage::until`].
    pub fn until_there(&mut self, file: &str) -> anyhow::Result<()> {
        let path = self.node().join(file);
        self.until(file, || path.exists())
    }

    /// Waits until something is so, while all processes live.
    ///
    /// # Errors
    /// If it is not in time, or a process ends.
    pub fn until(&mut self, what: &str, so: impl Fn() -> bool) -> anyhow::Result<()> {
        let since = Instant::now();
        while !so() {
            self.all_live()?;
            anyhow::ensure!(since.elapsed() < START_DEADLINE, "{what} is not there after {START_DEADLINE:?}");
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn all_live(&mut self) -> anyhow::Result<()> {
        self.processes.iter_mut().find_map(Process::gone).map_or(Ok(()), |why| Err(anyhow::anyhow!(why)))
    }

    /// Prints the last words of all processes.
    pub fn tell(&self) {
        for process in &self.processes {
            println!("-- {}\n{}", process.name, process.last(5));
        }
        println!("-- the logs are in {}", self.logs.display());
    }

    /// Ends everything, the youngest first. What was left by itself, which is then removed, too.
    #[must_use]
    pub fn tear_down(mut self) -> Vec<String> {
        while let Some(process) = self.processes.pop() {
            drop(process);
        }
        self.etcd = None;
        let mut left = Vec::new();
        for data_dir in [self.node(), self.control()] {
            left.extend(purge(&self.program, &data_dir));
        }
        left.extend(take_away(&self.dir));
        left
    }
}

/// The ranges of a data dir.
///
/// # Errors
/// If it has chosen none.
pub fn ranges(data_dir: &Path) -> anyhow::Result<Ranges> {
    let path = data_dir.join("identity.json");
    let identity: Value =
        serde_json::from_slice(&std::fs::read(&path).with_context(|| path.display().to_string())?)?;
    let text = |key: &str| identity[key].as_str().map(str::to_owned).context("no range is chosen");
    Ok(Ranges { pods: text("pod_cidr")?, services: text("service_cidr")? })
}

/// A free port of this machine.
///
/// # Errors
/// If there is none.
pub fn free_port() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string())
}

/// Takes away what runs that were killed have left.
fn sweep(program: &Path) {
    for entry in std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(PREFIX) else { continue };
        if !Path::new("/proc").join(pid).exists() {
            for data_dir in ["node", "control"] {
                purge(program, &entry.path().join(data_dir));
            }
            take_away(&entry.path());
        }
    }
}

/// Ends what runs in a data dir and removes it; what could not be.
fn purge(program: &Path, data_dir: &Path) -> Vec<String> {
    if !data_dir.exists() {
        return Vec::new();
    }
    match Command::new(program).args(["down", "--purge", "--data-dir"]).arg(data_dir).output() {
        Ok(output) if output.status.success() => Vec::new(),
        Ok(output) => String::from_utf8_lossy(&output.stderr).lines().map(str::to_owned).collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Removes a run's folder, and what of the peers is still on this machine because of it; what that was.
fn take_away(dir: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let groups = groups(dir);
    let inside =
        groups.iter().flat_map(|group| processes_in(group)).map(|pid| (pid, "of a container".to_owned()));
    for (pid, program) in processes(dir).into_iter().chain(inside.collect::<BTreeMap<_, _>>()) {
        left.push(format!("process {pid} {program}"));
        let _ = Command::new("kill").args(["-9", &pid]).status();
    }
    for mount in mounts(dir).iter().rev() {
        left.push(format!("mount {mount}"));
        let _ = Command::new("umount").args(["-l", mount]).status();
    }
    // What was killed leaves its group a moment later.
    let since = Instant::now();
    while groups.iter().any(|group| group.exists()) && since.elapsed() < GROUPS_DEADLINE {
        groups.iter().for_each(|group| remove_groups(group));
        std::thread::sleep(POLL);
    }
    left.extend(
        groups.iter().filter(|group| group.exists()).map(|group| format!("cgroup {}", group.display())),
    );
    if let Err(error) = std::fs::remove_dir_all(dir)
        && dir.exists()
    {
        left.push(format!("{}: {error}", dir.display()));
    }
    left
}

/// Processes that have a path in the folder among their words, and their programs.
fn processes(dir: &Path) -> Vec<(String, String)> {
    let own = std::process::id().to_string();
    let dir = dir.display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid != own && (words.contains(&format!("{dir}/")) || words.contains(&format!("{dir} "))) {
            found.push((pid, words.split(' ').next().unwrap_or_default().to_owned()));
        }
    }
    found
}

/// Mounts below a folder, in the order in which they were made.
fn mounts(dir: &Path) -> Vec<String> {
    let below = format!("{}/", dir.display());
    let all = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let targets = all.lines().filter_map(|line| line.split(' ').nth(4));
    targets.filter(|target| target.starts_with(&below)).map(str::to_owned).collect()
}

/// The groups that a peer was told to use, one in each hierarchy.
fn groups(dir: &Path) -> Vec<PathBuf> {
    let name = dir.file_name().unwrap_or_default();
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|e| e.path());
    let roots = hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]);
    roots.map(|root| root.join(name)).filter(|group| group.exists()).collect()
}

/// The processes in a group and below it: of containers that their runtime has left behind.
fn processes_in(group: &Path) -> Vec<String> {
    let own = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<String> = own.lines().map(str::to_owned).collect();
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(processes_in(&entry.path()));
        }
    }
    found
}

/// Removes a group that a peer was told to use, and those below it. A group that is in use stays.
fn remove_groups(group: &Path) {
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_groups(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(group);
}

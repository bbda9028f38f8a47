//! The stores that the cases run over.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trine_store::Store;
use trine_store::etcd::{EtcdStore, Settings};
use trine_store::redb::{Limits, RedbStore};

const VERSION: &str = "v3.7.3";

/// The embedded store in a folder of its own.
pub struct Embedded {
    pub store: Arc<dyn Store>,
    _dir: tempfile::TempDir,
}

impl Embedded {
    pub fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { expiry_step: Duration::from_secs(1), ..Limits::default() };
        let store = Arc::new(RedbStore::open(&dir.path().join("store.redb"), limits).unwrap());
        Self { store, _dir: dir }
    }
}

/// An etcd of the test's own.
pub struct Etcd {
    program: PathBuf,
    dir: tempfile::TempDir,
    client: String,
    peer: String,
    child: Child,
}

impl Etcd {
    /// Starts one; `None`, and a counted skip, where it cannot be built.
    pub fn start(test: &str) -> Option<Self> {
        Self::start_in(test, &std::env::temp_dir())
    }

    /// Starts one with its data in a folder of its own below `parent`.
    pub fn start_in(test: &str, parent: &Path) -> Option<Self> {
        let program = build(test)?;
        let url = || {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            format!("http://127.0.0.1:{port}")
        };
        let (dir, client, peer) = (tempfile::tempdir_in(parent).unwrap(), url(), url());
        let child = run(&program, dir.path(), &client, &peer);
        Some(Self { program, dir, client, peer, child })
    }

    /// A store of it, as a server of several would have.
    pub async fn store(&self) -> Arc<dyn Store> {
        self.under("/trine").await
    }

    pub async fn under(&self, prefix: &str) -> Arc<dyn Store> {
        for _ in 0..200 {
            let settings = Settings { prefix: prefix.to_owned(), ..Settings::new(&self.client) };
            if let Ok(store) = EtcdStore::connect(settings).await {
                return Arc::new(store);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("etcd does not answer at {}", self.client);
    }

    /// `kill -9`, and a new one on the same data.
    pub fn restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.child = run(&self.program, self.dir.path(), &self.client, &self.peer);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(program: &Path, dir: &Path, client: &str, peer: &str) -> Child {
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(dir.join("data")).args(["--name", "one", "--log-level", "error"]);
    command.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
    command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
    command.args(["--initial-cluster", &format!("one={peer}")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The current etcd, built once from its published Go module into `target/`.
fn build(test: &str) -> Option<PathBuf> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = root.join("../../target/etcd");
    let binary = target.join(format!("etcd-{VERSION}"));
    if binary.exists() {
        return Some(binary);
    }
    if !trine_kernel::testing::program(test, "go") {
        return None;
    }
    std::fs::create_dir_all(&target).unwrap();
    let fresh = target.join(format!("etcd-{}", std::process::id()));
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]).arg(&fresh).arg(".");
    assert!(
        go.current_dir(root.join("../../crates/store/tests/etcd-server")).status().unwrap().success(),
        "etcd does not build"
    );
    std::fs::rename(&fresh, &binary).unwrap();
    Some(binary)
}

//! A real registry on loopback, and an image that other tools made.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::wait::until;

/// Debian's `docker-registry`, stopped when dropped.
pub struct Registry {
    child: Child,
    /// `127.0.0.1:port`.
    pub address: String,
    dir: tempfile::TempDir,
}

impl Registry {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("registry-").tempdir().expect("a temporary folder");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address").to_string();
        drop(listener);
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n",
            dir.path().display()
        );
        let file = dir.path().join("config.yml");
        std::fs::write(&file, config).expect("its configuration");
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry starts");
        until("the registry answers", || std::net::TcpStream::connect(&address).map_err(|e| e.to_string()));
        Self { child, address, dir }
    }

    /// Makes an image of busybox with umoci; gives `oci:<layout>:tag` for skopeo.
    ///
    /// # Panics
    /// If a tool fails.
    #[must_use]
    pub fn foreign_image(&self) -> String {
        let layout = self.dir.path().join("layout").display().to_string();
        let image = format!("{layout}:one");
        tool("umoci", &["init", "--layout", &layout]);
        tool("umoci", &["new", "--image", &image]);
        tool("umoci", &["insert", "--image", &image, "/bin/busybox", "/bin/busybox"]);
        tool("umoci", &["config", "--image", &image, "--config.entrypoint", "/bin/busybox"]);
        format!("oci:{image}")
    }

    /// Pushes an image of [`Registry::foreign_image`] as `name`; gives its digest.
    ///
    /// # Panics
    /// If skopeo fails.
    #[must_use]
    pub fn push(&self, image: &str, name: &str) -> String {
        let to = format!("docker://{}/{name}", self.address);
        let digest = self.dir.path().join("digest");
        let file = digest.display().to_string();
        tool(
            "skopeo",
            &[
                "copy",
                "--insecure-policy",
                "--preserve-digests",
                "--dest-tls-verify=false",
                "--digestfile",
                &file,
                image,
                &to,
            ],
        );
        std::fs::read_to_string(digest).expect("a digest").trim().to_owned()
    }

    /// Writes a docker archive with skopeo.
    ///
    /// # Panics
    /// If skopeo fails.
    #[must_use]
    pub fn archive(&self, image: &str, name: &str) -> PathBuf {
        let path = self.dir.path().join("archive.tar");
        tool(
            "skopeo",
            &["copy", "--insecure-policy", image, &format!("docker-archive:{}:{name}", path.display())],
        );
        path
    }

    /// A folder that goes with the registry.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tool(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().expect("the tool starts");
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

//! Debian's `docker-registry` on this machine, with the images of several registries, and the settings by which Trine takes it
//! for them.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::archive::Archive;

/// The registries that it stands in for. Nobody is asked that is not on this machine.
const STANDS_IN_FOR: [&str; 9] = [
    "docker.io",
    "gcr.io",
    "ghcr.io",
    "invalid.registry.k8s.io",
    "k8s.gcr.io",
    "mcr.microsoft.com",
    "public.ecr.aws",
    "quay.io",
    "registry.k8s.io",
];
const START_DEADLINE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

/// A running registry; it stops when dropped, its images stay.
pub struct Registry {
    child: Child,
    /// `address:port`.
    pub address: String,
    /// What `--registry-config` takes.
    pub config_dir: PathBuf,
}

impl Registry {
    /// Starts it on a free port of the machine's own address.
    ///
    /// # Errors
    /// If `docker-registry` is not there or does not answer.
    pub fn start(root: &Path) -> anyhow::Result<Self> {
        let storage = root.join("target/upstream/registry");
        // Several may run, each with its own port and so with its own settings; they share the images.
        let config_dir = storage.join(format!("config-{}", std::process::id()));
        fs::create_dir_all(&config_dir)?;
        let address = TcpListener::bind((own_address(), 0))?.local_addr()?.to_string();
        let config = config_dir.join("registry.yml");
        fs::write(
            &config,
            format!(
                "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{address}'}}\n",
                storage.join("data").display()
            ),
        )?;
        for registry in STANDS_IN_FOR {
            let folder = config_dir.join(registry);
            fs::create_dir_all(&folder)?;
            let server = format!("server = \"http://{address}/v2/{registry}\"\noverride_path = true\n");
            fs::write(folder.join("hosts.toml"), server)?;
        }
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("the images are served by docker-registry, Debian's package of that name")?;
        let registry = Self { child, address, config_dir };
        let since = Instant::now();
        while TcpStream::connect(&registry.address).is_err() {
            anyhow::ensure!(since.elapsed() < START_DEADLINE, "docker-registry does not answer");
            std::thread::sleep(POLL);
        }
        Ok(registry)
    }

    /// Has it hold an image, unless it does.
    ///
    /// # Errors
    /// If skopeo cannot push it.
    pub fn hold(&self, archive: &Archive) -> anyhow::Result<()> {
        if self.digest_of(archive.reference).is_some_and(|held| held == archive.digest) {
            return Ok(());
        }
        let output = Command::new("skopeo")
            .args(["copy", "--insecure-policy", "--preserve-digests", "--dest-tls-verify=false"])
            .arg(format!("oci-archive:{}", archive.path.display()))
            .arg(format!("docker://{}/{}", self.address, archive.reference))
            .output()
            .context("images are pushed by skopeo, Debian's package of that name")?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{} cannot be pushed: {}", archive.reference, said.trim());
        Ok(())
    }

    /// The digest of the image that it has by that name, if it has one.
    fn digest_of(&self, reference: &str) -> Option<String> {
        let (name, tag) = reference.rsplit_once(':')?;
        let asked = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(&self.address)?;
            stream.set_read_timeout(Some(START_DEADLINE))?;
            write!(
                stream,
                "HEAD /v2/{name}/manifests/{tag} HTTP/1.0\r\nAccept: application/vnd.oci.image.manifest.v1+json, \
                 application/vnd.oci.image.index.v1+json\r\n\r\n"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        told_digest(&asked().ok()?)
    }

    /// Until it ends: Ctrl-C ends both.
    ///
    /// # Errors
    /// If it ends by itself.
    pub fn wait(mut self) -> anyhow::Result<()> {
        let status = self.child.wait()?;
        anyhow::bail!("docker-registry has ended with {status}")
    }
}

/// The digest in the head of a registry's answer, if it is one of success.
fn told_digest(answer: &str) -> Option<String> {
    if answer.split(' ').nth(1) != Some("200") {
        return None;
    }
    let headers = answer.lines().filter_map(|line| line.split_once(':'));
    let mut digests = headers.filter(|(name, _)| name.eq_ignore_ascii_case("docker-content-digest"));
    digests.next().map(|(_, digest)| digest.trim().to_owned())
}

/// The address that this machine has for others: nodes in namespaces of their own do not reach its loopback. No packet is sent to
/// find it; the loopback's if there is none.
pub fn own_address() -> IpAddr {
    let towards = |address| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    towards(Ipv4Addr::new(203, 0, 113, 1)).map_or(Ipv4Addr::LOCALHOST.into(), |own| own.ip())
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.config_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_its_digest_and_absent_where_the_answer_is_no() {
        let found = "HTTP/1.0 200 OK\r\nContent-Length: 498\r\nDocker-Content-Digest: sha256:32ff\r\n\r\n";
        assert_eq!(told_digest(found).as_deref(), Some("sha256:32ff"));
        let missing = "HTTP/1.0 404 Not Found\r\nDocker-Content-Digest: sha256:32ff\r\n\r\n";
        assert_eq!(told_digest(missing), None);
        assert_eq!(told_digest("HTTP/1.0 200 OK\r\n\r\n"), None);
    }
}

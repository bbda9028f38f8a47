//! What the tests make: layers with any entry whatever, archives around them, stores that leave nothing behind.

use std::path::{Path, PathBuf};

use serde_json::json;
use tar::{EntryType, Header};
use trine_images::{Image, ImageStore, Options, RootFs};

/// A layer's archive, entry by entry; names are taken as they are.
pub struct Layer(tar::Builder<Vec<u8>>);

/// How an entry looks beside its content.
#[derive(Clone, Copy)]
pub struct Look {
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
}

pub const PLAIN: Look = Look { mode: 0o644, uid: 0, gid: 0 };
pub const FOLDER: Look = Look { mode: 0o755, uid: 0, gid: 0 };

impl Layer {
    pub fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    pub fn entry(mut self, kind: EntryType, name: &str, link: &str, bytes: &[u8], look: Look) -> Self {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_link_name_literal(link).unwrap();
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(look.mode);
        header.set_uid(look.uid);
        header.set_gid(look.gid);
        header.set_mtime(1_600_000_000);
        if matches!(kind, EntryType::Char | EntryType::Block) {
            let (major, minor) = link.split_once(':').unwrap();
            header.set_link_name_literal("").unwrap();
            header.set_device_major(major.parse().unwrap()).unwrap();
            header.set_device_minor(minor.parse().unwrap()).unwrap();
        }
        header.set_cksum();
        self.0.append(&header, bytes).unwrap();
        self
    }

    pub fn dir(self, name: &str) -> Self {
        self.entry(EntryType::Directory, name, "", b"", FOLDER)
    }

    pub fn file(self, name: &str, text: &str) -> Self {
        self.entry(EntryType::Regular, name, "", text.as_bytes(), PLAIN)
    }

    pub fn link(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target, b"", PLAIN)
    }

    pub fn hard(self, name: &str, target: &str) -> Self {
        self.entry(EntryType::Link, name, target, b"", PLAIN)
    }

    /// Pax records for the next entry.
    pub fn pax(mut self, key: &str, value: &[u8]) -> Self {
        self.0.append_pax_extensions([(key, value)]).unwrap();
        self
    }

    pub fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(ring::digest::digest(&ring::digest::SHA256, bytes)))
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

/// A configuration for layers with these contents.
pub fn config(layers: &[Vec<u8>]) -> Vec<u8> {
    let diff_ids: Vec<String> = layers.iter().map(|layer| sha256(layer)).collect();
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "config": {"Env": ["A=b"], "Entrypoint": ["/app"], "Cmd": ["run"], "User": "1000", "WorkingDir": "/w"},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    config.to_string().into_bytes()
}

/// What `docker save` writes for one image.
pub fn docker_archive(tag: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    docker_archive_of(tag, &config(layers), layers)
}

pub fn docker_archive_of(tag: &str, config: &[u8], layers: &[Vec<u8>]) -> Vec<u8> {
    let name = format!("{}.json", sha256(config).trim_start_matches("sha256:"));
    let members: Vec<String> = (0..layers.len()).map(|n| format!("layer{n}/layer.tar")).collect();
    let manifest = json!([{"Config": name, "RepoTags": [tag], "Layers": members}]).to_string();
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes).unwrap();
    };
    for (member, layer) in members.iter().zip(layers) {
        add(member, layer);
    }
    add(&name, config);
    add("manifest.json", manifest.as_bytes());
    archive.into_inner().unwrap()
}

/// A store in a folder of its own. Its roots are unmounted and its files removed when it goes, failed or not.
pub struct Shop {
    pub dir: tempfile::TempDir,
    pub store: ImageStore,
}

impl Shop {
    pub fn new() -> Self {
        Self::with(|_| Options::default())
    }

    pub fn with(options: impl FnOnce(&Path) -> Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path().join("images"), options(dir.path())).unwrap();
        Self { dir, store }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file beside the store.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    pub fn import(&self, tag: &str, layers: &[Vec<u8>]) -> Image {
        let path = self.write("archive.tar", &docker_archive(tag, layers));
        self.store.import(path).unwrap().remove(0)
    }

    /// Why such layers are refused, all causes in one line.
    pub fn refusal(&self, layers: &[Vec<u8>]) -> String {
        let path = self.write("archive.tar", &docker_archive("t:1", layers));
        causes(&self.store.import(path).unwrap_err())
    }

    pub fn root(&self, container: &str, image: &Image) -> RootFs {
        self.store.prepare(container, image).unwrap()
    }

    /// The merged root of one image with these layers.
    pub fn merged(&self, layers: &[Vec<u8>]) -> PathBuf {
        let image = self.import("t:1", layers);
        self.root("c", &image).path
    }

    /// Asserts that the store holds no image, no layer and nothing half made.
    pub fn assert_empty(&self) {
        assert_eq!(self.store.list().unwrap(), []);
        assert_eq!(names(&self.path("images/layers")), [""; 0]);
        assert_eq!(names(&self.path("images/blobs/sha256")), [""; 0]);
        let sessions = names(&self.path("images/sessions"));
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        assert_eq!(names(&self.path("images/sessions").join(&sessions[0])), ["intents", "lock"]);
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        for container in self.store.snapshots().unwrap_or_default() {
            if let Err(e) = self.store.remove_snapshot(&container) {
                eprintln!("{}", causes(&e));
            }
        }
    }
}

pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

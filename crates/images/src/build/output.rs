//! A made image as an OCI archive: a tar of an image layout, for any tool and any registry. It needs neither a store nor
//! root.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::layer;
use super::spec::BuildSpec;
use crate::content::{Digest, Hasher};
use crate::error::ImageError;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Layers are not compressed: the digests then depend on the files alone, and not on a compressor's version.
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A written archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// `sha256:…` of the configuration, by which an image is known on a node.
    pub id: String,
    /// `sha256:…` of the manifest, by which it is known in a registry.
    pub digest: String,
}

impl BuildSpec {
    /// Writes the image as an OCI archive; an older file there is replaced once the new one is complete. It blocks.
    ///
    /// # Errors
    /// [`ImageError::Reference`], [`ImageError::Io`] naming the file, [`ImageError::Content`].
    pub fn write_archive(&self, archive: &Path) -> Result<Built, ImageError> {
        let tag = self.tag()?;
        let entries = layer::entries(self)?;
        let (layer_file, new) = (beside(archive, "layer"), beside(archive, "new"));
        let result = (|| {
            let mut blob = Blob::create(&layer_file)?;
            layer::write(&entries, &mut blob)?;
            let (mut file, diff_id, size) = blob.finish();
            let config = self.config_file(diff_id.as_str())?;
            file.seek(SeekFrom::Start(0)).map_err(ImageError::io("read", &layer_file))?;
            let layer = Member { digest: diff_id, size, content: Box::new(file) };
            let built = write(&new, &tag, layer, config).map_err(ImageError::io("write", &new))?;
            std::fs::rename(&new, archive).map_err(ImageError::io("write", archive))?;
            Ok(built)
        })();
        let _ = std::fs::remove_file(&layer_file);
        if result.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        result
    }
}

/// A file beside `archive`, on the same disk.
fn beside(archive: &Path, what: &str) -> PathBuf {
    let mut name = archive.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{what}"));
    archive.with_file_name(name)
}

/// A file that is hashed as it is written.
struct Blob {
    file: File,
    hasher: Hasher,
}

impl Blob {
    fn create(path: &Path) -> Result<Self, ImageError> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(path);
        Ok(Self { file: file.map_err(ImageError::io("create", path))?, hasher: Hasher::default() })
    }

    fn finish(self) -> (File, Digest, u64) {
        let size = self.hasher.bytes();
        (self.file, self.hasher.finish(), size)
    }
}

impl Write for Blob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.hasher.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A blob on its way into the archive.
struct Member {
    digest: Digest,
    size: u64,
    content: Box<dyn io::Read>,
}

impl Member {
    fn of(bytes: Vec<u8>) -> Self {
        Self {
            digest: Digest::of(&bytes),
            size: bytes.len() as u64,
            content: Box::new(io::Cursor::new(bytes)),
        }
    }

    fn descriptor(&self, kind: &str) -> serde_json::Value {
        json!({"mediaType": kind, "digest": self.digest.as_str(), "size": self.size})
    }
}

fn write(path: &Path, tag: &str, layer: Member, config: Vec<u8>) -> io::Result<Built> {
    let config = Member::of(config);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": config.descriptor(CONFIG), "layers": [layer.descriptor(LAYER)],
    });
    let manifest = Member::of(serde_json::to_vec(&manifest)?);
    let mut entry = manifest.descriptor(MANIFEST);
    entry["annotations"] = json!({"io.containerd.image.name": tag, "org.opencontainers.image.ref.name": tag});
    let index = json!({"schemaVersion": 2, "manifests": [entry]});
    let built = Built { id: config.digest.to_string(), digest: manifest.digest.to_string() };
    let mut archive = tar::Builder::new(io::BufWriter::new(File::create(path)?));
    for member in [config, layer, manifest] {
        let name = format!("blobs/sha256/{}", member.digest.hex());
        append(&mut archive, &name, member)?;
    }
    append(&mut archive, "index.json", Member::of(serde_json::to_vec(&index)?))?;
    append(&mut archive, "oci-layout", Member::of(br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()))?;
    archive.into_inner()?.flush()?;
    Ok(built)
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, member: Member) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(member.size);
    header.set_mode(0o644);
    header.set_mtime(1);
    archive.append_data(&mut header, name, member.content)
}

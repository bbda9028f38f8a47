//! One layer from named files, and the configuration around it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::ImageError;
use crate::image::{self, ConfigFile, ConfigSection, Image, RootFsSection};
use crate::name::ImageName;
use crate::step;
use crate::store::{ImageStore, Inner, NewImage};
use crate::unpack::{Expect, NewLayer};

/// What to make an image from. All its files belong to root and have one fixed time, so that the same files make the
/// same image.
#[derive(Debug, Clone, Default)]
pub struct BuildSpec {
    /// The image's name.
    pub reference: String,
    /// Files of this machine and where they go; links are followed.
    pub files: Vec<(PathBuf, String)>,
    /// Folders with their modes; those above a file are made with 0755 anyway.
    pub dirs: Vec<(String, u32)>,
    /// Small files by content: path, content, mode.
    pub texts: Vec<(String, String, u32)>,
    /// What is always run.
    pub entrypoint: Vec<String>,
    /// Its default arguments.
    pub cmd: Vec<String>,
    /// `KEY=value` lines.
    pub env: Vec<String>,
    /// Empty for root.
    pub user: String,
    /// Empty for `/`.
    pub working_dir: String,
    /// Empty for TERM.
    pub stop_signal: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

impl ImageStore {
    /// Makes an image of one layer. It blocks.
    ///
    /// # Errors
    /// [`ImageError::Reference`], [`ImageError::Io`] naming the file, [`ImageError::Layer`].
    pub fn build(&self, spec: &BuildSpec) -> Result<Image, ImageError> {
        let span = tracing::info_span!(
            target: "trine::step", "build", plane = "image", detail = spec.reference.as_str(),
            error = tracing::field::Empty
        );
        let _entered = span.enter();
        step::outcome(&span, self.inner.build(spec))
    }
}

impl Inner {
    fn build(&self, spec: &BuildSpec) -> Result<Image, ImageError> {
        let name = ImageName::parse(&spec.reference)?;
        let tag = name.tagged().ok_or_else(|| ImageError::Reference {
            reference: spec.reference.clone(),
            why: "a new image is named by a tag, not by a digest".into(),
        })?;
        let (reader, writer) =
            io::pipe().map_err(ImageError::io("make a pipe for", Path::new(&spec.reference)))?;
        let (written, unpacked) = std::thread::scope(|scope| {
            let writer = scope.spawn(move || write_layer(spec, writer));
            let purpose = format!("layer of {tag}");
            let unpacked = NewLayer::unpack(&self.session, &purpose, reader, &Expect::default());
            (writer.join(), unpacked)
        });
        // A file that cannot be read is the cause, not the archive that ends early because of it.
        match written {
            Ok(Err(e @ ImageError::Io { .. })) if !is_broken_pipe(&e) => return Err(e),
            Err(_) => {
                let why = "the writer of its layer panicked".to_owned();
                return Err(ImageError::Content { image: tag, why });
            }
            _ => {}
        }
        let layer = unpacked?.map_err(|source| ImageError::Layer {
            image: tag.clone(),
            layer: "built".into(),
            source,
        })?;
        let diff_id = layer.unpacked.diff_id.clone();
        let config_file = config_file(spec, diff_id.as_str())
            .map_err(ImageError::io("describe", Path::new(&spec.reference)))?;
        let content = |why| ImageError::Content { image: tag.clone(), why };
        let parsed = image::parse(&config_file).map_err(content)?;
        let new = NewImage {
            config_file,
            parsed,
            tags: BTreeSet::from([tag.clone()]),
            digests: BTreeSet::new(),
            manifests: vec![],
            new_layers: vec![(diff_id, layer)],
        };
        self.commit(&tag, new)
    }
}

fn is_broken_pipe(e: &ImageError) -> bool {
    matches!(e, ImageError::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
}

fn config_file(spec: &BuildSpec, diff_id: &str) -> io::Result<Vec<u8>> {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let list = |lines: &Vec<String>| (!lines.is_empty()).then(|| lines.clone());
    let file = ConfigFile {
        architecture: image::architecture().to_owned(),
        os: "linux".into(),
        config: Some(ConfigSection {
            user: some(&spec.user),
            env: list(&spec.env),
            entrypoint: list(&spec.entrypoint),
            cmd: list(&spec.cmd),
            working_dir: some(&spec.working_dir),
            stop_signal: some(&spec.stop_signal),
            labels: (!spec.labels.is_empty()).then(|| spec.labels.clone()),
            exposed_ports: None,
            volumes: None,
        }),
        rootfs: RootFsSection { kind: "layers".into(), diff_ids: vec![diff_id.to_owned()] },
    };
    Ok(serde_json::to_vec(&file)?)
}

/// Writes the layer's archive: folders first, then files.
fn write_layer(spec: &BuildSpec, to: impl Write) -> Result<(), ImageError> {
    let mut archive = tar::Builder::new(io::BufWriter::with_capacity(256 << 10, to));
    let mut folders: BTreeMap<PathBuf, u32> = BTreeMap::new();
    let targets = spec.files.iter().map(|(_, to)| to).chain(spec.texts.iter().map(|(to, ..)| to));
    for path in targets.chain(spec.dirs.iter().map(|(to, _)| to)) {
        for above in relative(path).ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()) {
            folders.entry(above.to_owned()).or_insert(0o755);
        }
    }
    folders.extend(spec.dirs.iter().map(|(path, mode)| (relative(path), *mode)));
    let out = Path::new("a layer");
    for (path, mode) in &folders {
        let mut header = header(tar::EntryType::Directory, 0, *mode);
        archive.append_data(&mut header, path, io::empty()).map_err(ImageError::io("write", out))?;
    }
    for (path, text, mode) in &spec.texts {
        let mut header = header(tar::EntryType::Regular, text.len() as u64, *mode);
        archive
            .append_data(&mut header, relative(path), text.as_bytes())
            .map_err(ImageError::io("write", out))?;
    }
    for (from, to) in &spec.files {
        let file = File::open(from).map_err(ImageError::io("open", from))?;
        let stat = file.metadata().map_err(ImageError::io("look at", from))?;
        if !stat.is_file() {
            return Err(ImageError::io("copy", from)(io::Error::other("it is not a regular file")));
        }
        let mut header = header(tar::EntryType::Regular, stat.len(), stat.permissions().mode() & 0o7777);
        archive.append_data(&mut header, relative(to), file).map_err(ImageError::io("copy", from))?;
    }
    let mut rest = archive.into_inner().map_err(ImageError::io("write", out))?;
    rest.flush().map_err(ImageError::io("write", out))
}

fn relative(path: &str) -> PathBuf {
    PathBuf::from(path.trim_start_matches('/'))
}

fn header(kind: tar::EntryType, size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header
}

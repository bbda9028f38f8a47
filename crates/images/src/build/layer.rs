//! The entries of a layer, sorted by path, and the archive that they become.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::spec::BuildSpec;
use super::tree;
use crate::error::ImageError;

/// The time of all entries, seconds since 1970; not 0, which some tools take for no time at all.
const TIME: u64 = 1;

/// What an entry is beside its owner and mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    /// A file with the content of one on this machine.
    File(PathBuf),
    /// A file with this content.
    Text(String),
    /// A symbolic link to there.
    Link(PathBuf),
    /// Another name of an entry.
    Same(PathBuf),
}

/// One path of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl Entry {
    /// One that belongs to root.
    pub fn new(kind: Kind, mode: u32) -> Self {
        Self { kind, mode, uid: 0, gid: 0 }
    }
}

/// All paths of an image, relative to its root. A folder sorts before what is in it.
pub(super) type Entries = BTreeMap<PathBuf, Entry>;

/// The entries of the image that `spec` describes.
pub(super) fn entries(spec: &BuildSpec) -> Result<Entries, ImageError> {
    let mut entries = match &spec.tree {
        Some(tree) => tree::entries(tree)?,
        None => Entries::new(),
    };
    for (path, mode) in &spec.dirs {
        entries.insert(relative(path), Entry::new(Kind::Folder, *mode));
    }
    for (path, text, mode) in &spec.texts {
        entries.insert(relative(path), Entry::new(Kind::Text(text.clone()), *mode));
    }
    for (from, to) in &spec.files {
        let stat = from.metadata().map_err(ImageError::io("open", from))?;
        if !stat.is_file() {
            return Err(ImageError::io("copy", from)(io::Error::other("it is not a regular file")));
        }
        let entry = Entry::new(Kind::File(from.clone()), stat.permissions().mode() & 0o7777);
        entries.insert(relative(to), entry);
    }
    for path in entries.keys().cloned().collect::<Vec<_>>() {
        for above in path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()) {
            entries.entry(above.to_owned()).or_insert_with(|| Entry::new(Kind::Folder, 0o755));
        }
    }
    for (path, look) in &spec.looks {
        let Some(entry) = entries.get_mut(&relative(path)) else {
            let why = format!("owner or mode of {path} is set, but there is no such path in it");
            return Err(ImageError::Content { image: spec.reference.clone(), why });
        };
        entry.uid = look.uid.unwrap_or(entry.uid);
        entry.gid = look.gid.unwrap_or(entry.gid);
        entry.mode = look.mode.unwrap_or(entry.mode);
    }
    Ok(entries)
}

fn relative(path: &str) -> PathBuf {
    PathBuf::from(path.trim_start_matches('/'))
}

/// Writes the layer's archive.
pub(super) fn write(entries: &Entries, to: impl Write) -> Result<(), ImageError> {
    let out = Path::new("a layer");
    let mut archive = tar::Builder::new(io::BufWriter::with_capacity(256 << 10, to));
    for (path, entry) in entries {
        append(&mut archive, path, entry)?;
    }
    let mut rest = archive.into_inner().map_err(ImageError::io("write", out))?;
    rest.flush().map_err(ImageError::io("write", out))
}

fn append(archive: &mut tar::Builder<impl Write>, path: &Path, entry: &Entry) -> Result<(), ImageError> {
    let done = match &entry.kind {
        Kind::Folder => {
            let mut header = header(tar::EntryType::Directory, 0, entry);
            archive.append_data(&mut header, path, io::empty())
        }
        Kind::File(from) => {
            let file = File::open(from).map_err(ImageError::io("open", from))?;
            let size = file.metadata().map_err(ImageError::io("look at", from))?.len();
            let mut header = header(tar::EntryType::Regular, size, entry);
            return archive.append_data(&mut header, path, file).map_err(ImageError::io("copy", from));
        }
        Kind::Text(text) => {
            let mut header = header(tar::EntryType::Regular, text.len() as u64, entry);
            archive.append_data(&mut header, path, text.as_bytes())
        }
        Kind::Link(target) => {
            let mut header = header(tar::EntryType::Symlink, 0, entry);
            archive.append_link(&mut header, path, target)
        }
        Kind::Same(first) => {
            let mut header = header(tar::EntryType::Link, 0, entry);
            archive.append_link(&mut header, path, first)
        }
    };
    done.map_err(ImageError::io("write", path))
}

fn header(kind: tar::EntryType, size: u64, entry: &Entry) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(entry.mode);
    header.set_uid(entry.uid.into());
    header.set_gid(entry.gid.into());
    header.set_mtime(TIME);
    header
}

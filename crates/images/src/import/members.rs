//! The files of an archive or a folder by name, without unpacking it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::archive::ArchiveError;
use super::layout::clean;
use crate::content::{Session, Staged};
use crate::error::ImageError;
use crate::unpack::decoder;

/// The longest description that is read.
const DESCRIPTION: u64 = 16 << 20;
/// How many links a name may go through.
const LINKS: usize = 8;

/// The files of one archive or folder.
pub(crate) enum Members {
    /// A folder; names are resolved with it as `/`.
    Folder(OwnedFd),
    /// A tar archive and where its files are in it.
    Tar {
        file: Arc<File>,
        members: BTreeMap<String, Member>,
        /// Holds the archive without its compression.
        _plain: Option<Staged>,
    },
}

/// One file of a tar archive.
#[derive(Debug, Clone)]
pub(crate) enum Member {
    File { offset: u64, size: u64 },
    Link(String),
}

fn io_error(call: &'static str) -> impl FnOnce(io::Error) -> ArchiveError {
    move |source| ArchiveError::Io { call, source }
}

impl Members {
    /// Opens `path`. A compressed archive is unpacked into the session first.
    pub fn open(path: &Path, session: &Arc<Session>) -> Result<Self, ImageError> {
        let import = |source| ImageError::Import { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io_error("open it")).map_err(import)?;
        if file.metadata().map_err(io_error("look at it")).map_err(import)?.is_dir() {
            return Ok(Self::Folder(file.into()));
        }
        let mut start = [0; 2];
        let n = file.read_at(&mut start, 0).map_err(io_error("read it")).map_err(import)?;
        let mut plain = None;
        if n == 2 && matches!(start, [0x1f, 0x8b] | [0x28, 0xb5] | [b'B', b'Z'] | [0xfd, b'7']) {
            let staged = session.stage(&format!("the archive {}", path.display()))?;
            file = decompress(file, &staged).map_err(import)?;
            plain = Some(staged);
        }
        let members = scan(&mut file).map_err(import)?;
        Ok(Self::Tar { file: Arc::new(file), members, _plain: plain })
    }

    /// The whole of a description, if it is there.
    pub fn description(&self, name: &str) -> Result<Option<Vec<u8>>, ArchiveError> {
        let Some(reader) = self.reader(name)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let broken = |source| ArchiveError::Broken { member: name.to_owned(), source };
        reader.take(DESCRIPTION + 1).read_to_end(&mut bytes).map_err(broken)?;
        if bytes.len() as u64 > DESCRIPTION {
            return Err(ArchiveError::content(name, "it is larger than 16 MiB"));
        }
        Ok(Some(bytes))
    }

    /// The whole of a description that has to be there.
    pub fn required(&self, name: &str) -> Result<Vec<u8>, ArchiveError> {
        self.description(name)?.ok_or_else(|| ArchiveError::Missing { member: name.to_owned() })
    }

    /// Reads a file, if it is there.
    pub fn reader(&self, name: &str) -> Result<Option<Box<dyn Read>>, ArchiveError> {
        match self {
            Self::Folder(dir) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
                match openat2(dir, name, flags, Mode::empty(), resolve) {
                    Ok(fd) => Ok(Some(Box::new(File::from(fd)))),
                    Err(rustix::io::Errno::NOENT) => Ok(None),
                    Err(e) => Err(io_error("open a file of it")(e.into())),
                }
            }
            Self::Tar { file, members, .. } => Ok(find(members, name).map(|(offset, size)| {
                Box::new(Section { file: Arc::clone(file), at: offset, end: offset + size }) as Box<dyn Read>
            })),
        }
    }
}

/// A part of a file, read without moving the file's own position.
struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let n = self.file.read_at(&mut buffer[..left], self.at)?;
        if n == 0 && left > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += n as u64;
        Ok(n)
    }
}

fn find(members: &BTreeMap<String, Member>, name: &str) -> Option<(u64, u64)> {
    let mut name = clean("", name)?;
    for _ in 0..LINKS {
        match members.get(&name)? {
            Member::File { offset, size } => return Some((*offset, *size)),
            Member::Link(target) => name = target.clone(),
        }
    }
    None
}

fn decompress(file: File, staged: &Staged) -> Result<File, ArchiveError> {
    let mut decoder =
        decoder(file).map_err(|source| ArchiveError::Broken { member: String::new(), source })?;
    let path = staged.path().join("archive.tar");
    let mut plain =
        File::options().create_new(true).read(true).write(true).open(path).map_err(io_error("unpack it"))?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = decoder
            .read(&mut buffer)
            .map_err(|source| ArchiveError::Broken { member: String::new(), source })?;
        if n == 0 {
            break;
        }
        io::Write::write_all(&mut plain, &buffer[..n]).map_err(io_error("unpack it"))?;
    }
    plain.seek(SeekFrom::Start(0)).map_err(io_error("unpack it"))?;
    Ok(plain)
}

/// Finds the files of a tar archive without reading them.
fn scan(file: &mut File) -> Result<BTreeMap<String, Member>, ArchiveError> {
    let length = file.metadata().map_err(io_error("look at it"))?.len();
    let mut last = String::new();
    let mut members = BTreeMap::new();
    let mut archive = tar::Archive::new(file);
    let broken = |member: &str| {
        let member = member.to_owned();
        move |source| ArchiveError::Broken { member, source }
    };
    for entry in archive.entries_with_seek().map_err(broken(""))? {
        let entry = entry.map_err(broken(&last))?;
        let raw = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        last.clone_from(&raw);
        let (offset, size) = (entry.raw_file_position(), entry.size());
        let end = offset.checked_add(size);
        if end.is_none_or(|end| end > length) {
            let why = format!("{} of {size} bytes", length.saturating_sub(offset));
            return Err(broken(&raw)(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
        }
        let Some(name) = clean("", &raw) else { continue };
        let kind = entry.header().entry_type();
        if kind.is_file() {
            members.insert(name, Member::File { offset, size });
        } else if kind.is_symlink() || kind.is_hard_link() {
            let target = entry.link_name_bytes().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let folder =
                if kind.is_symlink() { name.rsplit_once('/').map_or("", |(folder, _)| folder) } else { "" };
            if let Some(target) = target.and_then(|target| clean(folder, &target)) {
                members.insert(name, Member::Link(target));
            }
        }
    }
    Ok(members)
}

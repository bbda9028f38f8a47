//! Reads a layer's archive once, from start to end, and makes what it says.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, linkat, makedev, mkdirat, mknodat, openat, symlinkat};
use tar::{Entry, EntryType};

use super::LayerError;
use super::attributes::Attributes;
use super::decode::decoder;
use super::plan::{self, PathFault, Place, Spot};
use super::root::{Before, Root, RootError, io_error, set_opaque, stat_of};
use crate::content::{Digest, HashingReader};

/// Bytes that are copied at once.
const CHUNK: usize = 256 << 10;
/// What an archive is made of.
const BLOCK: u64 = 512;
/// Zeros of this length become a hole.
const HOLE: usize = 4096;

/// What a layer has to be; nothing means that it is only measured.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expect {
    /// As transferred.
    pub blob: Option<Digest>,
    /// Unpacked.
    pub diff_id: Option<Digest>,
}

/// What was unpacked.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub diff_id: Digest,
    /// Bytes of its files.
    pub bytes: u64,
    /// Files of every kind.
    pub inodes: u64,
    /// Folders that the archive only implies; their attributes are those of the layers below.
    pub implied: Vec<PathBuf>,
}

/// Unpacks the archive `blob`, compressed or not, into the empty folder `dir`.
pub(crate) fn unpack(dir: &Path, blob: impl Read + 'static, expect: &Expect) -> Result<Unpacked, LayerError> {
    let root = Root::open(dir).map_err(|source| LayerError::Io {
        entry: String::new(),
        call: "open the layer",
        source,
    })?;
    let (blob, blob_tap) = HashingReader::new(blob);
    let broken = |after: &str| {
        let after = after.to_owned();
        move |source| LayerError::Archive { after, source }
    };
    let (plain, plain_tap) = HashingReader::new(decoder(blob).map_err(broken(""))?);
    let mut archive = tar::Archive::new(WholeBlocks { inner: plain, bytes: 0, ended: false });
    let mut work =
        Work { root, times: BTreeMap::new(), rooted: false, bytes: 0, inodes: 0, buffer: vec![0; CHUNK] };
    let mut last = String::new();
    for entry in archive.entries().map_err(broken(&last))? {
        let mut entry = entry.map_err(broken(&last))?;
        last = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        work.entry(&mut entry).map_err(|e| e.of(&last))?;
    }
    // What follows the archive's end belongs to the digests as well.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(broken(&last))?;
    LayerError::digest("digest", expect.blob.as_ref(), &blob_tap.take().0)?;
    let diff_id = plain_tap.take().0;
    LayerError::digest("diff id", expect.diff_id.as_ref(), &diff_id)?;
    work.finish(diff_id)
}

/// Why an entry failed: it cannot be read, or not be made.
enum EntryError {
    Read(io::Error),
    Make(RootError),
}

impl EntryError {
    fn of(self, entry: &str) -> LayerError {
        let name = entry.to_owned();
        match self {
            Self::Read(source) => LayerError::Archive { after: name, source },
            Self::Make(RootError::Path(fault)) => LayerError::Entry { entry: name, fault },
            Self::Make(RootError::Io(call, source)) => LayerError::Io { entry: name, call, source },
        }
    }
}

impl<E: Into<RootError>> From<E> for EntryError {
    fn from(e: E) -> Self {
        Self::Make(e.into())
    }
}

struct Work {
    root: Root,
    /// Times of folders, set at the end since every file made in a folder changes them.
    times: BTreeMap<PathBuf, Attributes>,
    /// True once the archive said how the root looks.
    rooted: bool,
    bytes: u64,
    inodes: u64,
    buffer: Vec<u8>,
}

impl Work {
    fn entry<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<(), EntryError> {
        if matches!(entry.header().entry_type(), EntryType::XGlobalHeader) {
            return Ok(());
        }
        match plan::place(&entry.path_bytes())? {
            Place::Ignore => Ok(()),
            Place::Root => self.root_itself(entry),
            Place::Opaque(path) => Ok(self.root.hide_below(&path)?),
            Place::Whiteout(spot) => Ok(self.root.hide(&spot)?),
            Place::Entry(spot) => {
                self.inodes += 1;
                self.file(entry, &spot)
            }
        }
    }

    fn root_itself<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<(), EntryError> {
        if !entry.header().entry_type().is_dir() {
            return Err(PathFault::Root.into());
        }
        let attributes = Attributes::read(entry).map_err(EntryError::Read)?;
        attributes.set(self.root.fd())?;
        self.times.insert(PathBuf::new(), attributes);
        self.rooted = true;
        Ok(())
    }

    fn file<R: Read>(&mut self, entry: &mut Entry<'_, R>, spot: &Spot) -> Result<(), EntryError> {
        let attributes = Attributes::read(entry).map_err(EntryError::Read)?;
        let parent = self.root.folder(&spot.parent)?;
        let kind = entry.header().entry_type();
        if kind.is_dir() || (kind.as_byte() == 0 && entry.path_bytes().ends_with(b"/")) {
            return Ok(self.folder(&parent, spot, attributes)?);
        }
        if matches!(kind, EntryType::Link) {
            return Ok(self.hard_link(entry, &parent, spot)?);
        }
        // A folder's entry that was replaced by something else must not be touched at the end.
        let gone = spot.path();
        self.times.retain(|path, _| !path.starts_with(&gone));
        self.root.clear(&parent, spot, false)?;
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.regular(entry, &parent, spot, &attributes)
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().ok_or(PathFault::LinkEmpty)?;
                symlinkat(&*target, &*parent, &spot.name).map_err(io_error("make a link"))?;
                Ok(attributes.set_at(&parent, &spot.name, true)?)
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                self.special(entry, &parent, spot)?;
                Ok(attributes.set_at(&parent, &spot.name, false)?)
            }
            other => Err(PathFault::Kind(char::from(other.as_byte())).into()),
        }
    }

    fn folder(&mut self, parent: &Rc<OwnedFd>, spot: &Spot, attributes: Attributes) -> Result<(), RootError> {
        let before = self.root.clear(parent, spot, true)?;
        if before != Before::Folder {
            mkdirat(&**parent, &spot.name, Mode::from_raw_mode(0o700)).map_err(io_error("make a folder"))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&**parent, &spot.name, flags, Mode::empty()).map_err(io_error("open a folder"))?;
        if before == Before::Whiteout {
            set_opaque(&fd)?;
        }
        attributes.set(&fd)?;
        let path = spot.path();
        self.root.implied.retain(|implied| *implied != path);
        self.times.insert(path, attributes);
        Ok(())
    }

    fn hard_link<R: Read>(
        &mut self,
        entry: &Entry<'_, R>,
        parent: &OwnedFd,
        spot: &Spot,
    ) -> Result<(), RootError> {
        let raw = entry.link_name_bytes().ok_or(PathFault::LinkEmpty)?;
        let target = plan::link_target(&raw)?;
        let absent = || PathFault::LinkAbsent(String::from_utf8_lossy(&raw).into_owned());
        let folder = self.root.existing(&target.parent)?.ok_or_else(absent)?;
        let there = stat_of(&folder, &target.name)?.ok_or_else(absent)?;
        if let Some(here) = stat_of(parent, &spot.name)?
            && (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
        {
            return Ok(());
        }
        self.root.clear(parent, spot, false)?;
        linkat(&*folder, &target.name, parent, &spot.name, AtFlags::empty())
            .map_err(io_error("make a hard link"))
    }

    fn special<R: Read>(
        &self,
        entry: &Entry<'_, R>,
        parent: &OwnedFd,
        spot: &Spot,
    ) -> Result<(), EntryError> {
        let header = entry.header();
        let number = || -> io::Result<(u32, u32)> {
            Ok((header.device_major()?.unwrap_or(0), header.device_minor()?.unwrap_or(0)))
        };
        let (kind, device) = match header.entry_type() {
            EntryType::Fifo => (FileType::Fifo, 0),
            kind => {
                let (major, minor) = number().map_err(EntryError::Read)?;
                match kind {
                    EntryType::Block => (FileType::BlockDevice, makedev(major, minor)),
                    _ if (major, minor) == (0, 0) => return Err(PathFault::WhiteoutDevice.into()),
                    _ => (FileType::CharacterDevice, makedev(major, minor)),
                }
            }
        };
        mknodat(parent, &spot.name, kind, Mode::from_raw_mode(0o600), device)
            .map_err(io_error("make a device"))?;
        Ok(())
    }

    fn regular<R: Read>(
        &mut self,
        entry: &mut Entry<'_, R>,
        parent: &OwnedFd,
        spot: &Spot,
        attributes: &Attributes,
    ) -> Result<(), EntryError> {
        if has_pax_sparse(entry).map_err(EntryError::Read)? {
            return Err(PathFault::Sparse.into());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            openat(parent, &spot.name, flags, Mode::from_raw_mode(0o600)).map_err(io_error("make a file"))?;
        let mut file = File::from(fd);
        let size = entry.size();
        let copied = self.copy(entry, &mut file)?;
        if copied != size {
            let why = format!("{copied} of {size} bytes");
            return Err(EntryError::Read(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
        }
        self.bytes += size;
        let fd = OwnedFd::from(file);
        attributes.set(&fd)?;
        Ok(attributes.set_times(&fd)?)
    }

    /// Copies all of `entry`, leaving holes where it is zero.
    fn copy(&mut self, entry: &mut impl Read, file: &mut File) -> Result<u64, EntryError> {
        let write = |e| EntryError::Make(RootError::Io("write a file", e));
        let mut copied = 0u64;
        let mut hole = false;
        loop {
            let n = fill(entry, &mut self.buffer).map_err(EntryError::Read)?;
            if n == 0 {
                break;
            }
            for piece in self.buffer[..n].chunks(HOLE) {
                hole = piece.len() == HOLE && piece.iter().all(|b| *b == 0);
                if hole {
                    file.seek(SeekFrom::Current(HOLE as i64)).map_err(write)?;
                }
                if !hole {
                    file.write_all(piece).map_err(write)?;
                }
            }
            copied += n as u64;
        }
        if hole {
            file.set_len(copied).map_err(write)?;
        }
        Ok(copied)
    }

    fn finish(mut self, diff_id: Digest) -> Result<Unpacked, LayerError> {
        for (path, attributes) in self.times.iter().rev() {
            let set = || -> Result<(), RootError> {
                match self.root.existing(path)? {
                    Some(fd) => attributes.set_times(&fd),
                    None => Ok(()),
                }
            };
            set().map_err(|e| EntryError::Make(e).of(&path.to_string_lossy()))?;
        }
        let mut implied = std::mem::take(&mut self.root.implied);
        if !self.rooted {
            implied.insert(0, PathBuf::new());
        }
        Ok(Unpacked { diff_id, bytes: self.bytes, inodes: self.inodes, implied })
    }
}

/// Fills the last block of an archive with zeros: some tools leave the padding of the last file away. What is hashed is
/// what came, so a file that was cut is found out all the same.
struct WholeBlocks<R> {
    inner: R,
    bytes: u64,
    ended: bool,
}

impl<R: Read> Read for WholeBlocks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.ended {
            let n = self.inner.read(buffer)?;
            self.bytes += n as u64;
            self.ended = n == 0 && !buffer.is_empty();
            if !self.ended {
                return Ok(n);
            }
        }
        let missing = usize::try_from(self.bytes.next_multiple_of(BLOCK) - self.bytes).unwrap_or(0);
        let n = missing.min(buffer.len());
        buffer[..n].fill(0);
        self.bytes += n as u64;
        Ok(n)
    }
}

/// Reads until `buffer` is full or the end.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match reader.read(&mut buffer[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

fn has_pax_sparse<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<bool> {
    for record in entry.pax_extensions()?.into_iter().flatten() {
        if record?.key_bytes().starts_with(b"GNU.sparse.") {
            return Ok(true);
        }
    }
    Ok(false)
}

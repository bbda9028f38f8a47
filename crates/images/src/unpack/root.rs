//! The root of a layer being made. Every path is resolved by the kernel with this root as `/`, so that neither a link
//! nor a race leads out of it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, XattrFlags, fsetxattr, makedev, mkdirat, mknodat,
    openat2, statat, unlinkat,
};
use rustix::io::Errno;

use super::plan::{PathFault, Spot};

/// How often a lookup is tried again when the kernel cannot rule out a concurrent rename.
const LOOKUPS: usize = 64;

/// Why something in the layer could not be reached.
pub(crate) enum RootError {
    /// The archive asks for what no layer may hold.
    Path(PathFault),
    /// The file system refused.
    Io(&'static str, io::Error),
}

impl From<PathFault> for RootError {
    fn from(fault: PathFault) -> Self {
        Self::Path(fault)
    }
}

/// For `map_err` on calls.
pub(crate) fn io_error(call: &'static str) -> impl FnOnce(Errno) -> RootError {
    move |e| RootError::Io(call, e.into())
}

/// What was under a name before a new entry took it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing, or something that is gone now.
    Nothing,
    /// A folder, which stays since the new entry is one as well.
    Folder,
    /// A whiteout, gone now.
    Whiteout,
}

/// The root folder, and the folder that was used last.
pub(crate) struct Root {
    fd: OwnedFd,
    last: Option<(PathBuf, Rc<OwnedFd>)>,
    /// Folders that were made only because something lies in them.
    pub implied: Vec<PathBuf>,
}

impl Root {
    pub fn open(dir: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(Self { fd: rustix::fs::open(dir, flags, Mode::empty())?, last: None, implied: Vec::new() })
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    fn lookup(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        for _ in 1..LOOKUPS {
            match openat2(&self.fd, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        openat2(&self.fd, path, flags, Mode::empty(), resolve)
    }

    /// The folder at `path` if it is there.
    pub fn existing(&self, path: &Path) -> Result<Option<Rc<OwnedFd>>, RootError> {
        if let Some((last, fd)) = &self.last
            && last == path
        {
            return Ok(Some(Rc::clone(fd)));
        }
        match self.lookup(path) {
            Ok(fd) => Ok(Some(Rc::new(fd))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(e) => Err(io_error("open its folder")(e)),
        }
    }

    /// The folder at `path`, made with all above it if need be.
    pub fn folder(&mut self, path: &Path) -> Result<Rc<OwnedFd>, RootError> {
        let fd = match self.existing(path)? {
            Some(fd) => fd,
            None => Rc::new(self.make_folders(path)?),
        };
        self.last = Some((path.to_owned(), Rc::clone(&fd)));
        Ok(fd)
    }

    fn make_folders(&mut self, path: &Path) -> Result<OwnedFd, RootError> {
        let mut fd = self.lookup(Path::new("")).map_err(io_error("open the layer"))?;
        let mut walked = PathBuf::new();
        for part in path.iter() {
            walked.push(part);
            fd = match self.lookup(&walked) {
                Ok(next) => next,
                Err(Errno::NOENT) => self.make_folder(&fd, part, &walked, false)?,
                Err(Errno::NOTDIR) if is_whiteout(&fd, part) => {
                    unlinkat(&fd, part, AtFlags::empty()).map_err(io_error("replace a whiteout"))?;
                    self.make_folder(&fd, part, &walked, true)?
                }
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(not_a_folder(&walked)),
                Err(e) => return Err(io_error("open its folder")(e)),
            };
        }
        Ok(fd)
    }

    fn make_folder(
        &mut self,
        above: &OwnedFd,
        name: &OsStr,
        path: &Path,
        hides: bool,
    ) -> Result<OwnedFd, RootError> {
        match mkdirat(above, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {}
            // A link that leads nowhere: nothing is made at its far end.
            Err(Errno::EXIST) => return Err(not_a_folder(path)),
            Err(e) => return Err(io_error("make its folder")(e)),
        }
        let fd = self.lookup(path).map_err(io_error("open its folder"))?;
        if hides {
            set_opaque(&fd)?;
        } else {
            self.implied.push(path.to_owned());
        }
        Ok(fd)
    }

    /// Makes room for an entry. A folder stays if `folder` is wanted.
    pub fn clear(&mut self, parent: &OwnedFd, spot: &Spot, folder: bool) -> Result<Before, RootError> {
        let Some(stat) = stat_of(parent, &spot.name)? else { return Ok(Before::Nothing) };
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            if folder {
                return Ok(Before::Folder);
            }
            self.last = None;
            let gone = spot.path();
            self.implied.retain(|path| !path.starts_with(&gone));
            let path = Path::new("/proc/self/fd").join(parent.as_raw_fd().to_string()).join(&spot.name);
            std::fs::remove_dir_all(path).map_err(|e| RootError::Io("replace a folder", e))?;
            return Ok(Before::Nothing);
        }
        let before = if whiteout(&stat) { Before::Whiteout } else { Before::Nothing };
        unlinkat(parent, &spot.name, AtFlags::empty()).map_err(io_error("replace an earlier entry"))?;
        Ok(before)
    }

    /// Hides what lower layers have under this name. What this layer has there stays, for a whiteout is about lower
    /// layers only; of a folder, all that lies below is hidden.
    pub fn hide(&mut self, spot: &Spot) -> Result<(), RootError> {
        let parent = self.folder(&spot.parent)?;
        match stat_of(&parent, &spot.name)? {
            None => mknodat(&*parent, &spot.name, FileType::CharacterDevice, Mode::empty(), makedev(0, 0))
                .map_err(io_error("make a whiteout")),
            Some(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(&*parent, &spot.name, flags, Mode::empty())
                    .map_err(io_error("open a folder"))?;
                set_opaque(&fd)
            }
            Some(_) => Ok(()),
        }
    }

    /// Hides all that lower layers have in the folder at `path`.
    pub fn hide_below(&mut self, path: &Path) -> Result<(), RootError> {
        let fd = self.folder(path)?;
        set_opaque(&fd)
    }
}

fn not_a_folder(path: &Path) -> RootError {
    PathFault::Parent(path.to_string_lossy().into_owned()).into()
}

/// Marks a folder as hiding all below it.
pub(crate) fn set_opaque(fd: &OwnedFd) -> Result<(), RootError> {
    fsetxattr(fd, "trusted.overlay.opaque", b"y", XattrFlags::empty())
        .map_err(io_error("mark a folder opaque"))
}

/// What is under a name, links not followed.
pub(crate) fn stat_of(parent: &OwnedFd, name: &OsStr) -> Result<Option<Stat>, RootError> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(io_error("look at it")(e)),
    }
}

fn whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_char_device() && stat.st_rdev == makedev(0, 0)
}

fn is_whiteout(parent: &OwnedFd, name: &OsStr) -> bool {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| whiteout(&stat))
}

//! The container's root: its mounts, devices and links, and the pivot into it. Every destination is resolved with
//! the new root as the root of all links, so an image cannot point a mount outside.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, makedev, mkdirat, mknodat, openat,
    openat2,
};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};

use super::launch::Groups;
use super::mounts::{apply, attach, copy_of, make_readonly, new_file_system, place, show_owners};
use super::oci::{Device, Mount, Spec};
use super::options::{Bind, Options, parse};
use super::owners::Owners;
use super::{SetupError, words};

/// Links that every program expects in `/dev`.
const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// The new root, and whose it is.
struct Place<'a> {
    root: OwnedFd,
    owners: &'a Owners,
    users: Option<BorrowedFd<'a>>,
}

impl Place<'_> {
    /// The folder `path` below the root, made if it is not there.
    fn folder(&self, path: &Path) -> Result<OwnedFd, Errno> {
        match resolve(&self.root, path, OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {}
            result => return result,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::NOENT) };
        let parent = self.folder(parent)?;
        match mkdirat(&parent, name.as_bytes(), Mode::from_raw_mode(0o755)) {
            Ok(()) => self.give(&parent, name)?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        resolve(&self.root, path, OFlags::DIRECTORY)
    }

    /// The file `path` below the root, made if it is not there.
    fn file(&self, path: &Path) -> Result<OwnedFd, Errno> {
        match resolve(&self.root, path, OFlags::empty()) {
            Err(Errno::NOENT) => {}
            result => return result,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::NOENT) };
        let parent = self.folder(parent)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
        match openat(&parent, name.as_bytes(), flags, Mode::from_raw_mode(0o644)) {
            Ok(_) => self.give(&parent, name)?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        resolve(&self.root, path, OFlags::empty())
    }

    /// The folder or file that a source is mounted on.
    fn beneath(&self, source: &OwnedFd, mount: &Mount) -> Result<OwnedFd, Errno> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(source)?.st_mode);
        if kind == FileType::Directory {
            self.folder(&mount.destination)
        } else {
            self.file(&mount.destination)
        }
    }

    /// Gives what was just made to the container's root, if that is not the host's.
    fn give(&self, parent: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        if self.owners.are_the_hosts() {
            return Ok(());
        }
        let (user, group) = (Uid::from_raw(self.owners.uid(0)), Gid::from_raw(self.owners.gid(0)));
        chownat(parent, name.as_bytes(), Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// What a new file system has to be told so that it is the container's.
    fn owned(&self, kind: &str, mut options: Options) -> Options {
        if self.owners.are_the_hosts() {
            return options;
        }
        let mut set = |key: &str, value: u32| options.data.push((key.to_owned(), Some(value.to_string())));
        match kind {
            "tmpfs" => {
                set("uid", self.owners.uid(0));
                set("gid", self.owners.gid(0));
            }
            "devpts" => {
                // The group of terminals is one inside.
                for (_, value) in options.data.iter_mut().filter(|(key, _)| key == "gid") {
                    if let Some(gid) = value.as_deref().and_then(|text| text.parse().ok()) {
                        *value = Some(self.owners.gid(gid).to_string());
                    }
                }
            }
            _ => {}
        }
        options
    }
}

/// Mounts everything, then makes the container's root this process's root. Its files are for `owners`, whose user namespace is
/// `users`.
pub(super) fn enter(
    spec: &Spec,
    groups: &[Groups],
    owners: &Owners,
    users: Option<BorrowedFd<'_>>,
) -> Result<(), SetupError> {
    let propagation = match spec.linux.rootfs_propagation.as_str() {
        "shared" | "rshared" => MountPropagationFlags::SHARED,
        _ => MountPropagationFlags::DOWNSTREAM,
    };
    mount_change("/", propagation | MountPropagationFlags::REC)
        .map_err(SetupError::at("cut mounts off from the host"))?;
    let place = Place { root: mount_root(&spec.root.path)?, owners, users };
    for mount in &spec.mounts {
        place_mount(&place, mount, groups)?;
    }
    for device in &spec.linux.devices {
        make_device(&place, device)?;
    }
    make_links(&place)?;
    make_working_folder(&place, spec)?;
    pivot(&place.root)?;
    for path in &spec.linux.readonly_paths {
        protect(Path::new(path))?;
    }
    for path in &spec.linux.masked_paths {
        mask(Path::new(path))?;
    }
    Ok(())
}

/// The last step, after everything that writes to the root.
pub(super) fn seal(spec: &Spec) -> Result<(), SetupError> {
    if spec.root.readonly {
        make_readonly(Path::new("/")).map_err(SetupError::at("make the root read-only"))?;
    }
    Ok(())
}

fn mount_root(path: &Path) -> Result<OwnedFd, SetupError> {
    let step = || format!("mount the root {}", path.display());
    let options = parse(&["rbind".to_owned(), "rprivate".to_owned()]);
    // What is mounted on a shared mount would show on the host too.
    mount_change(path, MountPropagationFlags::PRIVATE).map_err(SetupError::at(step()))?;
    let copy = copy_of(path, Bind::Recursive).map_err(SetupError::at(step()))?;
    apply(&copy, &options).map_err(SetupError::at(step()))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let target = openat(CWD, path, flags, Mode::empty()).map_err(SetupError::at(step()))?;
    place(&copy, &target).map_err(SetupError::at(step()))?;
    openat(CWD, path, flags, Mode::empty()).map_err(SetupError::at(step()))
}

fn place_mount(at: &Place<'_>, mount: &Mount, groups: &[Groups]) -> Result<(), SetupError> {
    if mount.kind == "cgroup" {
        return place_cgroups(at, mount, groups);
    }
    let step =
        |what: &str| format!("mount {} on {}: {what}", mount.source.display(), mount.destination.display());
    let options = parse(&mount.options);
    let Some(bind) = options.bind else {
        let target = at.folder(&mount.destination).map_err(SetupError::at(step("make the folder")))?;
        let fresh = new_file_system(&mount.kind, &mount.source, &at.owned(&mount.kind, options))
            .map_err(SetupError::at(step(&format!("make the {}", mount.kind))))?;
        return place(&fresh, &target).map_err(SetupError::at(step("place")));
    };
    if options.hears_of_others() && mount.uid_mappings.is_empty() && mount.gid_mappings.is_empty() {
        return place_attached(at, mount, &options, step);
    }
    let copy = copy_of(&mount.source, bind).map_err(SetupError::at(step("open the source")))?;
    apply(&copy, &options).map_err(SetupError::at(step("set the options")))?;
    if !mount.uid_mappings.is_empty() || !mount.gid_mappings.is_empty() {
        show(at, mount, &copy).map_err(|cause| SetupError { step: step("map its owners"), cause })?;
    }
    let target = at.beneath(&copy, mount).map_err(SetupError::at(step("make the destination")))?;
    place(&copy, &target).map_err(SetupError::at(step("place")))
}

/// A bind to which others' mounts come: it is made where it is to be, in one call. To a copy that is nowhere yet nothing comes, and
/// what is mounted or taken off meanwhile would be missed for ever.
fn place_attached(
    at: &Place<'_>,
    mount: &Mount,
    options: &Options,
    step: impl Fn(&str) -> String,
) -> Result<(), SetupError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let source =
        openat(CWD, &mount.source, flags, Mode::empty()).map_err(SetupError::at(step("open the source")))?;
    let target = at.beneath(&source, mount).map_err(SetupError::at(step("make the destination")))?;
    attach(&source, &target, options).map_err(SetupError::at(step("place")))?;
    let placed = resolve(&at.root, &mount.destination, OFlags::empty())
        .map_err(SetupError::at(step("open what was placed")))?;
    apply(&placed, options).map_err(SetupError::at(step("set the options")))
}

/// Shows the owners of files of a mount as the container's user namespace has them.
fn show(at: &Place<'_>, mount: &Mount, copy: &OwnedFd) -> Result<(), String> {
    let wanted = Owners { uids: mount.uid_mappings.clone(), gids: mount.gid_mappings.clone() };
    match at.users {
        Some(users) if wanted == *at.owners => {
            show_owners(copy.as_fd(), users, false).map_err(|errno| words(&errno.into()))
        }
        _ => Err("only the container's own user namespace can be mapped".to_owned()),
    }
}

/// Name of the folder at which the unified hierarchy is mounted beside those of version 1.
const UNIFIED: &str = "unified";

/// The container's own groups, each controller's in a folder of its name; on a unified hierarchy the one group.
fn place_cgroups(at: &Place<'_>, mount: &Mount, groups: &[Groups]) -> Result<(), SetupError> {
    let readonly = mount.options.iter().any(|o| o == "ro");
    let bind = |source: &Path, destination: PathBuf| Mount {
        destination,
        kind: "bind".into(),
        source: source.to_owned(),
        options: ["bind", "rprivate", "nosuid", "nodev", "noexec"]
            .into_iter()
            .chain(readonly.then_some("ro"))
            .map(str::to_owned)
            .collect(),
        ..Mount::default()
    };
    if let [only] = groups
        && only.name.is_empty()
    {
        return place_mount(at, &bind(&only.folder, mount.destination.clone()), groups);
    }
    let tmpfs = Mount {
        destination: mount.destination.clone(),
        kind: "tmpfs".into(),
        source: "tmpfs".into(),
        options: ["nosuid", "nodev", "noexec", "mode=755"].map(str::to_owned).into(),
        ..Mount::default()
    };
    place_mount(at, &tmpfs, groups)?;
    // Beside version 1 the unified hierarchy has no controllers; who finds it takes the machine for one of version 2.
    for group in groups.iter().filter(|group| group.name != UNIFIED) {
        place_mount(at, &bind(&group.folder, mount.destination.join(&group.name)), groups)?;
    }
    Ok(())
}

fn make_device(at: &Place<'_>, device: &Device) -> Result<(), SetupError> {
    let step = || format!("make the device {}", device.path.display());
    let name = device
        .path
        .file_name()
        .ok_or_else(|| SetupError { step: step(), cause: "its path has no name".to_owned() })?;
    let parent = at.folder(device.path.parent().unwrap_or(Path::new("/"))).map_err(SetupError::at(step()))?;
    let kind = if device.kind == "b" { FileType::BlockDevice } else { FileType::CharacterDevice };
    let number = makedev(device.major, device.minor);
    match mknodat(&parent, name.as_bytes(), kind, Mode::from_raw_mode(device.file_mode), number) {
        Err(Errno::EXIST) => return Ok(()),
        result => result.map_err(SetupError::at(step()))?,
    }
    let mode = Mode::from_raw_mode(device.file_mode);
    // The creation mode went through the umask.
    rustix::fs::chmodat(&parent, name.as_bytes(), mode, AtFlags::empty()).map_err(SetupError::at(step()))?;
    // Never the container's root: a device stays the host's, whoever the users are.
    let owner = (Uid::from_raw(device.uid), Gid::from_raw(device.gid));
    chownat(&parent, name.as_bytes(), Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(SetupError::at(step()))
}

fn make_links(at: &Place<'_>) -> Result<(), SetupError> {
    for (link, target) in LINKS {
        let path = Path::new(link);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let step = || format!("make the link {link}");
        let parent = at.folder(parent).map_err(SetupError::at(step()))?;
        match rustix::fs::symlinkat(target, &parent, name.as_bytes()) {
            Err(Errno::EXIST) => continue,
            result => result.and_then(|()| at.give(&parent, name)).map_err(SetupError::at(step()))?,
        }
    }
    Ok(())
}

/// Programs may be told to start in a folder that the image does not have.
fn make_working_folder(at: &Place<'_>, spec: &Spec) -> Result<(), SetupError> {
    match at.folder(&spec.process.cwd) {
        Ok(_) | Err(Errno::NOTDIR | Errno::ROFS) => Ok(()),
        Err(errno) => Err(SetupError::at(format!("make the folder {}", spec.process.cwd.display()))(errno)),
    }
}

fn pivot(root: &OwnedFd) -> Result<(), SetupError> {
    let step = "make the container's root the root";
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let old = openat(CWD, "/", flags, Mode::empty()).map_err(SetupError::at(step))?;
    rustix::process::fchdir(root).map_err(SetupError::at(step))?;
    rustix::process::pivot_root(".", ".").map_err(SetupError::at(step))?;
    // The old root lies over the new one now; this takes it off. Were it shared then, the host's mounts would go with it. It must
    // be the folder that one is in: `.` in the new root is the new root, whose shared mounts would become slaves.
    rustix::process::fchdir(&old).map_err(SetupError::at(step))?;
    mount_change(".", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .map_err(SetupError::at(step))?;
    unmount(".", UnmountFlags::DETACH).map_err(SetupError::at("take the host's root off"))?;
    rustix::process::chdir("/").map_err(SetupError::at(step))
}

fn protect(path: &Path) -> Result<(), SetupError> {
    let step = || format!("make {} read-only", path.display());
    let options = parse(&["rbind", "ro", "nosuid", "nodev", "noexec"].map(str::to_owned));
    let copy = match copy_of(path, Bind::Recursive) {
        Err(Errno::NOENT) => return Ok(()),
        result => result.map_err(SetupError::at(step()))?,
    };
    apply(&copy, &options).map_err(SetupError::at(step()))?;
    put_on(path, &copy).map_err(SetupError::at(step()))
}

fn mask(path: &Path) -> Result<(), SetupError> {
    let step = || format!("mask {}", path.display());
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let cover = if meta.is_dir() {
        let options = parse(&["ro".to_owned(), "size=0k".to_owned()]);
        new_file_system("tmpfs", Path::new("tmpfs"), &options)
    } else {
        copy_of(Path::new("/dev/null"), Bind::Single)
    }
    .map_err(SetupError::at(step()))?;
    put_on(path, &cover).map_err(SetupError::at(step()))
}

fn put_on(path: &Path, mount: &OwnedFd) -> Result<(), Errno> {
    let target = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    place(mount, &target)
}

/// Opens `path` below `root`, for use as a mount point.
fn resolve(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    loop {
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        match openat2(root.as_fd(), path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            // A rename elsewhere raced with the resolution.
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
}

/// An empty file at `path`, for a mount to lie on.
pub(super) fn touch(path: &Path) -> Result<(), SetupError> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map(drop)
        .map_err(SetupError::io(format!("make {}", path.display())))
}

/// Puts a copy of the mount at `source` on `target`.
pub(super) fn bind_file(source: &Path, target: &Path) -> Result<(), SetupError> {
    let step = || format!("bind {} on {}", source.display(), target.display());
    let copy = copy_of(source, Bind::Single).map_err(SetupError::at(step()))?;
    put_on(target, &copy).map_err(SetupError::at(step()))
}

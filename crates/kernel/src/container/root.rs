//! The container's root: its mounts, devices and links, and the pivot into it. Every destination is resolved with
//! the new root as the root of all links, so an image cannot point a mount outside.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid, makedev, mkdirat, mknodat, openat, openat2,
};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};

use super::SetupError;
use super::launch::Groups;
use super::mounts::{apply, copy_of, make_readonly, new_file_system, place};
use super::oci::{Device, Mount, Spec};
use super::options::{Bind, parse};

/// Links that every program expects in `/dev`.
const LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// Mounts everything, then makes the container's root this process's root.
pub(super) fn enter(spec: &Spec, groups: &[Groups]) -> Result<(), SetupError> {
    let propagation = match spec.linux.rootfs_propagation.as_str() {
        "shared" | "rshared" => MountPropagationFlags::SHARED,
        _ => MountPropagationFlags::DOWNSTREAM,
    };
    mount_change("/", propagation | MountPropagationFlags::REC)
        .map_err(SetupError::at("cut mounts off from the host"))?;
    let root = mount_root(&spec.root.path)?;
    for mount in &spec.mounts {
        place_mount(&root, mount, groups)?;
    }
    for device in &spec.linux.devices {
        make_device(&root, device)?;
    }
    make_links(&root)?;
    make_working_folder(&root, spec)?;
    pivot(&root)?;
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

fn place_mount(root: &OwnedFd, mount: &Mount, groups: &[Groups]) -> Result<(), SetupError> {
    if mount.kind == "cgroup" {
        return place_cgroups(root, mount, groups);
    }
    let step =
        |what: &str| format!("mount {} on {}: {what}", mount.source.display(), mount.destination.display());
    let options = parse(&mount.options);
    let Some(bind) = options.bind else {
        let target = folder(root, &mount.destination).map_err(SetupError::at(step("make the folder")))?;
        let fresh = new_file_system(&mount.kind, &mount.source, &options)
            .map_err(SetupError::at(step(&format!("make the {}", mount.kind))))?;
        return place(&fresh, &target).map_err(SetupError::at(step("place")));
    };
    let copy = copy_of(&mount.source, bind).map_err(SetupError::at(step("open the source")))?;
    apply(&copy, &options).map_err(SetupError::at(step("set the options")))?;
    let kind = FileType::from_raw_mode(
        rustix::fs::fstat(&copy).map_err(SetupError::at(step("look at the source")))?.st_mode,
    );
    let target = if kind == FileType::Directory {
        folder(root, &mount.destination)
    } else {
        file(root, &mount.destination)
    }
    .map_err(SetupError::at(step("make the destination")))?;
    place(&copy, &target).map_err(SetupError::at(step("place")))
}

/// Name of the folder at which the unified hierarchy is mounted beside those of version 1.
const UNIFIED: &str = "unified";

/// The container's own groups, each controller's in a folder of its name; on a unified hierarchy the one group.
fn place_cgroups(root: &OwnedFd, mount: &Mount, groups: &[Groups]) -> Result<(), SetupError> {
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
    };
    if let [only] = groups
        && only.name.is_empty()
    {
        return place_mount(root, &bind(&only.folder, mount.destination.clone()), groups);
    }
    let tmpfs = Mount {
        destination: mount.destination.clone(),
        kind: "tmpfs".into(),
        source: "tmpfs".into(),
        options: ["nosuid", "nodev", "noexec", "mode=755"].map(str::to_owned).into(),
    };
    place_mount(root, &tmpfs, groups)?;
    // Beside version 1 the unified hierarchy has no controllers; who finds it takes the machine for one of version 2.
    for group in groups.iter().filter(|group| group.name != UNIFIED) {
        place_mount(root, &bind(&group.folder, mount.destination.join(&group.name)), groups)?;
    }
    Ok(())
}

fn make_device(root: &OwnedFd, device: &Device) -> Result<(), SetupError> {
    let step = || format!("make the device {}", device.path.display());
    let name = device
        .path
        .file_name()
        .ok_or_else(|| SetupError { step: step(), cause: "its path has no name".to_owned() })?;
    let parent =
        folder(root, device.path.parent().unwrap_or(Path::new("/"))).map_err(SetupError::at(step()))?;
    let kind = if device.kind == "b" { FileType::BlockDevice } else { FileType::CharacterDevice };
    let number = makedev(device.major, device.minor);
    match mknodat(&parent, name.as_bytes(), kind, Mode::from_raw_mode(device.file_mode), number) {
        Err(Errno::EXIST) => return Ok(()),
        result => result.map_err(SetupError::at(step()))?,
    }
    let mode = Mode::from_raw_mode(device.file_mode);
    // The creation mode went through the umask.
    rustix::fs::chmodat(&parent, name.as_bytes(), mode, rustix::fs::AtFlags::empty())
        .map_err(SetupError::at(step()))?;
    let owner = (Some(Uid::from_raw(device.uid)), Some(Gid::from_raw(device.gid)));
    rustix::fs::chownat(&parent, name.as_bytes(), owner.0, owner.1, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .map_err(SetupError::at(step()))
}

fn make_links(root: &OwnedFd) -> Result<(), SetupError> {
    for (link, target) in LINKS {
        let path = Path::new(link);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let step = || format!("make the link {link}");
        let parent = folder(root, parent).map_err(SetupError::at(step()))?;
        match rustix::fs::symlinkat(target, &parent, name.as_bytes()) {
            Err(Errno::EXIST) => {}
            result => result.map_err(SetupError::at(step()))?,
        }
    }
    Ok(())
}

/// Programs may be told to start in a folder that the image does not have.
fn make_working_folder(root: &OwnedFd, spec: &Spec) -> Result<(), SetupError> {
    match folder(root, &spec.process.cwd) {
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

/// The folder `path` below `root`, made if it is not there.
pub(super) fn folder(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    match resolve(root, path, OFlags::DIRECTORY) {
        Err(Errno::NOENT) => {}
        result => return result,
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::NOENT) };
    let parent = folder(root, parent)?;
    match mkdirat(&parent, name.as_bytes(), Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => resolve(root, path, OFlags::DIRECTORY),
        Err(errno) => Err(errno),
    }
}

fn file(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    match resolve(root, path, OFlags::empty()) {
        Err(Errno::NOENT) => {}
        result => return result,
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::NOENT) };
    let parent = folder(root, parent)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::WRONLY;
    match openat(&parent, name.as_bytes(), flags, Mode::from_raw_mode(0o644)) {
        Ok(_) | Err(Errno::EXIST) => resolve(root, path, OFlags::empty()),
        Err(errno) => Err(errno),
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

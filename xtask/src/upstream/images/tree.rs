//! An image's root, laid out part by part.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::recipe::{Part, Recipe};
use super::table::recipe;
use super::{Place, copies, debian, programs};

/// Folders that every root has, with their modes.
const FOLDERS: [(&str, u32); 16] = [
    ("/usr/bin", 0o755),
    ("/usr/sbin", 0o755),
    ("/usr/lib", 0o755),
    ("/usr/lib64", 0o755),
    ("/usr/local/bin", 0o755),
    ("/etc", 0o755),
    ("/dev", 0o755),
    ("/proc", 0o555),
    ("/sys", 0o555),
    ("/root", 0o700),
    ("/home", 0o755),
    ("/run", 0o755),
    ("/mnt", 0o755),
    ("/tmp", 0o1777),
    ("/var/tmp", 0o1777),
    ("/var/log", 0o755),
];

/// Users: the ones that suites name, with those of busybox and Debian.
const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
bin:x:2:2:bin:/bin:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh
nobody:x:65534:65534:nobody:/home:/bin/false
";

const GROUP: &str = "\
root:x:0:
daemon:x:1:
bin:x:2:
www-data:x:33:
user-defined-in-image:x:1000:
group-defined-in-image:x:50000:user-defined-in-image
nogroup:x:65534:
";

/// The root of a recipe; laid out once in a run, for other recipes are made of it.
pub fn root(place: &Place, recipe: &Recipe) -> anyhow::Result<PathBuf> {
    let root = place.roots().join(recipe.name);
    if !root.exists() {
        // Under another name until it is complete.
        let part_of_it = place.roots().join(format!("{}.part", recipe.name));
        fs::create_dir_all(&part_of_it)?;
        for part in recipe.parts {
            self::part(place, part, &part_of_it).with_context(|| format!("{}: {part:?}", recipe.name))?;
        }
        fs::rename(part_of_it, &root)?;
    }
    Ok(root)
}

/// Another recipe's files.
fn all_of(place: &Place, other: &Recipe, to: &Path) -> anyhow::Result<()> {
    let from = root(place, other)?.join(".");
    let status = Command::new("cp").arg("--archive").arg(from).arg(to).status()?;
    anyhow::ensure!(status.success(), "{} cannot be copied", other.name);
    Ok(())
}

fn part(place: &Place, part: &Part, root: &Path) -> anyhow::Result<()> {
    match part {
        Part::Of(other) => all_of(place, recipe(other).context("there is no such recipe")?, root),
        Part::Base => base(root),
        // It is linked statically: nothing of what it depends on is needed.
        Part::Busybox => busybox(place, root, "busybox-static"),
        Part::SharedBusybox => busybox(place, root, "busybox"),
        Part::Packages(packages) => debian::unpack(place, packages, root),
        Part::Go(package, to) => copy(&programs::go(place, package)?, root, to, 0o755),
        Part::GoOf(module, package, to) => {
            copy(&programs::go_of(place, module, package, to)?, root, to, 0o755)
        }
        Part::Kubernetes(path, to) => copy(&programs::kubernetes(place)?.join(path), root, to, 0o644),
        Part::Text(to, text, mode) => {
            let to = fresh(root, to)?;
            fs::write(&to, text)?;
            Ok(fs::set_permissions(&to, fs::Permissions::from_mode(*mode))?)
        }
        Part::Link(at, target) => Ok(symlink(target, fresh(root, at)?)?),
        Part::Folder(path, mode) => folder(root, path, *mode),
        Part::Registry(folder, image, name, tag) => {
            copies::lay(place, &inside(root, folder), image, name, tag)
        }
    }
}

fn base(root: &Path) -> anyhow::Result<()> {
    for (path, mode) in FOLDERS {
        folder(root, path, mode)?;
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name))?;
    }
    symlink("/run", root.join("var/run"))?;
    fs::write(root.join("etc/passwd"), PASSWD)?;
    fs::write(root.join("etc/group"), GROUP)?;
    fs::write(root.join("etc/nsswitch.conf"), "passwd: files\ngroup: files\nhosts: files dns\n")?;
    Ok(())
}

fn busybox(place: &Place, root: &Path, package: &str) -> anyhow::Result<()> {
    debian::unpack(place, &[package], root)?;
    let program = root.join("usr/bin/busybox");
    let output = Command::new(&program).arg("--list").output().context("busybox")?;
    for name in String::from_utf8(output.stdout)?.lines() {
        let places = ["usr/bin", "usr/sbin"].map(|dir| root.join(dir).join(name));
        if !places.iter().any(|path| path.symlink_metadata().is_ok()) {
            // As upstream has it: a link would lead who masks one command to all of them.
            fs::hard_link(&program, &places[0])?;
        }
    }
    Ok(())
}

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn folder(root: &Path, path: &str, mode: u32) -> anyhow::Result<()> {
    let path = inside(root, path);
    fs::create_dir_all(&path)?;
    Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
}

/// A place for a file: its folder is there, and it is not.
fn fresh(root: &Path, to: &str) -> anyhow::Result<PathBuf> {
    let to = inside(root, to);
    fs::create_dir_all(to.parent().context("it has a folder")?)?;
    match fs::remove_file(&to) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
        _ => Ok(to),
    }
}

fn copy(from: &Path, root: &Path, to: &str, mode: u32) -> anyhow::Result<()> {
    let to = fresh(root, to)?;
    fs::copy(from, &to).with_context(|| from.display().to_string())?;
    Ok(fs::set_permissions(&to, fs::Permissions::from_mode(mode))?)
}

//! Debian's packages as files: fetched and unpacked, not installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use super::Place;

/// Packages that others depend on for their installation, or to be faster (PostgreSQL's compiler), and not to run.
const NOT_TO_RUN: [&str; 14] = [
    "adduser",
    "base-files",
    "debconf",
    "debianutils",
    "dpkg",
    "init-system-helpers",
    "install-info",
    "libllvm14",
    "libperl5.36",
    "libz3-4",
    "perl",
    "perl-base",
    "perl-modules-5.36",
    "tar",
];

/// Unpacks `packages` and what they depend on into `root`.
pub fn unpack(place: &Place, packages: &[&str], root: &Path) -> anyhow::Result<()> {
    let dir = place.dir.join("debian");
    std::fs::create_dir_all(&dir)?;
    for archive in fetched(&dir, &with_dependencies(&dir, packages)?)? {
        let mut files =
            Command::new("dpkg-deb").arg("--fsys-tarfile").arg(&archive).stdout(Stdio::piped()).spawn()?;
        let input = files.stdout.take().context("dpkg-deb has an output")?;
        let mut tar = Command::new("tar");
        // /lib and its like are links to /usr here, and folders in the packages.
        tar.args(["--extract", "--keep-directory-symlink", "--no-same-owner", "--directory"])
            .arg(root)
            .stdin(input);
        for left_out in ["./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/info"] {
            tar.arg(format!("--exclude={left_out}/*"));
        }
        let done = tar.status()?.success() && files.wait()?.success();
        anyhow::ensure!(done, "{} cannot be unpacked", archive.display());
    }
    Ok(())
}

/// The packages and all that they need, as apt would choose on a machine that has nothing.
fn with_dependencies(dir: &Path, packages: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    let nothing = dir.join("nothing");
    File::create(&nothing)?;
    let simulate = || -> anyhow::Result<Result<String, String>> {
        let output = Command::new("apt-get")
            .arg("-o")
            .arg(format!("Dir::State::status={}", nothing.display()))
            .args(["--simulate", "--no-install-recommends", "install"])
            .args(packages)
            .output()
            .context("images are made of Debian's packages, and there is no apt-get")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(if output.status.success() { Ok(text) } else { Err(said) })
    };
    let text = match simulate()? {
        Ok(text) => text,
        // A fresh machine has no lists of packages yet.
        Err(_) => {
            let _ = Command::new("apt-get").args(["-qq", "update"]).status();
            simulate()?.map_err(|said| anyhow::anyhow!("{}: {}", packages.join(" "), said.trim()))?
        }
    };
    Ok(chosen(&text, packages))
}

/// The names that apt's simulation would install.
fn chosen(text: &str, wanted: &[&str]) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next());
    names.filter(|name| wanted.contains(name) || !NOT_TO_RUN.contains(name)).map(str::to_owned).collect()
}

/// The packages' archives; those that are not there yet are fetched at once, since apt takes seconds to begin.
fn fetched(dir: &Path, packages: &BTreeSet<String>) -> anyhow::Result<Vec<PathBuf>> {
    let there = || -> anyhow::Result<BTreeMap<String, PathBuf>> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Some((package, rest)) = name.split_once('_')
                && rest.ends_with(".deb")
            {
                found.insert(package.to_owned(), path);
            }
        }
        Ok(found)
    };
    let mut archives = there()?;
    let missing: Vec<&String> = packages.iter().filter(|package| !archives.contains_key(*package)).collect();
    let mut said = String::new();
    if !missing.is_empty() {
        println!("   fetching {} of Debian's packages", missing.len());
        let mut command = Command::new("apt-get");
        // As root apt hands the download to a user that may not write here.
        command.args(["-qq", "-o", "APT::Sandbox::User=root", "download"]).args(&missing).current_dir(dir);
        said = String::from_utf8_lossy(&command.output().context("cannot run apt-get")?.stderr).into_owned();
        archives = there()?;
    }
    let archive = |package: &String| {
        let found = archives.get(package).cloned();
        found.with_context(|| format!("the package {package} cannot be fetched: {}", said.trim()))
    };
    packages.iter().map(archive).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_for_installation_only_is_left_out_unless_it_is_asked_for() {
        let text = "NOTE: simulated\nInst libc6 (2.36 Debian:12)\nInst perl-base (5)\nInst perl (5)\nConf libc6 (2)\n";
        assert_eq!(chosen(text, &["perl"]), BTreeSet::from(["libc6".to_owned(), "perl".to_owned()]));
    }
}

//! The images that the suites name, where there is no internet: each made from Go modules and Debian's packages, and served by a
//! registry on this machine that stands in for the real ones. Image names in the suites stay as they are.
//!
//! - `recipe` what is said of an image, `table` which there are and which are not, `texts` settings in them
//! - `debian` packages as files, `programs` what is built from Go modules, `tree` an image's root, `copies` the registry that one of
//!   the images is itself
//! - `proof` starts each and asks it for what it is for
//! - `archive` makes an image from a root with `trine image build`, `serve` runs the registry

mod archive;
mod copies;
mod debian;
mod programs;
mod proof;
mod recipe;
mod serve;
mod table;
mod texts;
mod tree;

use std::path::{Path, PathBuf};

pub use serve::{Registry, own_address};

use crate::test::{cargo_command, run_command, workspace_root};

/// How the command is called.
pub const USAGE: &str = "\
cargo xtask upstream images [--program TRINE] [--only NAME] [--prove] [--serve]
    makes the images that are not in target/upstream/images yet; --prove has Trine run each;
    --serve runs their registry until Ctrl-C";

/// Makes the images that are missing, and starts the registry that has them all; `only` those of these names, where a suite needs no
/// others.
///
/// # Errors
/// In one line, if something that they are made from cannot be had.
pub fn prepare(root: &Path, program: &Path, only: Option<&[&str]>) -> anyhow::Result<Registry> {
    let place = Place { root: root.to_owned(), dir: root.join("target/upstream/images") };
    std::fs::create_dir_all(&place.dir)?;
    // Another run beside this one would take what is half made away.
    let lock = std::fs::File::create(place.dir.join("lock"))?;
    lock.lock()?;
    // What a run that was stopped left half made.
    let _ = std::fs::remove_dir_all(place.roots());
    std::fs::create_dir_all(place.roots())?;
    let registry = Registry::start(root)?;
    for recipe in table::recipes().filter(|recipe| only.is_none_or(|names| names.contains(&recipe.name))) {
        for archive in archive::made(&place, program, recipe)? {
            registry.hold(&archive)?;
        }
    }
    std::fs::remove_dir_all(place.roots())?;
    Ok(registry)
}

/// The folder of the archives of the images that `tests/manifests` names: `NAME@all.tar`.
///
/// # Errors
/// If something that they are made from cannot be had.
pub fn of_manifests(root: &Path, program: &Path) -> anyhow::Result<PathBuf> {
    let place = Place { root: root.to_owned(), dir: root.join("target/manifests") };
    let _ = std::fs::remove_dir_all(place.roots());
    std::fs::create_dir_all(place.roots())?;
    for recipe in table::ours::RECIPES {
        archive::made(&place, program, recipe)?;
    }
    std::fs::remove_dir_all(place.roots())?;
    Ok(place.dir)
}

/// Where things are.
struct Place {
    /// The workspace.
    root: PathBuf,
    /// What is made.
    dir: PathBuf,
}

impl Place {
    /// Roots of images, while these are made.
    fn roots(&self) -> PathBuf {
        self.dir.join("roots")
    }
}

/// `cargo xtask upstream images`.
///
/// # Errors
/// As [`prepare`].
pub fn run(words: &[&str]) -> anyhow::Result<()> {
    let root = workspace_root()?;
    let (mut program, mut only, mut prove, mut serve) = (None, None, false, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--program" => program = words.next().map(PathBuf::from),
            "--only" => only = words.next().copied(),
            "--prove" => prove = true,
            "--serve" => serve = true,
            other => anyhow::bail!("{other}: no such word\n{USAGE}"),
        }
    }
    let program = match program {
        Some(path) => std::path::absolute(path)?,
        None => {
            run_command(cargo_command(&root).args(["build", "--package", "trine", "--quiet"]))?;
            root.join("target/debug/trine")
        }
    };
    let registry = prepare(&root, &program, only.as_ref().map(std::slice::from_ref))?;
    println!("registry {}, mirrors in {}", registry.address, registry.config_dir.display());
    for (name, why) in table::ABSENT {
        println!("not there: {name}: {why}");
    }
    if prove {
        proof::prove(&program, &registry, only, &root.join("target/upstream/images/trine.log"))?;
    }
    if serve {
        println!("serving until Ctrl-C");
        registry.wait()?;
    }
    Ok(())
}

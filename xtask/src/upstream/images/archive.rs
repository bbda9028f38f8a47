//! The archives of a recipe's images, made once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use super::recipe::{Part, Recipe};
use super::table::recipe;
use super::{Place, tree};
use crate::test::run_command;

/// One image.
pub struct Archive {
    /// Its name.
    pub reference: &'static str,
    /// The OCI archive.
    pub path: PathBuf,
    /// The digest of its manifest.
    pub digest: String,
}

/// The images of a recipe. Those that are there, made of the same, are left.
///
/// # Errors
/// If something that they are made of cannot be had.
pub fn made(place: &Place, program: &Path, recipe: &'static Recipe) -> anyhow::Result<Vec<Archive>> {
    let mut archives = Vec::new();
    for reference in recipe.references {
        let which = if recipe.alike { "all" } else { reference.rsplit(':').next().unwrap_or(reference) };
        let path = place.dir.join(format!("{}@{which}.tar", recipe.name));
        let config = config(recipe, reference)?;
        let made_of = made_of(place, recipe, &config)?;
        let stamp = path.with_extension("made-of");
        let noted = std::fs::read_to_string(&stamp).unwrap_or_default();
        let mut digest = noted.strip_prefix(&format!("{made_of} ")).map(str::to_owned);
        if digest.is_none() || !path.is_file() {
            println!("== making {reference}");
            let root = tree::root(place, recipe)?;
            let settings = root.with_extension("json");
            std::fs::write(&settings, config)?;
            let mut build = Command::new(program);
            build.args(["image", "build"]).arg(&root).args(["--tag", reference]);
            build.arg("--config").arg(&settings).arg("--output").arg(&path);
            build.stdout(std::process::Stdio::null());
            run_command(&mut build)?;
            let made = digest_of(&path)?;
            std::fs::write(&stamp, format!("{made_of} {made}"))?;
            digest = Some(made);
        }
        archives.push(Archive { reference, path, digest: digest.unwrap_or_default() });
    }
    Ok(archives)
}

/// The digest of the only manifest that an archive's index names.
fn digest_of(archive: &Path) -> anyhow::Result<String> {
    let output = Command::new("tar").arg("-xOf").arg(archive).arg("index.json").output()?;
    let index: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{} has no index", archive.display()))?;
    let digest = index["manifests"][0]["digest"].as_str();
    Ok(digest.with_context(|| format!("the index of {} names no manifest", archive.display()))?.to_owned())
}

/// The recipe's settings, with a label that makes the images of several names differ.
fn config(recipe: &Recipe, reference: &str) -> anyhow::Result<String> {
    let mut config: Value = serde_json::from_str(recipe.config).context(recipe.name)?;
    if !recipe.alike {
        config["Labels"]["reference"] = Value::from(reference);
    }
    Ok(config.to_string())
}

fn made_of(place: &Place, recipe: &Recipe, config: &str) -> anyhow::Result<String> {
    let mut hasher = DefaultHasher::new();
    config.hash(&mut hasher);
    for file in ["tests/upstream/images/go.mod", "crates/store/tests/etcd-server/go.mod"] {
        std::fs::read(place.root.join(file)).context(file)?.hash(&mut hasher);
    }
    parts(place, recipe.parts, &mut hasher)?;
    Ok(format!("{:016x}", hasher.finish()))
}

fn parts(place: &Place, all: &[Part], hasher: &mut DefaultHasher) -> anyhow::Result<()> {
    for part in all {
        format!("{part:?}").hash(hasher);
        match part {
            Part::Of(other) | Part::Registry(_, other, ..) => {
                if let Some(other) = recipe(other) {
                    parts(place, other.parts, hasher)?;
                }
            }
            Part::GoOf(module, package, _) => {
                let module = place.root.join(module);
                std::fs::read(module.join("go.mod")).context("go.mod")?.hash(hasher);
                if let Some(ours) = package.strip_prefix("./") {
                    sources(&module.join(ours), hasher)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The files of a program of our own.
fn sources(dir: &Path, hasher: &mut DefaultHasher) -> anyhow::Result<()> {
    let files = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut files: Vec<PathBuf> = files.map(|file| Ok(file?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    for file in files {
        std::fs::read(&file)?.hash(hasher);
    }
    Ok(())
}

//! Files of the little registry that agnhost is: an image's manifest and blobs by digest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::{Value, json};

use super::Place;
use crate::test::run_command;

/// Puts the image of `recipe`, which is made already, below `folder` as `name:tag`.
pub fn lay(place: &Place, folder: &Path, recipe: &str, name: &str, tag: &str) -> anyhow::Result<()> {
    let layout = place.dir.join("copies").join(recipe);
    let _ = fs::remove_dir_all(&layout);
    fs::create_dir_all(&layout)?;
    let archive = fs::read_dir(&place.dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| is_of(path, recipe))
        .with_context(|| format!("{recipe} is not made yet"))?;
    run_command(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&layout))?;
    let blob = |digest: &str| fs::read(layout.join("blobs").join(digest.replace(':', "/")));
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let mut entry = index["manifests"][0].clone();
    let digest = entry["digest"].as_str().context("the index names a manifest")?.to_owned();
    let manifest = blob(&digest)?;
    let image: Value = serde_json::from_slice(&manifest)?;
    // Upstream's is a list for several platforms; this one has one.
    entry["annotations"] = Value::Null;
    entry["platform"] = json!({"os": "linux", "architecture": architecture()});
    let kind = "application/vnd.oci.image.index.v1+json";
    let list = json!({"schemaVersion": 2, "mediaType": kind, "manifests": [entry]}).to_string();
    let store = folder.join(name);
    let listed = put(&store.join("manifests"), list.as_bytes())?;
    put(&store.join("manifests"), &manifest)?;
    fs::write(store.join("manifests").join(tag), format!("{listed}\n"))?;
    let parts = image["layers"].as_array().into_iter().flatten().chain([&image["config"]]);
    for digest in parts.filter_map(|part| part["digest"].as_str()) {
        put(&store.join("blobs"), &blob(digest)?)?;
    }
    Ok(())
}

fn is_of(path: &Path, recipe: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(recipe).is_some_and(|rest| rest.starts_with('@') && rest.ends_with(".tar"))
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// Writes what is known by its digest; gives that.
fn put(dir: &Path, bytes: &[u8]) -> anyhow::Result<String> {
    let file = dir.join("incoming");
    fs::create_dir_all(dir)?;
    fs::write(&file, bytes)?;
    let output = Command::new("sha256sum").arg(&file).output().context("cannot run sha256sum")?;
    let hex = String::from_utf8(output.stdout)?.chars().take(64).collect::<String>();
    let place: PathBuf = dir.join("sha256").join(hex.get(..2).context("a digest")?).join(&hex);
    fs::create_dir_all(&place)?;
    fs::rename(file, place.join("data"))?;
    Ok(format!("sha256:{hex}"))
}

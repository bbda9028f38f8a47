//! What `docker save` writes: `manifest.json` names each image's configuration and layers.

use serde::Deserialize;

use super::archive::ArchiveError;
use super::members::Members;
use super::{Candidate, MemberLayer};
use crate::content::Digest;
use crate::name::ImageName;

pub(crate) const MANIFEST: &str = "manifest.json";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Vec<String>,
}

/// The images of the archive.
pub(crate) fn images(members: &Members, manifest: &[u8]) -> Result<Vec<Candidate>, ArchiveError> {
    let entries: Vec<Entry> = serde_json::from_slice(manifest)
        .map_err(|source| ArchiveError::Json { member: MANIFEST.to_owned(), source })?;
    if entries.is_empty() {
        return Err(ArchiveError::content(MANIFEST, "it names no image"));
    }
    entries.into_iter().map(|entry| image(members, entry)).collect()
}

fn image(members: &Members, entry: Entry) -> Result<Candidate, ArchiveError> {
    let config_file = members.required(&entry.config)?;
    let actual = Digest::of(&config_file);
    if let Some(expected) = digest_in_name(&entry.config)
        && expected != actual
    {
        return Err(ArchiveError::content(&entry.config, format!("its content is {actual}")));
    }
    let tags = entry.repo_tags.unwrap_or_default();
    let tags = tags.iter().filter_map(|tag| ImageName::parse(tag).ok()?.tagged()).collect();
    let layers = entry.layers.into_iter().map(|member| {
        let digest = member.starts_with("blobs/").then(|| digest_in_name(&member)).flatten();
        MemberLayer { member, digest }
    });
    Ok(Candidate {
        config_file,
        layers: layers.collect(),
        tags,
        digests: Default::default(),
        manifests: vec![],
    })
}

/// The digest that a file's name claims: `<hex>.json` or `blobs/sha256/<hex>`.
fn digest_in_name(name: &str) -> Option<Digest> {
    let base = name.rsplit('/').next()?;
    Digest::parse(&format!("sha256:{}", base.strip_suffix(".json").unwrap_or(base)))
}

//! The OCI image layout: `index.json` leads to manifests, those to configurations and layers.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::archive::ArchiveError;
use super::members::Members;
use super::{Candidate, MemberLayer};
use crate::content::Digest;
use crate::image::architecture;
use crate::name::ImageName;

pub(crate) const INDEX: &str = "index.json";
/// How deep indexes may lie in one another.
const DEPTH: usize = 4;

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub digest: String,
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub platform: Option<Platform>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Platform {
    pub architecture: String,
    pub os: String,
}

/// A manifest of one image, or a list of manifests.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    #[serde(default)]
    pub schema_version: u32,
    #[serde(default)]
    pub manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    pub config: Option<Descriptor>,
    #[serde(default)]
    pub layers: Vec<Descriptor>,
}

/// The manifest for this machine out of a list: Linux and its CPU; one without a platform only if it is alone.
pub(crate) fn choose(manifests: &[Descriptor]) -> Option<&Descriptor> {
    let fits = |platform: &Platform| platform.os == "linux" && platform.architecture == architecture();
    match manifests {
        [only] if only.platform.is_none() => Some(only),
        many => many.iter().find(|one| one.platform.as_ref().is_some_and(fits)),
    }
}

/// What the list offers, for the error that says it does not fit.
pub(crate) fn offered(manifests: &[Descriptor]) -> String {
    let platforms: BTreeSet<String> = manifests
        .iter()
        .filter_map(|one| one.platform.as_ref())
        .map(|platform| format!("{}/{}", platform.os, platform.architecture))
        .collect();
    platforms.into_iter().collect::<Vec<_>>().join(", ")
}

/// The images of the layout. `stem` is the name of its file or folder.
pub(crate) fn images(members: &Members, index: &[u8], stem: &str) -> Result<Vec<Candidate>, ArchiveError> {
    let index = decode(INDEX, index)?;
    let entries = index.manifests.unwrap_or_default();
    if entries.is_empty() {
        return Err(ArchiveError::content(INDEX, "it names no image"));
    }
    // Several entries of one name are one image for several platforms.
    let several = entries.iter().any(|entry| entry.platform.is_some())
        && entries.iter().all(|e| name(e, stem).is_none());
    if several {
        let entry = choose(&entries).ok_or_else(|| no_platform(INDEX, &entries))?;
        return Ok(vec![image(members, entry, None, DEPTH)?]);
    }
    entries.iter().map(|entry| image(members, entry, name(entry, stem).as_ref(), DEPTH)).collect()
}

fn no_platform(member: &str, manifests: &[Descriptor]) -> ArchiveError {
    let why = format!("it has no image for linux/{}, only for {}", architecture(), offered(manifests));
    ArchiveError::content(member, why)
}

fn decode(member: &str, bytes: &[u8]) -> Result<Manifest, ArchiveError> {
    serde_json::from_slice(bytes).map_err(|source| ArchiveError::Json { member: member.to_owned(), source })
}

/// The name an entry was saved under. Many tools note the tag alone: then the layout's own name is the repository, of
/// the host `localhost` since it is nobody else's.
fn name(entry: &Descriptor, stem: &str) -> Option<ImageName> {
    let full = entry.annotations.get("io.containerd.image.name");
    let text = full.or_else(|| entry.annotations.get("org.opencontainers.image.ref.name"))?;
    if text.contains([':', '/']) {
        return ImageName::parse(text).ok();
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let stem: String = stem.chars().map(plain).collect();
    ImageName::parse(&format!("localhost/{}:{text}", stem.trim_matches('-'))).ok()
}

fn image(
    members: &Members,
    entry: &Descriptor,
    name: Option<&ImageName>,
    depth: usize,
) -> Result<Candidate, ArchiveError> {
    let (member, digest) = blob(INDEX, &entry.digest)?;
    let bytes = members.required(&member)?;
    verify(&member, &bytes, &digest)?;
    let manifest = decode(&member, &bytes)?;
    if let Some(list) = &manifest.manifests {
        let next = choose(list).ok_or_else(|| no_platform(&member, list))?;
        if depth == 0 {
            return Err(ArchiveError::content(&member, "lists of manifests lie too deep in one another"));
        }
        let mut candidate = image(members, next, name, depth - 1)?;
        candidate.digests.extend(name.map(|name| name.with_digest(digest.as_str())));
        candidate.manifests.push(bytes);
        return Ok(candidate);
    }
    let config =
        manifest.config.ok_or_else(|| ArchiveError::content(&member, "it names no configuration"))?;
    let (config_member, config_digest) = blob(&member, &config.digest)?;
    let config_file = members.required(&config_member)?;
    verify(&config_member, &config_file, &config_digest)?;
    let layers = manifest.layers.iter().map(|layer| {
        let (layer_member, digest) = blob(&member, &layer.digest)?;
        Ok(MemberLayer { member: layer_member, digest: Some(digest) })
    });
    let layers = layers.collect::<Result<_, ArchiveError>>()?;
    let tags = name.and_then(ImageName::tagged).into_iter().collect();
    let digests = name.map(|name| name.with_digest(digest.as_str())).into_iter().collect();
    Ok(Candidate { config_file, layers, tags, digests, manifests: vec![bytes] })
}

fn blob(named_by: &str, digest: &str) -> Result<(String, Digest), ArchiveError> {
    let parsed = Digest::parse(digest)
        .ok_or_else(|| ArchiveError::content(named_by, format!("it names {digest:?}, which is no sha256")))?;
    Ok((format!("blobs/sha256/{}", parsed.hex()), parsed))
}

fn verify(member: &str, bytes: &[u8], expected: &Digest) -> Result<(), ArchiveError> {
    let actual = Digest::of(bytes);
    if actual == *expected {
        Ok(())
    } else {
        Err(ArchiveError::content(member, format!("its content is {actual}")))
    }
}

/// A name inside an archive without `.` and `..`, relative to `folder`; none if it leads out.
pub(crate) fn clean(folder: &str, name: &str) -> Option<String> {
    let mut parts: Vec<&str> = if name.starts_with('/') { vec![] } else { folder.split('/').collect() };
    parts.retain(|part| !part.is_empty());
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_inside_an_archive_never_lead_out() {
        assert_eq!(clean("", "./a//b"), Some("a/b".into()));
        assert_eq!(clean("x", "../y/layer.tar"), Some("y/layer.tar".into()));
        assert_eq!(clean("x", "/y"), Some("y".into()));
        assert_eq!(clean("x", "../../y"), None);
    }

    #[test]
    fn an_entry_is_named_in_full_or_by_its_tag_and_the_layouts_name() {
        let of = |key: &str, value: &str| Descriptor {
            digest: String::new(),
            size: 0,
            annotations: BTreeMap::from([(key.to_owned(), value.to_owned())]),
            platform: None,
        };
        let short = "org.opencontainers.image.ref.name";
        for (key, value, expected) in [
            (short, "r.io/a:1", Some("r.io/a:1")),
            (short, "v1.0", Some("localhost/my-app:v1.0")),
            ("io.containerd.image.name", "docker.io/library/a:2", Some("docker.io/library/a:2")),
            ("other", "x", None),
        ] {
            let name = name(&of(key, value), "My_App").map(|name| name.to_string());
            assert_eq!(name.as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn the_manifest_for_this_machine_is_chosen() {
        let of = |json: &str| serde_json::from_str::<Vec<Descriptor>>(json).unwrap();
        let arch = architecture();
        let list = of(&format!(
            r#"[{{"digest":"w","platform":{{"os":"windows","architecture":"{arch}"}}}},
                {{"digest":"o","platform":{{"os":"linux","architecture":"other"}}}},
                {{"digest":"u","platform":{{"os":"unknown","architecture":"unknown"}}}},
                {{"digest":"l","platform":{{"os":"linux","architecture":"{arch}"}}}}]"#
        ));
        assert_eq!(choose(&list).unwrap().digest, "l");
        assert!(choose(&list[..3]).is_none());
        assert!(offered(&list[..2]).contains("linux/other"));
        assert_eq!(choose(&of(r#"[{"digest":"x"}]"#)).unwrap().digest, "x");
    }
}

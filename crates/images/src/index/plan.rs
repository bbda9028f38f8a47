//! The images of a store and the rules for their names. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::content::Digest;
use crate::image::{Image, ImageConfig};
use crate::name::ImageName;

/// The fewest digits of an id that name an image.
const SHORT_ID: usize = 4;

/// What the index holds of one image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub tags: BTreeSet<String>,
    pub digests: BTreeSet<String>,
    pub size: u64,
    pub config: ImageConfig,
    /// Chain ids, lowest first.
    pub layers: Vec<Digest>,
    /// The manifests it came by, kept as blobs.
    pub manifests: BTreeSet<Digest>,
}

/// All images by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    pub images: BTreeMap<Digest, Record>,
}

/// How a reference named an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// By its id, whole or short.
    Id(Digest),
    /// By one of its tags.
    Tag(Digest, String),
    /// By the digest of a manifest it came by.
    RepoDigest(Digest, String),
}

impl Found {
    pub fn id(&self) -> &Digest {
        match self {
            Self::Id(id) | Self::Tag(id, _) | Self::RepoDigest(id, _) => id,
        }
    }
}

impl Index {
    /// Adds an image or joins its names to those it has. A tag that named another image moves.
    pub fn add(&mut self, id: &Digest, record: Record) {
        for (other, held) in &mut self.images {
            if other != id {
                held.tags.retain(|tag| !record.tags.contains(tag));
            }
        }
        match self.images.get_mut(id) {
            Some(held) => {
                held.tags.extend(record.tags);
                held.digests.extend(record.digests);
                held.manifests.extend(record.manifests);
                held.size = record.size;
                held.config = record.config;
                held.layers = record.layers;
            }
            None => {
                self.images.insert(id.clone(), record);
            }
        }
    }

    /// The image that `text` names, if there is exactly one.
    pub fn find(&self, text: &str) -> Option<Found> {
        if let Some(id) = Digest::parse(text) {
            return self.images.contains_key(&id).then_some(Found::Id(id));
        }
        if let Ok(name) = ImageName::parse(text)
            && let Some(found) = self.find_name(&name)
        {
            return Some(found);
        }
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        if hex.len() < SHORT_ID || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let mut matching = self.images.keys().filter(|id| id.hex().starts_with(hex));
        let first = matching.next()?;
        matching.next().is_none().then(|| Found::Id(first.clone()))
    }

    fn find_name(&self, name: &ImageName) -> Option<Found> {
        if let Some(digest) = name.digest() {
            let full = name.with_digest(digest);
            let (id, _) = self.images.iter().find(|(_, record)| record.digests.contains(&full))?;
            return Some(Found::RepoDigest(id.clone(), full));
        }
        let tag = name.tagged()?;
        let (id, _) = self.images.iter().find(|(_, record)| record.tags.contains(&tag))?;
        Some(Found::Tag(id.clone(), tag))
    }

    /// Takes away the name that was given; the image goes with its last tag, or at once if it was named by id.
    /// True if anything changed.
    pub fn remove(&mut self, text: &str) -> bool {
        let Some(found) = self.find(text) else { return false };
        let Some(record) = self.images.get_mut(found.id()) else { return false };
        let gone = match &found {
            Found::Id(_) => true,
            Found::Tag(_, tag) => {
                record.tags.remove(tag);
                record.tags.is_empty()
            }
            Found::RepoDigest(_, digest) => {
                record.digests.remove(digest);
                record.tags.is_empty() && record.digests.is_empty()
            }
        };
        if gone {
            self.images.remove(found.id());
        }
        true
    }

    /// The image with that id, for its users.
    pub fn image(&self, id: &Digest) -> Option<Image> {
        let record = self.images.get(id)?;
        Some(Image {
            id: id.as_str().to_owned(),
            repo_tags: record.tags.iter().cloned().collect(),
            repo_digests: record.digests.iter().cloned().collect(),
            size: record.size,
            config: record.config.clone(),
            layers: record.layers.iter().map(|layer| layer.as_str().to_owned()).collect(),
        })
    }

    /// Every layer that some image needs.
    pub fn layers(&self) -> BTreeSet<&Digest> {
        self.images.values().flat_map(|record| &record.layers).collect()
    }

    /// Every blob that some image needs.
    pub fn blobs(&self) -> BTreeSet<&Digest> {
        self.images.iter().flat_map(|(id, record)| record.manifests.iter().chain([id])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tags: &[&str], digests: &[&str]) -> Record {
        Record {
            tags: tags.iter().map(ToString::to_string).collect(),
            digests: digests.iter().map(ToString::to_string).collect(),
            size: 1,
            config: ImageConfig::default(),
            layers: vec![],
            manifests: BTreeSet::new(),
        }
    }

    fn index() -> (Index, Digest, Digest) {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let mut index = Index::default();
        let by_digest = format!("r.io/b@{}", Digest::of(b"m"));
        index.add(&a, record(&["docker.io/library/app:latest", "docker.io/library/app:1"], &[]));
        index.add(&b, record(&["r.io/b:2"], &[&by_digest]));
        (index, a, b)
    }

    #[test]
    fn an_image_is_found_by_every_kind_of_name() {
        let (index, a, b) = index();
        let by_digest = format!("r.io/b@{}", Digest::of(b"m"));
        for (text, id) in [
            (a.as_str(), Some(&a)),
            (a.hex(), Some(&a)),
            (&a.hex()[..12], Some(&a)),
            (&b.as_str()[..20], Some(&b)),
            ("app", Some(&a)),
            ("docker.io/library/app:1", Some(&a)),
            ("app:3", None),
            ("r.io/b:2", Some(&b)),
            ("r.io/b", None),
            (&by_digest, Some(&b)),
            ("", None),
            ("not a name", None),
        ] {
            assert_eq!(index.find(text).as_ref().map(Found::id), id, "{text}");
        }
    }

    #[test]
    fn a_tag_names_one_image_at_a_time() {
        let (mut index, a, b) = index();
        index.add(&b, record(&["docker.io/library/app:latest"], &[]));
        assert_eq!(index.find("app").unwrap().id(), &b);
        assert_eq!(index.image(&a).unwrap().repo_tags, ["docker.io/library/app:1"]);
        assert_eq!(index.image(&b).unwrap().repo_tags, ["docker.io/library/app:latest", "r.io/b:2"]);
    }

    #[test]
    fn an_image_goes_with_its_last_tag_or_at_once_by_id() {
        let (mut index, a, b) = index();
        assert!(index.remove("app:1"));
        assert!(index.image(&a).is_some());
        assert!(index.remove("app"));
        assert!(index.image(&a).is_none());
        assert!(!index.remove("app"), "removing what is gone changes nothing");
        assert!(index.remove(b.as_str()));
        assert!(index.images.is_empty());
    }
}

//! From a reference to the manifest for this machine and its configuration.

use super::error::RegistryError;
use super::registry::Registry;
use crate::content::Digest;
use crate::error::ImageError;
use crate::image::{self, Parsed, architecture};
use crate::import::{Descriptor, Manifest, choose, offered};
use crate::name::ImageName;

/// The kinds of manifests that are understood.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// How deep lists may lie in one another.
const DEPTH: usize = 3;

/// An image as its registry describes it.
pub(crate) struct Resolved {
    /// Of what the reference names: the list, if it is one.
    pub digest: Digest,
    /// All manifests on the way.
    pub manifests: Vec<Vec<u8>>,
    pub layers: Vec<(Digest, u64)>,
    pub config_file: Vec<u8>,
    pub parsed: Parsed,
}

/// Follows the reference. `held` gives a configuration that is already here.
pub(crate) async fn resolve(
    registry: &Registry,
    name: &ImageName,
    held: impl Fn(&Digest) -> Option<Vec<u8>>,
) -> Result<Resolved, ImageError> {
    let fail =
        |source| ImageError::Pull { image: name.to_string(), registry: name.registry().to_owned(), source };
    let content = |why| ImageError::Content { image: name.to_string(), why };
    let mut reference = name.digest().or(name.tag()).unwrap_or("latest").to_owned();
    let mut manifests = Vec::new();
    let mut top = None;
    let manifest = loop {
        let bytes = registry.manifest(&reference, ACCEPT).await.map_err(fail)?;
        let digest = Digest::of(&bytes);
        if let Some(expected) = Digest::parse(&reference)
            && expected != digest
        {
            return Err(content(format!("its manifest {expected} arrived as {digest}")));
        }
        top.get_or_insert(digest);
        let manifest: Manifest =
            serde_json::from_slice(&bytes).map_err(|e| content(format!("its manifest is not valid: {e}")))?;
        manifests.push(bytes);
        let Some(list) = &manifest.manifests else { break manifest };
        let next = choose(list).ok_or_else(|| content(no_platform(list)))?;
        if manifests.len() > DEPTH {
            return Err(content("its lists of manifests lie too deep in one another".into()));
        }
        reference = digest_of(next).map_err(content)?.to_string();
    };
    if manifest.schema_version != 2 {
        return Err(content(format!("its manifest has schema version {}, not 2", manifest.schema_version)));
    }
    let config =
        manifest.config.as_ref().ok_or_else(|| content("its manifest names no configuration".into()))?;
    let config_digest = digest_of(config).map_err(content)?;
    let config_file = match held(&config_digest) {
        Some(bytes) => bytes,
        None => registry.small_blob(config_digest.as_str()).await.map_err(fail)?,
    };
    let actual = Digest::of(&config_file);
    if actual != config_digest {
        return Err(content(format!("its configuration {config_digest} arrived as {actual}")));
    }
    let parsed = image::parse(&config_file).map_err(content)?;
    let layers = manifest.layers.iter().map(|layer| Ok((digest_of(layer)?, layer.size)));
    let layers = layers.collect::<Result<Vec<_>, String>>().map_err(content)?;
    if layers.len() != parsed.diff_ids.len() {
        let (named, there) = (parsed.diff_ids.len(), layers.len());
        return Err(content(format!("its configuration names {named} layers, its manifest {there}")));
    }
    let digest = top.ok_or_else(|| {
        fail(RegistryError::Protocol { url: name.registry().to_owned(), why: "it sent no manifest".into() })
    })?;
    Ok(Resolved { digest, manifests, layers, config_file, parsed })
}

fn digest_of(descriptor: &Descriptor) -> Result<Digest, String> {
    Digest::parse(&descriptor.digest)
        .ok_or_else(|| format!("its manifest names {:?}, which is no sha256", descriptor.digest))
}

fn no_platform(list: &[Descriptor]) -> String {
    format!("it has no manifest for linux/{}, only for {}", architecture(), offered(list))
}

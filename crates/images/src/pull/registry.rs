//! A registry during one pull: the hosts that may have its images, tried in their order.

use std::time::Duration;

use super::auth::Auth;
use super::endpoint::{Body, Endpoint};
use super::error::RegistryError;
use super::hosts::{self, Need};
use crate::name::ImageName;
use crate::store::Registries;

/// A registry, and one repository of it.
pub(crate) struct Registry {
    endpoints: Vec<Endpoint>,
}

impl Registry {
    pub fn new(
        name: &ImageName,
        auth: Option<&Auth>,
        options: &Registries,
        patience: Duration,
    ) -> Result<Self, RegistryError> {
        let registry = name.registry();
        let plain = options.insecure.iter().any(|insecure| insecure == registry);
        let hosts = hosts::of_registry(registry, plain, options.hosts_dir.as_deref())?;
        let endpoints = hosts
            .into_iter()
            .map(|host| Endpoint::new(host, registry, name.repository(), auth.cloned(), options, patience));
        Ok(Self { endpoints: endpoints.collect::<Result<_, _>>()? })
    }

    /// A manifest by tag or digest.
    pub async fn manifest(&self, reference: &str, accept: &str) -> Result<Vec<u8>, RegistryError> {
        let need = if reference.contains(':') { Need::Pull } else { Need::Resolve };
        self.fetch(need, "manifests", reference, Some(accept)).await?.all().await
    }

    /// The whole of a small blob.
    pub async fn small_blob(&self, digest: &str) -> Result<Vec<u8>, RegistryError> {
        self.blob(digest).await?.all().await
    }

    /// A blob.
    pub async fn blob(&self, digest: &str) -> Result<Body, RegistryError> {
        self.fetch(Need::Pull, "blobs", digest, None).await
    }

    /// From the first host that has it. If none does, what all of them said.
    async fn fetch(
        &self,
        need: Need,
        what: &str,
        reference: &str,
        accept: Option<&str>,
    ) -> Result<Body, RegistryError> {
        let mut refusals = Vec::new();
        let able: Vec<&Endpoint> = self.endpoints.iter().filter(|e| e.host.serves(need)).collect();
        for (place, endpoint) in able.iter().enumerate() {
            if endpoint.is_away() && place + 1 < able.len() {
                continue;
            }
            match endpoint.fetch(what, reference, accept).await {
                Ok(body) => return Ok(body),
                Err(error) => {
                    tracing::debug!(host = endpoint.host.name(), %error, "a host does not have it");
                    refusals.push((endpoint.host.name().to_owned(), error));
                }
            }
        }
        Err(RegistryError::of_several(refusals))
    }
}

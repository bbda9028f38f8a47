//! The ConfigMaps and Secrets that a Pod refers to, read when they are needed.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::{ConfigMap, Container, Secret};
use trine_typed::kube::{Api, Client};

use crate::error::{KubeletError, api};

/// ConfigMaps and Secrets of one namespace; `None` is one that does not exist.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// By name.
    pub config_maps: BTreeMap<String, Option<ConfigMap>>,
    /// By name.
    pub secrets: BTreeMap<String, Option<Secret>>,
}

impl Sources {
    /// The ConfigMap `name`.
    ///
    /// # Errors
    /// [`KubeletError::Invalid`] if it does not exist and is not `optional`.
    pub fn config_map(&self, name: &str, optional: bool) -> Result<Option<&ConfigMap>, KubeletError> {
        match self.config_maps.get(name).and_then(Option::as_ref) {
            None if !optional => Err(KubeletError::Invalid(format!("configmap {name:?} not found"))),
            found => Ok(found),
        }
    }

    /// The Secret `name`.
    ///
    /// # Errors
    /// [`KubeletError::Invalid`] if it does not exist and is not `optional`.
    pub fn secret(&self, name: &str, optional: bool) -> Result<Option<&Secret>, KubeletError> {
        match self.secrets.get(name).and_then(Option::as_ref) {
            None if !optional => Err(KubeletError::Invalid(format!("secret {name:?} not found"))),
            found => Ok(found),
        }
    }

    /// Reads what `names` names and is not there yet.
    ///
    /// # Errors
    /// [`KubeletError::Api`].
    pub async fn read(&mut self, client: &Client, namespace: &str, names: Names) -> Result<(), KubeletError> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        for name in names.config_maps {
            let found = api("get ConfigMap", &format!("{namespace}/{name}"), maps.get_opt(&name)).await?;
            self.config_maps.insert(name, found);
        }
        for name in names.secrets {
            let found = api("get Secret", &format!("{namespace}/{name}"), secrets.get_opt(&name)).await?;
            self.secrets.insert(name, found);
        }
        Ok(())
    }
}

/// Names that something refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// ConfigMaps.
    pub config_maps: std::collections::BTreeSet<String>,
    /// Secrets.
    pub secrets: std::collections::BTreeSet<String>,
}

impl Names {
    /// What the environment of `container` refers to.
    #[must_use]
    pub fn of_env(container: &Container) -> Self {
        let mut names = Self::default();
        for from in container.env_from.iter().flatten() {
            names.config_maps.extend(from.config_map_ref.as_ref().map(|r| r.name.clone()));
            names.secrets.extend(from.secret_ref.as_ref().map(|r| r.name.clone()));
        }
        for from in container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
            names.config_maps.extend(from.config_map_key_ref.as_ref().map(|r| r.name.clone()));
            names.secrets.extend(from.secret_key_ref.as_ref().map(|r| r.name.clone()));
        }
        names
    }
}

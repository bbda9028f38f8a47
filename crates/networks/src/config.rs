//! What the plugin is told. Keys are Multus'.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};
use trine_cni::spec::{CniError, Code, Request};
use trine_contracts::networks::Isolation;
use trine_contracts::networks::attachments::Attachment;

/// The configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// How the API is reached; without it there is only the default network.
    pub kubeconfig: Option<PathBuf>,
    /// The default network: the path of a file, or the name of one in `conf_dir`.
    pub cluster_network: String,
    /// Or: its configuration.
    pub delegates: Vec<Value>,
    /// Where networks are that are named (`/etc/cni/multus/net.d`).
    pub conf_dir: PathBuf,
    /// Where what is attached is written down (`/var/lib/cni/trine-networks`).
    pub cni_dir: PathBuf,
    /// Where plugins are, before `CNI_PATH`.
    pub bin_dir: PathBuf,
    /// Pods may name definitions of their own namespace only.
    pub namespace_isolation: bool,
    /// And of these, separated by commas (`default`).
    pub global_namespaces: String,
    /// What the runtime offers, for the default network alone.
    pub runtime_config: Map<String, Value>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            cluster_network: String::new(),
            delegates: Vec::new(),
            conf_dir: "/etc/cni/multus/net.d".into(),
            cni_dir: "/var/lib/cni/trine-networks".into(),
            bin_dir: "/opt/cni/bin".into(),
            namespace_isolation: false,
            global_namespaces: "default".to_owned(),
            runtime_config: Map::new(),
        }
    }
}

fn invalid(why: impl Into<String>) -> CniError {
    CniError::new(Code::InvalidConfig, why)
}

impl Config {
    /// Reads it from a request.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`].
    pub fn of(request: &Request) -> Result<Self, CniError> {
        let config: Self = request.config()?;
        match (config.delegates.len(), config.cluster_network.is_empty()) {
            (1, true) | (0, false) => Ok(config),
            (0, true) => Err(invalid("neither delegates nor clusterNetwork say what the default network is")),
            (1, false) => Err(invalid("delegates and clusterNetwork both say what the default network is")),
            _ => Err(invalid("there is one default network: further ones are named by Pods")),
        }
    }

    /// The default network, by the link `ifname`.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`], [`Code::Io`] if its file cannot be read.
    pub fn default_network(&self, ifname: &str) -> Result<Attachment, CniError> {
        let (config, config_name) = match self.delegates.first() {
            Some(delegate) => (Some(delegate.clone()), None),
            None if self.cluster_network.starts_with('/') => {
                (Some(read(Path::new(&self.cluster_network))?), None)
            }
            None => (None, Some(self.cluster_network.clone())),
        };
        Ok(Attachment { interface: ifname.to_owned(), config, config_name, ..Attachment::default() })
    }

    /// Whose definitions Pods may name.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        if !self.namespace_isolation {
            return Isolation::None;
        }
        let open = self.global_namespaces.split(',').map(str::trim).filter(|open| !open.is_empty());
        Isolation::Except(open.map(str::to_owned).collect())
    }
}

fn read(path: &Path) -> Result<Value, CniError> {
    let text = std::fs::read(path)
        .map_err(|e| CniError::new(Code::Io, format!("cannot read {}", path.display())).because(e))?;
    serde_json::from_slice(&text).map_err(|e| invalid(format!("{} is not JSON", path.display())).because(e))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trine_cni::spec::Env;

    use super::*;

    fn config(more: Value) -> Result<Config, CniError> {
        let mut all = json!({"cniVersion": "1.0.0", "name": "n", "type": "trine-networks"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Config::of(&Request::new(&Env::default(), all)?)
    }

    #[test]
    fn there_is_one_default_network_from_where_it_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("10-net.conflist");
        std::fs::write(&file, r#"{"name":"f","plugins":[{"type":"a"}]}"#).unwrap();
        let of = |more| config(more)?.default_network("eth0");
        let given = of(json!({"delegates": [{"name": "d", "type": "bridge"}]})).unwrap();
        assert_eq!((given.config.unwrap()["name"].clone(), given.config_name), (json!("d"), None));
        assert_eq!(of(json!({"clusterNetwork": file})).unwrap().config.unwrap()["name"], "f");
        assert_eq!(of(json!({"clusterNetwork": "flannel"})).unwrap().config_name.as_deref(), Some("flannel"));
        let d = json!({"name": "d", "type": "bridge"});
        for (more, part) in [
            (json!({}), "neither"),
            (json!({"delegates": [d], "clusterNetwork": "x"}), "both"),
            (json!({"delegates": [d, d]}), "one default network"),
            (json!({"clusterNetwork": "/none"}), "cannot read /none"),
        ] {
            let why = of(more).unwrap_err().to_string();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn isolation_is_as_multus_has_it() {
        let of = |more: Value| {
            let mut all = json!({"clusterNetwork": "x"});
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            config(all).unwrap().isolation()
        };
        assert_eq!(of(json!({})), Isolation::None);
        let open = |names: &[&str]| Isolation::Except(names.iter().map(|n| (*n).to_owned()).collect());
        assert_eq!(of(json!({"namespaceIsolation": true})), open(&["default"]));
        assert_eq!(of(json!({"namespaceIsolation": true, "globalNamespaces": "a, b"})), open(&["a", "b"]));
    }
}

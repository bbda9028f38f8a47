//! The operations: the default network first, then the others in their order; back in reverse.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Map;
use trine_cni::spec::{AttachmentId, CniError, CniResult, Code, Request, parse_args};
use trine_cni::{Attachment, Plugin, Runtime, RuntimeOptions};
use trine_contracts::networks::{Attached, Attachments};

use crate::config::Config;
use crate::pod::{Known, Named};
use crate::record::Records;

/// The plugin's type.
pub const NAME: &str = "trine-networks";

/// Serves it as a program of its own, by `CNI_*` from the environment and the configuration from standard input.
fn plugin_main() -> ExitCode {
    // The second in one process is refused; there is none.
    let _ = rustls::crypto::ring::default_provider().install_default();
    trine_cni::program(&Networks)
}

/// Is the plugin if the program was called by its name; nothing if it was called as something else.
pub fn called_otherwise(words: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let program = words.into_iter().next().unwrap_or_default();
    (Path::new(&program).file_name()? == NAME).then(plugin_main)
}

/// The plugin.
struct Networks;

/// One request.
struct Work<'a> {
    request: &'a Request,
    config: Config,
    records: Records,
    runtime: Runtime,
}

impl Plugin for Networks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let work = Work::of(request)?;
        wait(work.add())
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        let work = Work::of(request)?;
        wait(work.del())
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let work = Work::of(request)?;
        wait(work.check())
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        let work = Work::of(request)?;
        wait(work.gc())
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        let work = Work::of(request)?;
        let all = Attachments { default: Some(work.default()?), networks: Vec::new() };
        wait(async {
            for (_, attachment) in work.attachments(&request.env.container_id, &all) {
                work.runtime.status_of(&attachment).await?;
            }
            Ok(())
        })
    }
}

fn wait<T>(work: impl Future<Output = Result<T, CniError>>) -> Result<T, CniError> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
    tokio.map_err(|e| CniError::new(Code::Internal, "cannot begin").because(e))?.block_on(work)
}

/// A runtime that knows no network but those that it is told.
fn runtime(config: &Config, request: &Request, conf_dir: PathBuf) -> Runtime {
    Runtime::new(RuntimeOptions {
        conf_dir,
        bin_dirs: std::iter::once(config.bin_dir.clone()).chain(request.path()).collect(),
        cache_dir: config.cni_dir.clone(),
        data_dir: config.cni_dir.clone(),
        instance: "000000".to_owned(),
    })
}

impl<'a> Work<'a> {
    fn of(request: &'a Request) -> Result<Self, CniError> {
        let config = Config::of(request)?;
        if config.cluster_network == request.network {
            let msg = format!("the default network {:?} is this one itself", request.network);
            return Err(CniError::new(Code::InvalidConfig, msg));
        }
        let records = Records::new(&config.cni_dir);
        let runtime = runtime(&config, request, config.conf_dir.clone());
        Ok(Self { request, config, records, runtime })
    }

    fn container(&self) -> &str {
        &self.request.env.container_id
    }

    fn default(&self) -> Result<trine_contracts::networks::Attachment, CniError> {
        self.config.default_network(&self.request.env.ifname)
    }

    /// What the runtime is to do for a container.
    fn attachments(&self, container: &str, all: &Attachments) -> Vec<(String, Attachment)> {
        let own = Attachment {
            container_id: container.to_owned(),
            netns: PathBuf::from(&self.request.env.netns),
            args: parse_args(&self.request.env.args),
            capabilities: self.config.runtime_config.clone(),
            ..Attachment::default()
        };
        let others = Attachment { capabilities: Map::new(), ..own.clone() };
        let default = all.default.iter().map(|one| (one.name.clone(), own.clone().told(one.clone())));
        default
            .chain(all.networks.iter().map(|one| (one.name.clone(), others.clone().told(one.clone()))))
            .collect()
    }

    /// The Pod, if the runtime says that this is one, and the API can be asked.
    async fn pod(&self) -> Result<Option<Known>, CniError> {
        let arg = |key: &str| self.request.arg(key).unwrap_or_default();
        let named =
            Named { namespace: arg("K8S_POD_NAMESPACE"), name: arg("K8S_POD_NAME"), uid: arg("K8S_POD_UID") };
        match &self.config.kubeconfig {
            Some(kubeconfig) if !named.name.is_empty() => Known::read(kubeconfig, &named).await.map(Some),
            _ => Ok(None),
        }
    }

    async fn add(&self) -> Result<CniResult, CniError> {
        let pod = self.pod().await?;
        let asked = match &pod {
            Some(pod) => pod.asked(&self.config.isolation()).await?,
            None => None,
        };
        let say = pod.filter(|_| asked.is_some());
        let all = with_default(asked.unwrap_or_default(), self.default()?);
        // Before the act: from here on there may be something to take back.
        self.records.put(self.container(), &all)?;
        let made = async {
            let attached = self.attach(&all).await?;
            if let Some(pod) = say {
                pod.say(&attached).await?;
            }
            let default = attached.iter().find(|one| one.default);
            CniResult::from_json(&default.map(|one| one.result.clone()).unwrap_or_default())
        };
        match made.await {
            Ok(result) => Ok(result),
            Err(error) => Err(match self.detach(self.container(), &all).await {
                Ok(()) => error,
                // The record stays: DEL and GC try again.
                Err(undo) => {
                    let details = format!("{} undoing it failed: {}", error.details, undo.chain());
                    error.details(details)
                }
            }),
        }
    }

    async fn attach(&self, all: &Attachments) -> Result<Vec<Attached>, CniError> {
        let mut attached = Vec::new();
        for (name, attachment) in self.attachments(self.container(), all) {
            let made = self.runtime.add(&attachment).await?;
            let default = attachment.ifname == self.request.env.ifname;
            attached.push(made.told(&name, &attachment.ifname, default)?);
        }
        Ok(attached)
    }

    /// Takes all of it back, each whatever became of the others, and then the record.
    async fn detach(&self, container: &str, all: &Attachments) -> Result<(), CniError> {
        let mut errors = Vec::new();
        for (_, attachment) in self.attachments(container, all).iter().rev() {
            errors.extend(self.runtime.del(attachment).await.err());
        }
        CniError::all(errors)?;
        self.records.remove(container)
    }

    async fn del(&self) -> Result<(), CniError> {
        // Without a record there was no ADD that made anything; another plugin's would have been the default network's.
        let all = match self.records.get(self.container()) {
            Some(all) => all,
            None => Attachments { default: self.default().ok(), networks: Vec::new() },
        };
        self.detach(self.container(), &all).await
    }

    async fn check(&self) -> Result<(), CniError> {
        let all = self.records.get(self.container()).ok_or_else(|| {
            CniError::new(Code::UnknownContainer, format!("container {} is not attached", self.container()))
        })?;
        for (_, attachment) in self.attachments(self.container(), &all) {
            self.runtime.check(&attachment).await?;
        }
        Ok(())
    }

    async fn gc(&self) -> Result<(), CniError> {
        let valid: BTreeSet<String> =
            self.request.valid_attachments()?.into_iter().map(|id| id.container_id).collect();
        let (mut errors, mut stay) = (Vec::new(), Vec::new());
        for container in self.records.containers() {
            let record = self.records.get(&container);
            if !valid.contains(&container) {
                errors.extend(self.detach(&container, &record.unwrap_or_default()).await.err());
                continue;
            }
            let all = record.ok_or_else(|| {
                // What it has would be taken for stale.
                CniError::new(Code::Io, format!("the record of container {container} is damaged"))
            })?;
            let id = |ifname| AttachmentId { container_id: container.clone(), ifname };
            let links = self.attachments(&container, &all);
            stay.extend(links.into_iter().map(|(_, attachment)| id(attachment.ifname)));
        }
        // What no record tells of. Networks are those of records alone: a folder might hold this one.
        let nowhere = runtime(&self.config, self.request, Path::new("/nonexistent").to_owned());
        errors.extend(nowhere.gc(&stay).await.err());
        CniError::all(errors)
    }
}

/// With the node's default network, unless the Pod names another.
fn with_default(asked: Attachments, own: trine_contracts::networks::Attachment) -> Attachments {
    let default = match asked.default {
        Some(named) if named.config.is_some() || named.config_name.is_some() => {
            trine_contracts::networks::Attachment { interface: own.interface, ..named }
        }
        Some(named) => trine_contracts::networks::Attachment { gateways: named.gateways, ..own },
        None => own,
    };
    Attachments { default: Some(default), networks: asked.networks }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trine_cni::Which;
    use trine_cni::spec::Env;
    use trine_contracts::networks;

    use super::*;

    fn request(cluster_network: &str) -> Request {
        let env = Env {
            container_id: "c".to_owned(),
            netns: "/n".to_owned(),
            ifname: "link0".to_owned(),
            args: "K8S_POD_NAME=p".to_owned(),
            ..Env::default()
        };
        let config = json!({"cniVersion": "1.0.0", "name": "n", "type": NAME, "clusterNetwork": cluster_network,
            "runtimeConfig": {"portMappings": [{"hostPort": 80}]}});
        Request::new(&env, config).unwrap()
    }

    #[test]
    fn what_the_runtime_offers_is_for_the_default_network_alone() {
        let request = request("flannel");
        let work = Work::of(&request).unwrap();
        let asked = r#"{"default": {"interface": "eth0", "gateways": []},
            "networks": [{"name": "n/a", "interface": "net1", "config": {"name": "a", "type": "b"}}]}"#;
        let all = with_default(Attachments::parse(asked).unwrap(), work.default().unwrap());
        let links = work.attachments("c", &all);
        let [(_, default), (name, other)] = &links[..] else { panic!("{links:?}") };
        assert_eq!((default.ifname.as_str(), &default.which), ("link0", &Which::Named("flannel".to_owned())));
        assert!(default.capabilities.contains_key("portMappings") && default.gateways == Some(Vec::new()));
        assert_eq!((name.as_str(), other.ifname.as_str()), ("n/a", "net1"));
        assert!(other.capabilities.is_empty() && other.arg("K8S_POD_NAME") == Some("p"));
    }

    #[test]
    fn a_pods_own_default_network_has_the_link_of_the_nodes() {
        let request = request("flannel");
        let work = Work::of(&request).unwrap();
        let named = networks::Attachment {
            name: "kube-system/d".to_owned(),
            interface: "eth0".to_owned(),
            config_name: Some("d".to_owned()),
            ..networks::Attachment::default()
        };
        let asked = Attachments { default: Some(named), networks: Vec::new() };
        let default = with_default(asked, work.default().unwrap()).default.unwrap();
        assert_eq!((default.interface.as_str(), default.config_name.as_deref()), ("link0", Some("d")));
    }

    #[test]
    fn a_default_network_that_is_the_plugin_itself_is_refused() {
        let why = Work::of(&request("n")).err().unwrap().to_string();
        assert!(why.contains("is this one itself"), "{why}");
    }
}

//! Performing one operation. It returns what became true; the manager writes that down.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use trine_typed::k8s_openapi::api::core::v1::{Pod, Volume};
use trine_typed::kube::Client;

use super::csi::{For, NodeCalls};
use super::model::{Device, DeviceKey, MountKey, Resolved};
use super::payload::{self, PayloadInput};
use super::plan::Operation;
use super::pod_certificate::Certificates;
use super::source::Source;
use super::tokens::Tokens;
use super::{claim, local, paths, publish, stage, trust};
use crate::config::Config;
use crate::container::fields::NodeFacts;
use crate::container::hugepages;
use crate::container::sources::Sources;
use crate::error::KubeletError;
use crate::node::NodeStatusManager;
use crate::plugins::Drivers;
use crate::pod::spec;

/// Deadline of work on local files: a dead mount below a hostPath must not hold a Pod's worker for ever.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(60);

/// What operations need.
#[derive(Clone)]
pub struct Operations {
    /// What the kubelet was told.
    pub config: Arc<Config>,
    /// The API.
    pub client: Client,
    /// Registered drivers.
    pub drivers: Drivers,
    /// The node's status.
    pub node: Arc<NodeStatusManager>,
    /// What Pods may know of the node.
    pub facts: NodeFacts,
    /// Tokens of ServiceAccounts.
    pub tokens: Arc<Tokens>,
    /// Certificates of Pods.
    pub certificates: Arc<Certificates>,
}

/// What an operation needs to know of the state when it starts.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The Pod that asks, if there is one.
    pub pod: Option<Arc<Pod>>,
    /// What the attacher said of the volume.
    pub publish_context: BTreeMap<String, String>,
    /// The device of a mount, or the staged device.
    pub device: Option<(DeviceKey, Option<Device>)>,
}

/// Why a Pod does not get a volume. Upstream's words.
const ALONE: &str = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

/// What became true.
#[derive(Debug)]
pub enum Outcome {
    /// A claim's volume is known.
    Resolved(Box<Resolved>),
    /// A volume is attached.
    Attached(BTreeMap<String, String>),
    /// A volume is staged.
    Staged,
    /// A Pod's volume is there.
    Up(PathBuf),
    /// A Pod's volume is gone.
    Down,
    /// A volume is no longer staged.
    Unstaged,
}

impl Operations {
    /// Performs it.
    ///
    /// # Errors
    /// [`KubeletError`].
    pub async fn perform(&self, operation: &Operation, context: Context) -> Result<Outcome, KubeletError> {
        let root = &self.config.root;
        match operation {
            Operation::Resolve { volume, .. } => {
                let pod = pod_of(&context)?;
                let found = volume_of(pod, volume)?;
                claim::resolve(&self.client, pod, found).await.map(|r| Outcome::Resolved(Box::new(r)))
            }
            Operation::WaitForAttach { uid, resolved } => {
                let key = context.pod.as_deref().map(spec::key).unwrap_or_default();
                let name = &self.config.node_name;
                let node = &self.node;
                let waited =
                    claim::wait_for_attach(&self.client, node, name, resolved, (key.as_str(), uid.as_str()));
                waited.await.map(Outcome::Attached)
            }
            Operation::Stage { uid, resolved } => {
                let key = context.pod.as_deref().map(spec::key).unwrap_or_default();
                let calls = NodeCalls::new(self.drivers.get(&resolved.driver)?);
                let who = For { pod: &key, uid, volume: &resolved.pv, claim: &resolved.claim };
                let secrets = claim::secret(&self.client, resolved.stage_secret.as_ref()).await?;
                let group = context.pod.as_deref().and_then(publish::group);
                stage::stage(root, &calls, who, resolved, context.publish_context, secrets, group).await?;
                Ok(Outcome::Staged)
            }
            Operation::Refuse { .. } => Err(KubeletError::Invalid(ALONE.to_owned())),
            Operation::Publish { key, resolved, .. } => {
                let pod = pod_of(&context)?;
                let calls = NodeCalls::new(self.drivers.get(&resolved.driver)?);
                let mut secrets = claim::secret(&self.client, resolved.publish_secret.as_ref()).await?;
                let tokens = self.tokens.for_driver(&self.client, pod, &resolved.tokens).await?;
                let told = if resolved.tokens_in_secrets {
                    secrets.extend(tokens);
                    BTreeMap::new()
                } else {
                    tokens.into_iter().collect()
                };
                let node = &self.config.node_name;
                let attached = context.publish_context.clone();
                let up =
                    publish::publish((root, node), &calls, key, pod, resolved, attached, (secrets, told))
                        .await?;
                Ok(Outcome::Up(up))
            }
            Operation::SetUp { key, volume } => {
                let pod = pod_of(&context)?;
                self.set_up(key, pod, volume_of(pod, volume)?).await.map(Outcome::Up)
            }
            Operation::TearDown { key } => self.tear_down(key, context.device).await.map(|()| Outcome::Down),
            Operation::Unstage { key } => {
                let device = context.device.and_then(|(_, device)| device);
                let device = device.ok_or_else(|| KubeletError::Invalid("nothing is staged".to_owned()))?;
                let calls = NodeCalls::new(self.drivers.get(&key.driver)?);
                let who = For { pod: "", uid: "", volume: &device.pv, claim: "" };
                stage::unstage(root, &calls, who, key, &device).await?;
                Ok(Outcome::Unstaged)
            }
        }
    }

    async fn set_up(&self, key: &MountKey, pod: &Pod, volume: &Volume) -> Result<PathBuf, KubeletError> {
        let dir = paths::volume(&self.config.root, &key.uid, &key.plugin, &key.spec);
        let group = publish::group(pod).and_then(|g| u32::try_from(g).ok());
        if let Some(source) = volume.host_path.clone() {
            return blocking(move || local::host_path(&source)).await;
        }
        if !Source::of(volume).refreshed() {
            let source = volume.empty_dir.clone().unwrap_or_default();
            let medium = source.medium.as_deref().unwrap_or_default();
            let pages = hugepages::of_medium(pod, &volume.name, medium).map_err(KubeletError::Invalid)?;
            let made = dir.clone();
            blocking(move || local::empty_dir(&made, &source, pages, group)).await?;
            return Ok(dir);
        }
        let tokens = self.tokens.read(&self.client, pod, volume).await?;
        let bundles = trust::read(&self.client, volume).await?;
        let certificates = self.certificates.read(&self.client, &self.config.node_name, pod, volume).await?;
        let mut sources = Sources::default();
        sources.read(&self.client, spec::namespace(pod), payload::names(volume)).await?;
        let facts = self.facts_of(pod);
        let input = PayloadInput {
            pod,
            sources: &sources,
            tokens: &tokens,
            bundles: &bundles,
            certificates: &certificates,
            node: &facts,
        };
        let files = payload::files(&input, volume)?;
        let memory = !matches!(Source::of(volume), Source::ConfigMap);
        let made = dir.clone();
        blocking(move || local::files(&made, &files, memory, group)).await?;
        Ok(dir)
    }

    fn facts_of(&self, pod: &Pod) -> NodeFacts {
        let ips = pod.status.as_ref().and_then(|s| s.pod_ips.as_ref());
        let pod_ips = ips.into_iter().flatten().map(|ip| ip.ip.clone()).collect();
        NodeFacts { pod_ips, ..self.facts.clone() }
    }

    async fn tear_down(
        &self,
        key: &MountKey,
        device: Option<(DeviceKey, Option<Device>)>,
    ) -> Result<(), KubeletError> {
        let root = self.config.root.clone();
        if key.plugin == paths::CSI {
            return match device {
                Some((device, _)) => {
                    let calls = NodeCalls::new(self.drivers.get(&device.driver)?);
                    publish::unpublish(&root, &calls, key, &device.handle).await
                }
                None => {
                    let key = key.clone();
                    blocking(move || publish::force_down(&root, &key)).await
                }
            };
        }
        if key.plugin == Source::HostPath.plugin() {
            return Ok(());
        }
        let dir = paths::volume(&root, &key.uid, &key.plugin, &key.spec);
        blocking(move || local::tear_down(&dir)).await
    }
}

fn pod_of(context: &Context) -> Result<&Pod, KubeletError> {
    context.pod.as_deref().ok_or_else(|| KubeletError::NotYet("the Pod is gone".to_owned()))
}

pub(super) fn volume_of<'a>(pod: &'a Pod, name: &str) -> Result<&'a Volume, KubeletError> {
    let mut volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    volumes
        .find(|v| v.name == name)
        .ok_or_else(|| KubeletError::Invalid(format!("the pod has no volume {name:?}")))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KubeletError> + Send + 'static,
) -> Result<T, KubeletError> {
    match tokio::time::timeout(LOCAL_TIMEOUT, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => Err(KubeletError::Invalid(format!("the work on the files failed: {error}"))),
        Err(_) => Err(KubeletError::Deadline {
            what: "the work on the volume's files".to_owned(),
            seconds: LOCAL_TIMEOUT.as_secs(),
        }),
    }
}

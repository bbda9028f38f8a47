//! What the API says of a Pod, and what is written on it.

use std::path::Path;
use std::time::Duration;

use trine_cni::spec::{CniError, Code};
use trine_contracts::networks::{Attached, Attachments, Isolation, plan, status};
use trine_typed::client::from_kubeconfig;
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::kube::{Api, Client};
use trine_typed::networks;

/// How long each question to the API may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Marks the API's copy of a Pod that a kubelet has from a file: its uid is another one.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A Pod, and who is asked about it.
pub struct Known {
    client: Client,
    pod: Pod,
}

/// Who the runtime says that it is.
#[derive(Debug, Clone, Default)]
pub struct Named {
    /// `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// `K8S_POD_NAME`.
    pub name: String,
    /// `K8S_POD_UID`; may be empty.
    pub uid: String,
}

fn failed(what: &str, why: impl std::fmt::Display) -> CniError {
    CniError::new(Code::TryAgainLater, format!("{what}: {why}"))
}

async fn patiently<T, E: std::fmt::Display>(
    what: &str,
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, CniError> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answer) => answer.map_err(|e| failed(what, e)),
        Err(_) => Err(failed(what, format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

impl Known {
    /// Reads the Pod.
    ///
    /// # Errors
    /// [`Code::TryAgainLater`] if the API does not have it, or has another one of this name.
    pub async fn read(kubeconfig: &Path, named: &Named) -> Result<Self, CniError> {
        let client = patiently("cannot reach the API", from_kubeconfig(kubeconfig)).await?;
        let what = format!("cannot read pod {}/{}", named.namespace, named.name);
        let pods: Api<Pod> = Api::namespaced(client.clone(), &named.namespace);
        let pod = patiently(&what, pods.get(&named.name)).await?;
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mirrored = pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR));
        if !named.uid.is_empty() && uid != named.uid && !mirrored {
            let why = format!("expected pod UID {:?} but got {uid:?} from Kube API", named.uid);
            return Err(failed(&what, why));
        }
        Ok(Self { client, pod })
    }

    /// What it asks for, by the definitions; none if nothing.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`] if that cannot be meant; [`Code::TryAgainLater`] if a definition is not there.
    pub async fn asked(&self, isolation: &Isolation) -> Result<Option<Attachments>, CniError> {
        let invalid =
            |why: trine_contracts::networks::Unusable| CniError::new(Code::InvalidConfig, why.to_string());
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let annotations = self.pod.metadata.annotations.clone().unwrap_or_default();
        let Some(asked) = plan::asked(&annotations, namespace).map_err(invalid)? else { return Ok(None) };
        let definitions = asked.definitions(namespace, isolation).map_err(invalid)?;
        let configs = networks::configs(&self.client, &definitions);
        let configs = patiently("its networks are not known", configs).await?;
        asked.attachments(&configs).map_err(invalid).map(Some)
    }

    /// Writes on it how it is attached; that it is gone is no failure.
    ///
    /// # Errors
    /// [`Code::TryAgainLater`].
    pub async fn say(&self, attached: &[Attached]) -> Result<(), CniError> {
        let text = status::annotation(attached);
        let written = networks::annotate(&self.client, &self.pod, status::ANNOTATION, &text);
        patiently("cannot write the status of its networks", written).await.map(drop)
    }
}

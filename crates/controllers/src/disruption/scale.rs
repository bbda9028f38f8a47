//! How many Pods the controllers of Pods want.

use std::collections::BTreeMap;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use trine_typed::k8s_openapi::api::core::v1::{Pod, ReplicationController};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use trine_typed::kube::api::DynamicObject;
use trine_typed::kube::core::GroupVersionKind;
use trine_typed::kube::{self, Api, Client, ResourceExt};
use trine_typed::mirror::{Mirror, controller_of};

use crate::frame::Cx;
use crate::workload::pods::said;
use crate::workload::wake::resolve;

/// Where the numbers are read.
pub(super) struct Scales {
    client: Client,
    controllers: Mirror<ReplicationController>,
    sets: Mirror<ReplicaSet>,
    deployments: Mirror<Deployment>,
    stateful: Mirror<StatefulSet>,
}

/// What is wanted by all controllers of some Pods.
pub(super) struct Sum {
    /// How many Pods.
    pub wanted: i32,
    /// Whether some Pods have no controller.
    pub unmanaged: bool,
}

impl Scales {
    pub fn new(cx: &Cx) -> Self {
        Self {
            client: cx.client.clone(),
            controllers: cx.shared(),
            sets: cx.shared(),
            deployments: cx.shared(),
            stateful: cx.shared(),
        }
    }

    pub async fn ready(&self) {
        tokio::join!(
            self.controllers.ready(),
            self.sets.ready(),
            self.deployments.ready(),
            self.stateful.ready()
        );
    }

    /// Adds up what the controllers of these Pods want, each once.
    ///
    /// # Errors
    /// Why it is not known of one.
    pub async fn sum(&self, pods: &[Arc<Pod>]) -> Result<Sum, String> {
        let (mut owners, mut wanted, mut unmanaged) = (BTreeMap::new(), BTreeMap::new(), false);
        for pod in pods {
            match controller_of(&pod.metadata) {
                Some(owner) => drop(owners.entry(owner.uid.clone()).or_insert((pod, owner))),
                None => unmanaged = true,
            }
        }
        for (pod, owner) in owners.into_values() {
            let (uid, number) = self.of(&pod.metadata, owner).await?.ok_or_else(|| {
                format!(
                    "found no controllers for pod \"{}\"",
                    pod.metadata.name.as_deref().unwrap_or_default()
                )
            })?;
            wanted.insert(uid, number);
        }
        Ok(Sum { wanted: wanted.into_values().fold(0, i32::saturating_add), unmanaged })
    }

    /// What an owner of a Pod wants; of a ReplicaSet that a Deployment controls, what that wants.
    async fn of(&self, pod: &ObjectMeta, owner: &OwnerReference) -> Result<Option<(String, i32)>, String> {
        let known = |meta: &ObjectMeta, replicas: Option<i32>| {
            Ok(Some((meta.uid.clone().unwrap_or_default(), replicas.unwrap_or(1))))
        };
        match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => match resolve(&self.controllers, pod, owner) {
                Some(rc) => known(&rc.metadata, rc.spec.as_ref().and_then(|s| s.replicas)),
                None => Ok(None),
            },
            ("apps/v1", "StatefulSet") => match resolve(&self.stateful, pod, owner) {
                Some(set) => known(&set.metadata, set.spec.replicas),
                None => Ok(None),
            },
            ("apps/v1", "ReplicaSet") => {
                let Some(set) = resolve(&self.sets, pod, owner) else { return Ok(None) };
                let above = controller_of(&set.metadata).filter(|o| o.kind == "Deployment");
                match above.map(|above| resolve(&self.deployments, &set.metadata, above)) {
                    Some(Some(deployment)) => known(&deployment.metadata, deployment.spec.replicas),
                    Some(None) => Ok(None),
                    None => known(&set.metadata, set.spec.replicas),
                }
            }
            _ => self.ask(pod.namespace.as_deref().unwrap_or_default(), owner).await,
        }
    }

    /// Asks the `scale` of an owner of any other kind.
    async fn ask(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<(String, i32)>, String> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let kind = GroupVersionKind::gvk(group, version, &owner.kind);
        let found = kube::discovery::pinned_kind(&self.client, &kind).await;
        let (resource, capabilities) = found.map_err(|error| said(&error))?;
        if !capabilities.subresources.iter().any(|(sub, _)| sub.plural.ends_with("scale")) {
            let name = match group {
                "" => resource.plural,
                group => format!("{}.{group}", resource.plural),
            };
            return Err(format!("{name} does not implement the scale subresource"));
        }
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        match api.get_scale(&owner.name).await {
            Ok(scale) if scale.uid().as_deref() == Some(owner.uid.as_str()) => {
                let wanted = scale.spec.and_then(|s| s.replicas).unwrap_or_default();
                Ok(Some((owner.uid.clone(), wanted)))
            }
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(said(&error)),
        }
    }
}

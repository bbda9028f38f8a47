//! Making and removing Pods in the name of who controls them, with the events that tell of it.

use trine_objects::names;
use trine_typed::event::Level;
use trine_typed::k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trine_typed::kube::api::{DeleteParams, PostParams, Preconditions};
use trine_typed::kube::core::Status;
use trine_typed::kube::{self, Api, Client, Resource, ResourceExt};
use trine_typed::mirror::{Key, Mirror, controller_of};
use trine_typed::work_queue::Next;

use super::claim::reference;
use super::doubt;
use crate::events::Events;
use crate::frame::{ControllerError, retried};

/// A Pod of a template that `owner` controls, with a name that the server chooses.
#[must_use]
pub fn from_template<O: Resource<DynamicType = ()>>(owner: &O, template: &PodTemplateSpec) -> Pod {
    let of_template = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: Some(prefix(&owner.name_any())),
        namespace: owner.namespace(),
        labels: of_template.labels,
        annotations: of_template.annotations,
        finalizers: of_template.finalizers,
        owner_references: Some(vec![reference(owner)]),
        ..Default::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// What the names of a controller's Pods begin with.
#[must_use]
pub fn prefix(controller: &str) -> String {
    // The name goes on after the dash, so that it need not be a letter that may end one.
    let fits = names::dns1123_subdomain(&format!("{controller}a")).is_ok();
    if fits { format!("{controller}-") } else { controller.to_owned() }
}

/// The way of a controller to its Pods.
#[derive(Clone)]
pub struct Pods {
    /// The way to the API server.
    pub client: Client,
    /// Where it says what it does.
    pub events: Events,
    /// Where it reads them.
    pub mirror: Mirror<Pod>,
}

impl Pods {
    /// Where the Pods of a namespace are.
    pub fn api(&self, namespace: Option<String>) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &namespace.unwrap_or_default())
    }

    /// Makes a Pod, and tells nobody.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn make(&self, pod: &Pod) -> Result<Pod, kube::Error> {
        let made = self.api(pod.namespace()).create(&PostParams::default(), pod).await;
        let made = made.inspect_err(|error| self.doubt(pod, error))?;
        self.mirror.learn(&made);
        Ok(made)
    }

    fn doubt(&self, pod: &Pod, error: &kube::Error) {
        if let Some(owner) = controller_of(&pod.metadata) {
            doubt::note(&self.mirror, &owner.uid, error);
        }
    }

    /// Removes a Pod, and tells nobody; one that is gone is success.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn remove(&self, pod: &Pod) -> Result<(), kube::Error> {
        let uid = pod.uid().unwrap_or_default();
        let same = Preconditions { uid: Some(uid.clone()), resource_version: None };
        let params = DeleteParams { preconditions: Some(same), ..Default::default() };
        let forget = || self.mirror.forget(&Key::of(&pod.metadata), &uid);
        match self.api(pod.namespace()).delete(&pod.name_any(), &params).await {
            Ok(answer) => {
                match answer.left().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
                    Some(going) => self.mirror.learn(&going),
                    None => forget(),
                }
                Ok(())
            }
            // Gone, or another one of its name is there.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                forget();
                Ok(())
            }
            Err(error) => {
                self.doubt(pod, &error);
                Err(error)
            }
        }
    }

    /// Makes a Pod.
    ///
    /// # Errors
    /// If it is refused; an event at `owner` has told it, unless its namespace is on its way out.
    pub async fn create<O>(&self, owner: &O, pod: &Pod) -> Result<Pod, ControllerError>
    where
        O: Resource<DynamicType = ()>,
    {
        match self.make(pod).await {
            Ok(made) => {
                let note = format!("Created pod: {}", made.name_any());
                self.events.post(owner, Level::Normal, "SuccessfulCreate", "CreatePod", note);
                Ok(made)
            }
            Err(error) => {
                if !in_ending_namespace(&error) {
                    let note = format!("Error creating: {}", said(&error));
                    self.events.post(owner, Level::Warning, "FailedCreate", "CreatePod", note);
                }
                Err(ControllerError::of("create Pod of", owner.name_any())(error))
            }
        }
    }

    /// Removes a Pod; one that is gone is success.
    ///
    /// # Errors
    /// If it is refused; an event at `owner` has told it.
    pub async fn delete<O>(&self, owner: &O, pod: &Pod) -> Result<(), ControllerError>
    where
        O: Resource<DynamicType = ()>,
    {
        let name = pod.name_any();
        match self.remove(pod).await {
            Ok(()) => {
                let note = format!("Deleted pod: {name}");
                self.events.post(owner, Level::Normal, "SuccessfulDelete", "DeletePod", note);
                Ok(())
            }
            Err(error) => {
                let note = format!("Error deleting: {}", said(&error));
                self.events.post(owner, Level::Warning, "FailedDelete", "DeletePod", note);
                Err(ControllerError::of("delete Pod", name)(error))
            }
        }
    }
}

/// What the API server said, in its words.
#[must_use]
pub fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => trine_typed::chain::display(other),
    }
}

/// What becomes of a key for which something is made when that failed: it is tried again, but for what cannot be made any more because its namespace
/// ends.
#[must_use]
pub fn after_failure(controller: &'static str, error: &ControllerError) -> Next {
    let next = retried(controller, error);
    if in_ending_namespace(&error.source) { Next::Wait } else { next }
}

/// Whether a write was refused because the namespace is on its way out: nothing can be made there any more.
#[must_use]
pub fn in_ending_namespace(error: &kube::Error) -> bool {
    let cause = |status: &Status| {
        let causes = status.details.as_ref().map(|d| d.causes.as_slice()).unwrap_or_default();
        causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    };
    matches!(error, kube::Error::Api(status) if cause(status))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trine_typed::k8s_openapi::api::apps::v1::ReplicaSet;

    use super::*;

    #[test]
    fn a_pod_has_what_its_template_has_and_its_controller() {
        let owner: ReplicaSet = serde_json::from_value(
            json!({"metadata": {"name": "rs", "namespace": "ns", "uid": "u"}, "spec": {"selector": {}}}),
        )
        .unwrap();
        let template = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"], "name": "g"},
            "spec": {"containers": [{"name": "x"}]}});
        let pod = from_template(&owner, &serde_json::from_value(template).unwrap());
        let expected = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "rs-", "namespace": "ns",
            "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u",
                "controller": true, "blockOwnerDeletion": true}]},
            "spec": {"containers": [{"name": "x"}]}});
        assert_eq!(json!(pod), expected);
    }

    #[test]
    fn a_name_that_is_too_long_for_a_dash_has_none() {
        assert_eq!(prefix("rs"), "rs-");
        let long = "a".repeat(253);
        assert_eq!(prefix(&long), long);
    }
}

//! Events about Pods and the node, in the order in which they happened and off the way of the work.

use std::borrow::Cow;
use std::sync::Arc;

use tokio::sync::mpsc;
use trine_typed::event::{Level, Recorder};
use trine_typed::k8s_openapi::api::core::v1::{ObjectReference, Pod};

use crate::pod::spec;

/// Events that may wait; more are dropped, as events are never worth memory without bound.
const QUEUE: usize = 1000;

struct Event {
    about: ObjectReference,
    level: Level,
    reason: Cow<'static, str>,
    message: String,
}

/// Posts events one after the other.
#[derive(Clone)]
pub struct Events(mpsc::Sender<Event>);

impl Events {
    /// Starts the poster. It ends with the last clone of the handle.
    #[must_use]
    pub fn start(recorder: Arc<Recorder>) -> Self {
        let (sender, mut receiver) = mpsc::channel::<Event>(QUEUE);
        tokio::spawn(async move {
            while let Some(event) = receiver.recv().await {
                recorder.post_about(event.about, event.level, &event.reason, &event.message).await;
            }
        });
        Self(sender)
    }

    /// About the Pod.
    pub fn pod(
        &self,
        pod: &Pod,
        level: Level,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.push(reference(pod, None), level, reason.into(), message.into());
    }

    /// About one of its containers.
    pub fn container(
        &self,
        pod: &Pod,
        container: &str,
        level: Level,
        reason: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) {
        self.push(reference(pod, Some(container)), level, reason.into(), message.into());
    }

    /// About the node, which stands for itself by its name, as upstream's kubelet does it.
    pub fn node(&self, name: &str, level: Level, reason: &'static str, message: String) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(name.to_owned()),
            ..Default::default()
        };
        self.push(about, level, reason.into(), message);
    }

    fn push(&self, about: ObjectReference, level: Level, reason: Cow<'static, str>, message: String) {
        if let Err(lost) = self.0.try_send(Event { about, level, reason, message }) {
            tracing::warn!(reason = %lost.into_inner().reason, "too many events; one is dropped");
        }
    }
}

fn reference(pod: &Pod, container: Option<&str>) -> ObjectReference {
    let field = |name: &str| {
        let list = if spec::is_init(pod, name) {
            "initContainers"
        } else if spec::is_main(pod, name) {
            "containers"
        } else {
            "ephemeralContainers"
        };
        format!("spec.{list}{{{name}}}")
    };
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: container.map(field),
    }
}

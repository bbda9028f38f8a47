//! What is read about one Pod.

mod gather;

use trine_typed::k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, PersistentVolumeClaim, Pod};

use crate::trace::Step;

pub use gather::{WhyError, gather};

/// A claim of the Pod, as far as it exists.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// The object, unless it is missing.
    pub object: Option<PersistentVolumeClaim>,
    /// Events about it, oldest first.
    pub events: Vec<Event>,
    /// True if the class that it names does not exist.
    pub class_missing: bool,
}

/// All that is known about one Pod.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// The Pod.
    pub pod: Pod,
    /// Events about it, oldest first.
    pub events: Vec<Event>,
    /// The claims that it uses.
    pub claims: Vec<Claim>,
    /// The node that it is on.
    pub node: Option<Node>,
    /// Recorded steps, where Trine runs the Pod.
    pub steps: Vec<Step>,
    /// Seconds since 1970.
    pub now: i64,
}

impl Evidence {
    /// The Pod's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// The Pod's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or("default")
    }

    /// The node's name, if it has one.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty())
    }

    /// Statuses of init containers and containers, in order.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        let status = self.pod.status.as_ref();
        let init = status.and_then(|s| s.init_container_statuses.as_ref());
        let main = status.and_then(|s| s.container_statuses.as_ref());
        init.into_iter().flatten().chain(main.into_iter().flatten())
    }

    /// The newest event with one of these reasons.
    #[must_use]
    pub fn latest(&self, reasons: &[&str]) -> Option<&Event> {
        let wanted = |e: &&Event| e.reason.as_deref().is_some_and(|r| reasons.contains(&r));
        self.events.iter().rev().find(wanted)
    }

    /// A condition's status and message.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<(&str, &str)> {
        let conditions = self.pod.status.as_ref()?.conditions.as_ref()?;
        let found = conditions.iter().find(|c| c.type_ == kind)?;
        Some((found.status.as_str(), found.message.as_deref().unwrap_or_default()))
    }

    /// The newest failed step of a plane.
    #[must_use]
    pub fn failed_step(&self, planes: &[&str]) -> Option<&Step> {
        self.steps.iter().rev().find(|s| s.error.is_some() && planes.contains(&s.plane.as_str()))
    }
}

/// An event as a line of proof.
#[must_use]
pub fn event_line(event: &Event) -> String {
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    let count = event.count.filter(|c| *c > 1).map(|c| format!(" (x{c})")).unwrap_or_default();
    format!("event {} {}{count}: {}", text(&event.type_), text(&event.reason), text(&event.message))
}

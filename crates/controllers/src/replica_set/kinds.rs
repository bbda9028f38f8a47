//! The two kinds that keep a number of Pods alike: ReplicaSet, and ReplicationController, which was before it.

use trine_objects::selector::label::LabelSelector;
use trine_typed::k8s_openapi::NamespaceResourceScope;
use trine_typed::k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use trine_typed::k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use trine_typed::kube::Resource;
use trine_typed::mirror::Kind;

use crate::workload::selecting::{of_labels, selector};

/// A kind that keeps a number of Pods.
pub trait Replicated: Kind + Resource<Scope = NamespaceResourceScope> + serde::Serialize {
    /// Upstream's name of its controller.
    const CONTROLLER: &'static str;

    /// How many Pods it wants.
    fn wanted(&self) -> i32;
    /// Which Pods it takes; none if that is not clear.
    fn selector(&self) -> Option<LabelSelector>;
    /// How its Pods are made.
    fn template(&self) -> Option<&PodTemplateSpec>;
    /// How long a Pod has to be ready until it counts as available.
    fn min_ready_seconds(&self) -> i32;
    /// What is said of it, in the form of a ReplicaSet.
    fn status(&self) -> ReplicaSetStatus;
    /// The same with another status.
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

impl Replicated for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";

    fn wanted(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    fn selector(&self) -> Option<LabelSelector> {
        selector(&self.spec.selector)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or_default()
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(status), ..self.clone() }
    }
}

impl Replicated for ReplicationController {
    const CONTROLLER: &'static str = "replication-controller";

    fn wanted(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
    }

    fn selector(&self) -> Option<LabelSelector> {
        let selector = of_labels(self.spec.as_ref()?.selector.as_ref());
        (!selector.is_empty()).then_some(selector)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|s| s.min_ready_seconds).unwrap_or_default()
    }

    fn status(&self) -> ReplicaSetStatus {
        let status = self.status.clone().unwrap_or_default();
        let condition = |c: ReplicationControllerCondition| ReplicaSetCondition {
            last_transition_time: c.last_transition_time,
            message: c.message,
            reason: c.reason,
            status: Some(c.status),
            type_: Some(c.type_),
        };
        ReplicaSetStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
            terminating_replicas: None,
        }
    }

    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        let condition = |c: ReplicaSetCondition| ReplicationControllerCondition {
            last_transition_time: c.last_transition_time,
            message: c.message,
            reason: c.reason,
            status: c.status.unwrap_or_default(),
            type_: c.type_.unwrap_or_default(),
        };
        let status = ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        };
        Self { status: Some(status), ..self.clone() }
    }
}

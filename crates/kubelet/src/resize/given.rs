//! What the node has given to each container. It is kept in the Pod's status, so another kubelet finds it there.

use std::borrow::Cow;
use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, ResourceRequirements};
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::container::quantity;
use crate::pod::spec;

/// Resources by the container's name.
pub type Given = BTreeMap<String, ResourceRequirements>;

/// What the spec asks for.
#[must_use]
pub fn wanted(pod: &Pod) -> Given {
    spec::all(pod).map(|c| (c.name.clone(), c.resources.clone().unwrap_or_default())).collect()
}

/// What a former kubelet gave, by the Pod's status; what the spec asks for where the status says nothing.
#[must_use]
pub fn found(pod: &Pod) -> Given {
    let status = pod.status.as_ref();
    let lists = status.map(|s| [&s.container_statuses, &s.init_container_statuses]);
    let known: Vec<&ContainerStatus> = lists.into_iter().flatten().flat_map(|l| l.iter().flatten()).collect();
    let of = |container: &Container| {
        let asked = container.resources.clone().unwrap_or_default();
        let found = known.iter().find(|s| s.name == container.name);
        match found.and_then(|s| Some((s.allocated_resources.clone()?, s.resources.clone()?))) {
            Some((requests, there)) => {
                ResourceRequirements { requests: Some(requests), limits: there.limits, ..asked }
            }
            None => asked,
        }
    };
    spec::all(pod).map(|c| (c.name.clone(), of(c))).collect()
}

/// Whether two are the same, however their amounts are written.
#[must_use]
pub fn same(a: &Given, b: &Given) -> bool {
    let amounts = |list: &Option<BTreeMap<String, Quantity>>| -> BTreeMap<String, Option<i128>> {
        list.iter().flatten().map(|(name, q)| (name.clone(), quantity::milli(&q.0))).collect()
    };
    a.len() == b.len()
        && a.iter().zip(b).all(|((left, x), (right, y))| {
            left == right
                && amounts(&x.requests) == amounts(&y.requests)
                && amounts(&x.limits) == amounts(&y.limits)
        })
}

/// The Pod with what it was given in place of what it asks for.
#[must_use]
pub fn apply<'a>(pod: &'a Pod, given: &Given) -> Cow<'a, Pod> {
    if same(&wanted(pod), given) {
        return Cow::Borrowed(pod);
    }
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            if let Some(resources) = given.get(&container.name) {
                container.resources = Some(resources.clone());
            }
        }
    }
    Cow::Owned(pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(resources: &Value, status: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": resources}]},
            "status": {"containerStatuses": status}}))
        .unwrap()
    }

    #[test]
    fn what_was_given_is_read_back_from_the_status() {
        let asked = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "4"}});
        let status = json!([{"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": {"cpu": "1000m"}, "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}}]);
        let pod = pod(&asked, &status);
        let given = found(&pod);
        assert!(!same(&given, &wanted(&pod)));
        let given_pod = apply(&pod, &given);
        let resources =
            serde_json::to_value(&given_pod.spec.as_ref().unwrap().containers[0].resources).unwrap();
        assert_eq!(resources, json!({"requests": {"cpu": "1000m"}, "limits": {"cpu": "3"}}));
    }

    #[test]
    fn equal_amounts_are_no_change() {
        let a = pod(&json!({"requests": {"cpu": "1", "memory": "1Gi"}}), &json!([]));
        let b = pod(&json!({"requests": {"cpu": "1000m", "memory": "1024Mi"}}), &json!([]));
        assert!(same(&wanted(&a), &wanted(&b)));
        assert!(matches!(apply(&a, &wanted(&b)), Cow::Borrowed(_)));
        assert!(same(&found(&a), &wanted(&a)), "a status that says nothing");
    }
}

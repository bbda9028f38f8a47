//! What happens in the cluster, by kind, and whom it can help that had no place: upstream's queueing hints, by plugin and kind. A
//! kind that may help counts as helping; only what is certain to be of no use wakes nobody.

use std::collections::BTreeSet;

use trine_typed::k8s_openapi::api::core::v1::Node;

/// Who has a say. Names as upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plugin {
    /// A Pod whose time has not come.
    SchedulingGates,
    /// Whose turn it is.
    PrioritySort,
    /// A Pod that names its node.
    NodeName,
    /// The node is cordoned, or there is none.
    NodeUnschedulable,
    /// A taint.
    TaintToleration,
    /// Selectors of nodes.
    NodeAffinity,
    /// Ports of the node.
    NodePorts,
    /// Requests.
    NodeResourcesFit,
    /// Volumes of a driver on one node.
    NodeVolumeLimits,
    /// A volume that one Pod alone may use.
    VolumeRestrictions,
    /// Claims and volumes.
    VolumeBinding,
    /// Volumes' zones.
    VolumeZone,
    /// Evenness.
    PodTopologySpread,
    /// Other Pods.
    InterPodAffinity,
    /// Claims of devices.
    DynamicResources,
    /// Those of lower priority.
    DefaultPreemption,
    /// Evenness of resources.
    NodeResourcesBalancedAllocation,
    /// Images that are there.
    ImageLocality,
    /// The binding itself.
    DefaultBinder,
}

/// Something that has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A node has come, or what it offers or asks has changed.
    Node,
    /// A placed Pod has gone or ended, or asks for less, or was only thought to be placed.
    PlacedPodGone,
    /// A Pod was placed, or a placed one has other labels.
    PlacedPodIs,
    /// A claim, a volume, a class, or what a driver says of a node.
    Storage,
    /// A namespace has other labels.
    Namespace,
    /// Devices are offered, or are free again, or a class or a taint of them is another. Changes of a Pod's own claims are told by
    /// [`crate::queue::Queue::claims_changed`].
    Devices,
}

/// Whether what has happened can help a Pod that these have kept from nodes. With nobody to blame everything can.
#[must_use]
pub fn helps(event: Event, rejected_by: &BTreeSet<Plugin>) -> bool {
    use Plugin::{
        DynamicResources, InterPodAffinity, NodePorts, NodeResourcesFit, NodeVolumeLimits, PodTopologySpread,
        VolumeBinding, VolumeRestrictions, VolumeZone,
    };
    let any = |plugins: &[Plugin]| plugins.iter().any(|plugin| rejected_by.contains(plugin));
    rejected_by.is_empty()
        || match event {
            Event::Node => true,
            Event::PlacedPodGone => any(&[
                NodePorts,
                NodeResourcesFit,
                NodeVolumeLimits,
                PodTopologySpread,
                InterPodAffinity,
                VolumeRestrictions,
                VolumeBinding,
            ]),
            Event::PlacedPodIs => any(&[PodTopologySpread, InterPodAffinity]),
            Event::Storage => any(&[VolumeBinding, NodeVolumeLimits, VolumeRestrictions, VolumeZone]),
            Event::Namespace => any(&[InterPodAffinity]),
            // A class may stand for what a node lacks.
            Event::Devices => any(&[DynamicResources, NodeResourcesFit]),
        }
}

/// Whether a node's change is more than the sign of life that a kubelet gives.
#[must_use]
pub fn node_matters(old: &Node, new: &Node) -> bool {
    let offers = |node: &Node| {
        let status = node.status.as_ref();
        status.and_then(|status| status.allocatable.clone().or_else(|| status.capacity.clone()))
    };
    let asks = |node: &Node| {
        let spec = node.spec.as_ref();
        spec.map(|spec| (spec.unschedulable.unwrap_or_default(), spec.taints.clone().unwrap_or_default()))
            .unwrap_or_default()
    };
    old.metadata.uid != new.metadata.uid
        || old.metadata.labels != new.metadata.labels
        || offers(old) != offers(new)
        || asks(old) != asks(new)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_is_woken_by_what_can_help_it() {
        let rows = [
            (Plugin::NodeResourcesFit, vec![Event::Node, Event::PlacedPodGone, Event::Devices]),
            (Plugin::TaintToleration, vec![Event::Node]),
            (Plugin::DynamicResources, vec![Event::Node, Event::Devices]),
            (Plugin::VolumeBinding, vec![Event::Node, Event::PlacedPodGone, Event::Storage]),
            (
                Plugin::InterPodAffinity,
                vec![Event::Node, Event::PlacedPodGone, Event::PlacedPodIs, Event::Namespace],
            ),
        ];
        let all = [
            Event::Node,
            Event::PlacedPodGone,
            Event::PlacedPodIs,
            Event::Storage,
            Event::Namespace,
            Event::Devices,
        ];
        for (plugin, expected) in rows {
            let woken = all.into_iter().filter(|event| helps(*event, &[plugin].into()));
            assert_eq!(woken.collect::<Vec<_>>(), expected, "{plugin:?}");
        }
        assert!(all.iter().all(|event| helps(*event, &BTreeSet::new())), "nobody to blame");
    }

    #[test]
    fn a_sign_of_life_is_no_change() {
        let node = |more: Value| -> Node {
            let mut node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}},
                "status": {"allocatable": {"cpu": "1"}}});
            json_patch::merge(&mut node, &more);
            serde_json::from_value(node).unwrap()
        };
        let rows = [
            (json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}), false),
            (json!({"spec": {"podCIDR": "10.0.0.0/24"}}), false),
            (json!({"spec": {"unschedulable": true}}), true),
            (json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}), true),
            (json!({"metadata": {"labels": {"zone": "b"}}}), true),
            (json!({"status": {"allocatable": {"cpu": "2"}}}), true),
        ];
        for (more, matters) in rows {
            assert_eq!(node_matters(&node(json!({})), &node(more.clone())), matters, "{more}");
        }
    }
}

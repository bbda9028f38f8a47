//! Which volumes are to become larger, and how large; which are to be changed. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::Code;
use trine_objects::quantity::Quantity;
use trine_typed::k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use trine_typed::k8s_openapi::api::storage::v1::VolumeAttributesClass;
use trine_typed::k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::grpc::CallError;
use crate::provision::topology;

/// States of `status.allocatedResourceStatuses`.
pub const IN_PROGRESS: &str = "ControllerResizeInProgress";
/// The driver will not do it.
pub const INFEASIBLE: &str = "ControllerResizeInfeasible";
/// The node is next.
pub const NODE_PENDING: &str = "NodeResizePending";
const NODE_IN_PROGRESS: &str = "NodeResizeInProgress";
const NODE_INFEASIBLE: &str = "NodeResizeInfeasible";

/// For whom the plan is.
#[derive(Debug, Clone, Default)]
pub struct Me {
    /// The driver's name.
    pub driver: String,
    /// The only node that the driver serves, if it is one per node.
    pub node: Option<String>,
    /// The driver makes volumes larger.
    pub expands: bool,
    /// The driver changes volumes.
    pub modifies: bool,
}

/// What is read.
#[derive(Debug, Default)]
pub struct World {
    /// All claims.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// Attributes classes by name.
    pub classes: BTreeMap<String, Arc<VolumeAttributesClass>>,
}

/// One act; its key is the claim's.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Make the volume at least so many bytes large.
    Expand(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>, i64),
    /// The claim wants no more than it has: what is said of growth that failed is over.
    Settle(Arc<PersistentVolumeClaim>),
    /// Change the volume by a class.
    Modify(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>, Arc<VolumeAttributesClass>),
    /// The class that the claim names is not there.
    Await(Arc<PersistentVolumeClaim>, String),
}

impl Action {
    /// The object that the act is about, and what is wanted of it: what failed for one size is no reason to wait with another.
    #[must_use]
    pub fn key(&self) -> String {
        let (what, claim) = match self {
            Self::Expand(claim, _, size) => (format!("size {size}"), claim),
            Self::Settle(claim) => ("size".to_owned(), claim),
            Self::Modify(claim, _, class) => (format!("attributes {:?}", class.metadata.name), claim),
            Self::Await(claim, class) => (format!("attributes {class}"), claim),
        };
        format!("{what} {}", claim.metadata.uid.as_deref().unwrap_or_default())
    }
}

/// All acts.
#[must_use]
pub fn plan(world: &World, me: &Me) -> Vec<Action> {
    let mut actions = Vec::new();
    for claim in &world.claims {
        let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
        let name = claim.spec.as_ref().and_then(|s| s.volume_name.as_ref());
        let Some(volume) = name.and_then(|name| world.volumes.get(name)).filter(|_| bound) else { continue };
        if !is_mine(world, me, claim, volume) {
            continue;
        }
        if me.expands {
            actions.extend(size(claim, volume));
        }
        if me.modifies {
            actions.extend(attributes(world, claim, volume));
        }
    }
    actions
}

fn is_mine(world: &World, me: &Me, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let Some(spec) = &volume.spec else { return false };
    let owned = spec.claim_ref.as_ref().is_some_and(|r| r.uid == claim.metadata.uid);
    let ours = spec.csi.as_ref().is_some_and(|csi| csi.driver == me.driver);
    let near = me.node.as_ref().is_none_or(|node| {
        world.nodes.get(node).is_some_and(|node| topology::allows(spec.node_affinity.as_ref(), node))
    });
    owned && ours && near && claim.metadata.deletion_timestamp.is_none()
}

/// Bytes.
#[must_use]
pub fn bytes(amounts: Option<&BTreeMap<String, ApiQuantity>>) -> Option<i64> {
    let parsed: Quantity = amounts?.get("storage")?.0.parse().ok()?;
    i64::try_from(parsed.value()).ok()
}

/// As upstream: what was begun is finished at the size that it was begun with, because the driver may have done it already; only
/// what the driver has certainly not done may be asked for in another size.
fn size(claim: &Arc<PersistentVolumeClaim>, volume: &Arc<PersistentVolume>) -> Option<Action> {
    let status = claim.status.as_ref()?;
    let resources = claim.spec.as_ref()?.resources.as_ref();
    let wanted = bytes(resources.and_then(|r| r.requests.as_ref()))?;
    let has = bytes(status.capacity.as_ref())?;
    let state =
        status.allocated_resource_statuses.as_ref().and_then(|all| all.get("storage")).map(String::as_str);
    let begun = bytes(status.allocated_resources.as_ref());
    let expand = |size| Some(Action::Expand(Arc::clone(claim), Arc::clone(volume), size));
    match state {
        Some(NODE_PENDING | NODE_IN_PROGRESS) => None,
        Some(IN_PROGRESS) => expand(begun.unwrap_or(wanted)),
        Some(INFEASIBLE | NODE_INFEASIBLE) if wanted <= has => Some(Action::Settle(Arc::clone(claim))),
        // The node will not do it: only another size is worth a try.
        Some(NODE_INFEASIBLE) => {
            if begun == Some(wanted) {
                None
            } else {
                expand(wanted)
            }
        }
        _ if wanted > has => expand(wanted),
        _ => None,
    }
}

fn attributes(
    world: &World,
    claim: &Arc<PersistentVolumeClaim>,
    volume: &Arc<PersistentVolume>,
) -> Option<Action> {
    let wanted =
        claim.spec.as_ref()?.volume_attributes_class_name.as_ref().filter(|name| !name.is_empty())?;
    let status = claim.status.as_ref();
    let current = status.and_then(|s| s.current_volume_attributes_class_name.as_ref());
    let of_volume = volume.spec.as_ref().and_then(|s| s.volume_attributes_class_name.as_ref());
    let open = status.is_some_and(|s| s.modify_volume_status.is_some());
    if current == Some(wanted) && of_volume == Some(wanted) && !open {
        return None;
    }
    Some(match world.classes.get(wanted) {
        Some(class) => Action::Modify(Arc::clone(claim), Arc::clone(volume), Arc::clone(class)),
        None => Action::Await(Arc::clone(claim), wanted.clone()),
    })
}

/// What a failure means for the growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The driver will not do it in this size: seldom again.
    Infeasible,
    /// Not while somebody uses it.
    InUse,
    /// Later again.
    Transient,
}

/// What the driver's error means.
#[must_use]
pub fn failure(error: &CallError) -> Failure {
    match error.code {
        Code::InvalidArgument | Code::OutOfRange | Code::NotFound => Failure::Infeasible,
        Code::FailedPrecondition => Failure::InUse,
        _ => Failure::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn claim(
        wanted: &str,
        has: &str,
        state: Option<&str>,
        begun: Option<&str>,
    ) -> Arc<PersistentVolumeClaim> {
        let mut status = json!({"phase": "Bound", "capacity": {"storage": has}});
        if let Some(state) = state {
            status["allocatedResourceStatuses"] = json!({"storage": state});
        }
        if let Some(begun) = begun {
            status["allocatedResources"] = json!({"storage": begun});
        }
        object(json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u"},
            "spec": {"volumeName": "v", "resources": {"requests": {"storage": wanted}}}, "status": status}))
    }

    fn volume(change: impl FnOnce(&mut Value)) -> Arc<PersistentVolume> {
        let mut value = json!({"metadata": {"name": "v"}, "spec": {"claimRef": {"uid": "u"}, "capacity": {"storage": "1Gi"},
            "csi": {"driver": "d", "volumeHandle": "h"}}});
        change(&mut value);
        object(value)
    }

    fn me() -> Me {
        Me { driver: "d".to_owned(), expands: true, modifies: true, ..Me::default() }
    }

    #[test]
    fn growth_is_begun_finished_and_given_up_as_upstream_does() {
        const GIB: i64 = 1 << 30;
        for (name, claim, expected) in [
            ("large enough", claim("1Gi", "1Gi", None, None), None),
            ("larger", claim("2Gi", "1Gi", None, None), Some(2 * GIB)),
            (
                "begun, then more is wanted",
                claim("4Gi", "1Gi", Some(IN_PROGRESS), Some("3Gi")),
                Some(3 * GIB),
            ),
            (
                "begun, then less is wanted",
                claim("2Gi", "1Gi", Some(IN_PROGRESS), Some("3Gi")),
                Some(3 * GIB),
            ),
            ("infeasible, again", claim("3Gi", "1Gi", Some(INFEASIBLE), Some("3Gi")), Some(3 * GIB)),
            ("infeasible, less is wanted", claim("2Gi", "1Gi", Some(INFEASIBLE), Some("3Gi")), Some(2 * GIB)),
            ("infeasible, given up", claim("1Gi", "1Gi", Some(INFEASIBLE), Some("3Gi")), Some(0)),
            ("the node is next", claim("4Gi", "1Gi", Some(NODE_PENDING), Some("3Gi")), None),
            ("the node is at it", claim("4Gi", "1Gi", Some(NODE_IN_PROGRESS), Some("3Gi")), None),
            ("the node will not", claim("3Gi", "1Gi", Some(NODE_INFEASIBLE), Some("3Gi")), None),
            (
                "the node will not, other size",
                claim("2Gi", "1Gi", Some(NODE_INFEASIBLE), Some("3Gi")),
                Some(2 * GIB),
            ),
        ] {
            let world = World {
                claims: vec![claim],
                volumes: [("v".to_owned(), volume(|_| ()))].into(),
                ..World::default()
            };
            let got = plan(&world, &me()).into_iter().next().map(|action| match action {
                Action::Expand(_, _, size) => size,
                Action::Settle(_) => 0,
                other => panic!("{name}: {other:?}"),
            });
            assert_eq!(got, expected, "{name}");
        }
    }

    #[test]
    fn another_size_does_not_wait_for_the_one_that_failed() {
        let key = |size| Action::Expand(claim("2Gi", "1Gi", None, None), volume(|_| ()), size).key();
        assert_ne!(key(1), key(2));
    }

    #[test]
    fn only_bound_volumes_of_this_driver_grow() {
        let of = |claim: Arc<PersistentVolumeClaim>, volume| {
            let world =
                World { claims: vec![claim], volumes: [("v".to_owned(), volume)].into(), ..World::default() };
            plan(&world, &me()).len()
        };
        let larger = || claim("2Gi", "1Gi", None, None);
        assert_eq!(of(larger(), volume(|_| ())), 1);
        assert_eq!(of(larger(), volume(|v| v["spec"]["csi"]["driver"] = json!("other"))), 0);
        assert_eq!(of(larger(), volume(|v| v["spec"]["claimRef"]["uid"] = json!("other"))), 0);
        let mut lost = PersistentVolumeClaim::clone(&larger());
        lost.status.as_mut().unwrap().phase = Some("Lost".to_owned());
        assert_eq!(of(Arc::new(lost), volume(|_| ())), 0);
    }

    #[test]
    fn attributes_follow_the_class_that_the_claim_names() {
        let class =
            object(json!({"metadata": {"name": "gold"}, "driverName": "d", "parameters": {"iops": "9"}}));
        for (name, wanted, current, of_volume, open, expected) in [
            ("none named", None, None, None, false, None),
            ("named", Some("gold"), None, None, false, Some("modify")),
            ("done", Some("gold"), Some("gold"), Some("gold"), false, None),
            ("done at the volume only", Some("gold"), None, Some("gold"), true, Some("modify")),
            ("another", Some("gold"), Some("silver"), Some("silver"), false, Some("modify")),
            ("unknown", Some("lead"), None, None, false, Some("await")),
        ] {
            let mut claim = PersistentVolumeClaim::clone(&claim("1Gi", "1Gi", None, None));
            claim.spec.as_mut().unwrap().volume_attributes_class_name = wanted.map(str::to_owned);
            let status = claim.status.as_mut().unwrap();
            status.current_volume_attributes_class_name = current.map(str::to_owned);
            status.modify_volume_status =
                open.then(|| serde_json::from_value(json!({"status": "InProgress"})).unwrap());
            let volume = volume(|v| v["spec"]["volumeAttributesClassName"] = json!(of_volume));
            let world = World {
                claims: vec![Arc::new(claim)],
                volumes: [("v".to_owned(), volume)].into(),
                classes: [("gold".to_owned(), Arc::clone(&class))].into(),
                ..World::default()
            };
            let got = plan(&world, &me()).into_iter().next().map(|action| match action {
                Action::Modify(..) => "modify",
                Action::Await(..) => "await",
                other => panic!("{name}: {other:?}"),
            });
            assert_eq!(got, expected, "{name}");
        }
    }

    #[test]
    fn a_drivers_error_says_whether_another_size_may_help() {
        for (code, expected) in [
            (Code::OutOfRange, Failure::Infeasible),
            (Code::InvalidArgument, Failure::Infeasible),
            (Code::NotFound, Failure::Infeasible),
            (Code::FailedPrecondition, Failure::InUse),
            (Code::ResourceExhausted, Failure::Transient),
            (Code::DeadlineExceeded, Failure::Transient),
        ] {
            assert_eq!(failure(&CallError::of("x", &tonic::Status::new(code, ""))), expected, "{code:?}");
        }
    }
}

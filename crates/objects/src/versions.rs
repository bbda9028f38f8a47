//! Kinds that are served in several forms, of which one is stored.

use crate::resources::Resource;
use crate::{autoscalers, devices, events};
use serde_json::Value;

/// Turns an object of `resource` into its stored form.
pub fn to_stored(resource: &Resource, object: &mut Value) {
    match &*resource.group {
        "events.k8s.io" => events::to_core(object),
        "autoscaling" => autoscalers::to_v2(object),
        "resource.k8s.io" => devices::to_v1(resource, object),
        _ => {}
    }
}

/// Turns a stored object into the form of `resource`.
pub fn from_stored(resource: &Resource, object: &mut Value) {
    match &*resource.group {
        "events.k8s.io" => events::from_core(object),
        "autoscaling" => autoscalers::to_v1(object),
        "resource.k8s.io" => devices::from_v1(resource, object),
        _ => {}
    }
}

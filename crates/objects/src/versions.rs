//! Kinds that are served in two forms, of which one is stored.

use crate::resources::Resource;
use crate::{autoscalers, events};
use serde_json::Value;

/// Turns an object of `resource` into its stored form.
pub fn to_stored(resource: &Resource, object: &mut Value) {
    match &*resource.group {
        "events.k8s.io" => events::to_core(object),
        "autoscaling" => autoscalers::to_v2(object),
        _ => {}
    }
}

/// Turns a stored object into the form of `resource`.
pub fn from_stored(resource: &Resource, object: &mut Value) {
    match &*resource.group {
        "events.k8s.io" => events::from_core(object),
        "autoscaling" => autoscalers::to_v1(object),
        _ => {}
    }
}

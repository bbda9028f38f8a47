//! Claims, volumes and what makes them.

mod attachment;
mod claim;
mod class;
mod driver;
mod volume;

use super::fields::{items, text};
use super::{Cause, Causes, metadata};
use serde_json::Value;
use trine_objects::quantity;

pub use attachment::Attachments;
pub use claim::Claims;
pub(crate) use claim::wants_more;
pub use class::{AttributesClasses, Classes};
pub use driver::{Capacities, Drivers, NodeDrivers};
pub use volume::Volumes;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Access modes at `spec.accessModes`, the same for claims and volumes.
fn access_modes(spec: &Value, needed: &str, causes: &mut Causes) {
    let modes = items(spec, "accessModes");
    if modes.is_empty() {
        causes.add(Cause::required("spec.accessModes", needed));
    }
    for mode in modes.iter().filter_map(Value::as_str).filter(|m| !ACCESS_MODES.contains(m)) {
        causes.add(Cause::not_supported("spec.accessModes", mode, &ACCESS_MODES));
    }
    if modes.len() > 1 && modes.iter().any(|m| m == "ReadWriteOncePod") {
        let detail = "may not use ReadWriteOncePod with other access modes";
        causes.add(Cause::forbidden("spec.accessModes", detail));
    }
}

/// A size: there, and above zero.
fn size(value: &Value, field: &str, causes: &mut Causes) {
    match quantity::from_value(value) {
        Err(_) => causes.add(Cause::required(field, "")),
        Ok(q) if q.is_zero() || q.is_negative() => {
            causes.add(Cause::invalid(field, value.clone(), "must be greater than zero"));
        }
        Ok(_) => {}
    }
}

/// Access modes as tables show them: `RWO,ROX`.
fn short_modes(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let there: Vec<&str> =
        short.iter().filter(|(m, _)| modes.iter().any(|x| x == m)).map(|(_, s)| *s).collect();
    there.join(",")
}

/// The class of a claim or volume: the field, or the annotation of old.
pub(crate) fn class_of(obj: &Value) -> &str {
    let old = text(&obj["metadata"]["annotations"], "volume.beta.kubernetes.io/storage-class");
    if old.is_empty() { text(&obj["spec"], "storageClassName") } else { old }
}

/// A needed DNS name.
fn dns_name(object: &Value, key: &str, field: &str, causes: &mut Causes) {
    let value = text(object, key);
    if value.is_empty() {
        causes.add(Cause::required(field, ""));
    } else {
        causes.extend(metadata::name_causes(
            field,
            value,
            trine_objects::names::dns1123_subdomain(&value.to_ascii_lowercase()),
        ));
    }
}

#[cfg(test)]
mod tests;

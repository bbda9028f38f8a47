//! From `kubectl apply` to `kubectl apply --server-side`: the annotation of the former tells what its user had applied.

use super::diff::diff;
use super::fields::fields_of;
use super::ownership::View;
use super::set::Set;
use serde_json::Value;

/// The annotation in which `kubectl apply` keeps what it applied.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager for which it counts. Source: upstream's `lastAppliedManager`.
pub(super) const KUBECTL: &str = "kubectl";
/// The most bytes of all annotations together.
const ANNOTATIONS_MAX: usize = 256 * 1024;

fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION].as_str().filter(|text| !text.is_empty())
}

/// The fields that the user had applied and that still are as applied: to take them over is no conflict.
pub(super) fn agreed(view: View<'_>, live: &Value) -> Option<Set> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last["apiVersion"] != view.api_version {
        return None;
    }
    let changed = diff(view.schema, &last, live).ok()?;
    let fields = fields_of(view.schema, &last);
    Some(fields.difference(&changed.modified).difference(&changed.added).difference(&changed.removed))
}

/// Keeps the annotation true where there is one, so that the user can go back. It goes where it would be too large.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = object["metadata"]["annotations"].as_object_mut() else { return };
    annotations.insert(ANNOTATION.to_owned(), format!("{config}\n").into());
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_MAX {
        annotations.remove(ANNOTATION);
    }
}

//! fieldRef and resourceFieldRef: what a Pod may know of itself.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::{Pod, ResourceFieldSelector};

use super::quantity;
use crate::error::KubeletError;

/// What of the node a Pod may ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Addresses of the node.
    pub host_ips: Vec<String>,
    /// Addresses of the Pod, once its sandbox has them.
    pub pod_ips: Vec<String>,
    /// Allocatable amount by resource, thousandths: the default of a limit that is not set.
    pub allocatable_milli: BTreeMap<String, i128>,
}

/// The value of a `fieldPath`.
///
/// # Errors
/// [`KubeletError::Invalid`] if there is no such field.
pub fn field(pod: &Pod, path: &str, node: &NodeFacts) -> Result<String, KubeletError> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => meta.labels.as_ref(),
            "metadata.annotations" => meta.annotations.as_ref(),
            _ => return Err(KubeletError::Invalid(format!("fieldPath {path:?} does not support subscript"))),
        };
        return Ok(text(map.and_then(|m| m.get(key))));
    }
    Ok(match path {
        "metadata.name" => text(meta.name.as_ref()),
        "metadata.namespace" => text(meta.namespace.as_ref()),
        "metadata.uid" => text(meta.uid.as_ref()),
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "spec.nodeName" => text(spec.and_then(|s| s.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|s| s.service_account_name.as_ref())),
        "status.hostIP" => text(node.host_ips.first()),
        "status.hostIPs" => node.host_ips.join(","),
        "status.podIP" => text(node.pod_ips.first()),
        "status.podIPs" => node.pod_ips.join(","),
        _ => return Err(KubeletError::Invalid(format!("unsupported fieldPath: {path}"))),
    })
}

/// `metadata.labels['key']` as map and key.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, rest) = path.split_once('[')?;
    let key = rest.strip_suffix(']')?;
    let key = key
        .strip_prefix('\'')
        .and_then(|k| k.strip_suffix('\''))
        .or_else(|| key.strip_prefix('"').and_then(|k| k.strip_suffix('"')))?;
    Some((map, key))
}

/// One `key="value"` a line, sorted, with the value quoted.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let line = |(key, value): (&String, &String)| format!("{key}={value:?}");
    map.into_iter().flatten().map(line).collect::<Vec<_>>().join("\n")
}

/// The value of a `resourceFieldRef`, for `container` unless the selector names one.
///
/// # Errors
/// [`KubeletError::Invalid`] if container or resource do not exist.
pub fn resource(
    pod: &Pod,
    container: &str,
    selector: &ResourceFieldSelector,
    node: &NodeFacts,
) -> Result<String, KubeletError> {
    let name = selector.container_name.as_deref().filter(|n| !n.is_empty()).unwrap_or(container);
    let spec = pod.spec.as_ref();
    let mut all =
        spec.into_iter().flat_map(|s| s.containers.iter().chain(s.init_containers.iter().flatten()));
    let found = all
        .find(|c| c.name == name)
        .ok_or_else(|| KubeletError::Invalid(format!("container {name} not found")))?;
    let unsupported =
        || KubeletError::Invalid(format!("unsupported container resource : {}", selector.resource));
    let (kind, resource) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let resources = found.resources.as_ref();
    let map = match kind {
        "limits" => resources.and_then(|r| r.limits.as_ref()),
        "requests" => resources.and_then(|r| r.requests.as_ref()),
        _ => return Err(unsupported()),
    };
    let set = map.and_then(|m| m.get(resource)).and_then(|q| quantity::milli(&q.0));
    let amount = match (set, kind) {
        (Some(amount), _) => amount,
        (None, "limits") => node.allocatable_milli.get(resource).copied().unwrap_or_default(),
        (None, _) => 0,
    };
    let divisor =
        selector.divisor.as_ref().and_then(|d| quantity::milli(&d.0)).filter(|d| *d > 0).unwrap_or(1000);
    Ok(((amount + divisor - 1) / divisor).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"b": "2", "a": "1\n"}},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "resources": {
                "limits": {"cpu": "1500m"}, "requests": {"memory": "10Mi"}}}]},
        }))
        .unwrap()
    }

    #[test]
    fn fields_of_metadata_spec_and_status_are_found() {
        let node = NodeFacts { pod_ips: vec!["1.1.1.1".into(), "::1".into()], ..Default::default() };
        let rows = [
            ("metadata.name", "p"),
            ("metadata.labels['b']", "2"),
            ("metadata.labels[\"b\"]", "2"),
            ("metadata.labels['none']", ""),
            ("metadata.labels", "a=\"1\\n\"\nb=\"2\""),
            ("spec.nodeName", "node"),
            ("status.podIP", "1.1.1.1"),
            ("status.podIPs", "1.1.1.1,::1"),
        ];
        for (path, expected) in rows {
            assert_eq!(field(&pod(), path, &node).unwrap(), expected, "{path}");
        }
        assert!(field(&pod(), "spec.nope", &node).is_err());
    }

    #[test]
    fn resources_are_divided_and_a_missing_limit_is_the_nodes() {
        let node = NodeFacts {
            allocatable_milli: BTreeMap::from([("memory".to_owned(), 2_000_000)]),
            ..Default::default()
        };
        let rows = [
            ("limits.cpu", "1", "2"),
            ("limits.cpu", "1m", "1500"),
            ("requests.memory", "1Mi", "10"),
            ("limits.memory", "1", "2000"),
            ("requests.cpu", "1", "0"),
        ];
        for (name, divisor, expected) in rows {
            let selector: ResourceFieldSelector =
                serde_json::from_value(serde_json::json!({"resource": name, "divisor": divisor})).unwrap();
            assert_eq!(resource(&pod(), "c", &selector, &node).unwrap(), expected, "{name}");
        }
    }
}

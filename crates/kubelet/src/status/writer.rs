//! Sending a status: at once, only what is ours, and only to the Pod that it is about.

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::core::v1::{Pod, PodStatus};
use trine_typed::kube::api::{Patch, PatchParams};
use trine_typed::kube::{Api, Client};

use crate::error::{KubeletError, api};
use crate::pod::spec;

/// `old` with the kubelet's fields from `fresh`; what others own stays.
#[must_use]
pub fn overlay(old: &PodStatus, fresh: PodStatus) -> PodStatus {
    PodStatus {
        phase: fresh.phase,
        conditions: fresh.conditions,
        message: fresh.message,
        reason: fresh.reason,
        host_ip: fresh.host_ip,
        host_ips: fresh.host_ips,
        pod_ip: fresh.pod_ip,
        pod_ips: fresh.pod_ips,
        start_time: fresh.start_time,
        init_container_statuses: fresh.init_container_statuses,
        container_statuses: fresh.container_statuses,
        ephemeral_container_statuses: fresh.ephemeral_container_statuses,
        qos_class: fresh.qos_class,
        observed_generation: fresh.observed_generation,
        ..old.clone()
    }
}

/// The patch from `old` to `fresh`: whole lists, but of the conditions only those that differ, since they merge
/// by type and others write some of them.
#[must_use]
pub fn patch(uid: &str, old: &PodStatus, fresh: &PodStatus) -> Value {
    let value = |status: &PodStatus| serde_json::to_value(status).unwrap_or_default();
    let (old_value, fresh_value) = (value(old), value(fresh));
    let mut status = serde_json::Map::new();
    for (key, field) in fresh_value.as_object().into_iter().flatten() {
        let before = &old_value[key];
        if before == field {
            continue;
        }
        let field = match key.as_str() {
            "conditions" => {
                let known = old.conditions.as_deref().unwrap_or_default();
                let changed = fresh.conditions.iter().flatten().filter(|c| !known.contains(c));
                let with_nulls = changed.map(|fresh| {
                    let old = known.iter().find(|old| old.type_ == fresh.type_);
                    forget_fields(json!(old), json!(fresh))
                });
                let kept = |kind: &str| fresh.conditions.iter().flatten().any(|c| c.type_ == kind);
                let gone = known.iter().filter(|old| !kept(&old.type_));
                let removed = gone.map(|old| json!({"$patch": "delete", "type": old.type_}));
                with_nulls.chain(removed).collect()
            }
            // These merge by address: an address that is gone would stay.
            "podIPs" | "hostIPs" if before.as_array().is_some_and(|a| !a.is_empty()) => {
                let replace = std::iter::once(json!({"$patch": "replace"}));
                replace.chain(field.as_array().into_iter().flatten().cloned()).collect()
            }
            _ => field.clone(),
        };
        status.insert(key.clone(), field);
    }
    json!({"metadata": {"uid": uid}, "status": status})
}

/// `fresh` with a null for each field that only `old` has: an element of a merged list keeps what is not named.
fn forget_fields(old: Value, mut fresh: Value) -> Value {
    if let (Some(old), Some(fresh)) = (old.as_object(), fresh.as_object_mut()) {
        for key in old.keys().filter(|key| !fresh.contains_key(*key)).cloned().collect::<Vec<_>>() {
            fresh.insert(key, Value::Null);
        }
    }
    fresh
}

/// Sends the status and returns the Pod as the server has it then; `None` if the Pod is gone.
///
/// # Errors
/// [`KubeletError::Api`].
pub async fn send(client: &Client, pod: &Pod, fresh: &PodStatus) -> Result<Option<Pod>, KubeletError> {
    let old = pod.status.clone().unwrap_or_default();
    let body = patch(spec::uid(pod), &old, fresh);
    let pods: Api<Pod> = Api::namespaced(client.clone(), spec::namespace(pod));
    let (params, body) = (PatchParams::default(), Patch::Strategic(&body));
    let patched = pods.patch_status(spec::name(pod), &params, &body);
    match api("patch Pod status", &spec::key(pod), patched).await {
        Ok(pod) => Ok(Some(pod)),
        // Gone, or another Pod of this name: its own worker speaks for that one.
        Err(error) if matches!(error.api_code(), Some(404 | 409)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_patch_holds_what_changed_and_spares_the_conditions_of_others() {
        let old = status(json!({"phase": "Pending", "podIPs": [{"ip": "1"}], "qosClass": "BestEffort",
            "conditions": [{"type": "Ready", "status": "False", "reason": "x"}, {"type": "theirs", "status": "True"}]}));
        let fresh = status(json!({"phase": "Running", "podIPs": [{"ip": "2"}], "qosClass": "BestEffort",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "theirs", "status": "True"}]}));
        let expected = json!({"metadata": {"uid": "u"}, "status": {
            "phase": "Running",
            "podIPs": [{"$patch": "replace"}, {"ip": "2"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": null}]}});
        assert_eq!(patch("u", &old, &fresh), expected);
        let fewer = status(json!({"phase": "Pending", "podIPs": [{"ip": "1"}], "qosClass": "BestEffort",
            "conditions": [{"type": "theirs", "status": "True"}]}));
        let removal = json!([{"$patch": "delete", "type": "Ready"}]);
        assert_eq!(patch("u", &old, &fewer)["status"]["conditions"], removal);
    }
}

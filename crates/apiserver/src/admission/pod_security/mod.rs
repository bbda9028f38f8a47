//! How much a Pod may ask of its node, by the labels of its namespace: `pod-security.kubernetes.io/enforce` refuses, `warn`
//! warns. Levels are `privileged`, [`baseline`] and [`restricted`]; the policies are those of this release for every version.

mod baseline;
mod finding;
mod restricted;

use serde_json::Value;

use super::Change;
use crate::kinds::Objects;
use crate::registry::{Registry, text};
use crate::status::ApiError;
use finding::Finding;

const PREFIX: &str = "pod-security.kubernetes.io/";

/// Refuses a Pod that the namespace does not take, and warns of Pods, and templates of them, that it warns of.
pub fn validate(
    registry: &Registry,
    change: &Change<'_>,
    new: &Value,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let is_pod = change.resource.group.is_empty() && change.resource.plural == "pods";
    let Some(pod) = pod_of(change, new) else { return Ok(()) };
    if change.old.is_some_and(|old| !is_significant(pod, pod_of(change, old).unwrap_or(&Value::Null))) {
        return Ok(());
    }
    let namespace = text(&new["metadata"]["namespace"]);
    let Some(namespace) = Objects::get(registry, "", "namespaces", "", namespace) else { return Ok(()) };
    let labels = &namespace["metadata"]["labels"];
    if is_pod && let Some(found) = violation(labels, "enforce", pod) {
        return Err(change.denied(new, format!("violates {found}")));
    }
    if let Some(found) = violation(labels, "warn", pod) {
        warnings.push(format!("would violate {found}"));
    }
    Ok(())
}

/// The Pod, or the template of Pods, in an object; `None` for what makes none or does not change one here.
fn pod_of<'a>(change: &Change<'_>, object: &'a Value) -> Option<&'a Value> {
    match (&*change.resource.group, &*change.resource.plural, change.subresource) {
        ("", "pods", "" | "ephemeralcontainers") => Some(object),
        ("", "podtemplates", "") => Some(&object["template"]),
        ("", "replicationcontrollers", "")
        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets", "")
        | ("batch", "jobs", "") => Some(&object["spec"]["template"]),
        ("batch", "cronjobs", "") => Some(&object["spec"]["jobTemplate"]["spec"]["template"]),
        _ => None,
    }
}

/// Whether a change touches what the policies look at: anything of the spec but tolerations and the like.
fn is_significant(new: &Value, old: &Value) -> bool {
    let watched = ["containers", "initContainers", "ephemeralContainers", "securityContext", "volumes"];
    watched.iter().any(|field| new["spec"][*field] != old["spec"][*field])
        || new["metadata"]["annotations"] != old["metadata"]["annotations"]
}

/// What a mode of the namespace has against a Pod, on one line.
fn violation(labels: &Value, mode: &str, pod: &Value) -> Option<String> {
    let level = text(&labels[format!("{PREFIX}{mode}")]);
    let version = Some(text(&labels[format!("{PREFIX}{mode}-version")])).filter(|v| !v.is_empty());
    let findings = against(level, pod);
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let version = version.unwrap_or("latest");
    (!list.is_empty()).then(|| format!("PodSecurity \"{level}:{version}\": {}", list.join(", ")))
}

/// What a level has against a Pod.
fn against(level: &str, pod: &Value) -> Vec<Finding> {
    match level {
        "baseline" => baseline::check(pod, false),
        "restricted" => {
            let mut findings = baseline::check(pod, true);
            findings.extend(restricted::check(pod));
            findings
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lines(level: &str, spec: Value) -> Vec<String> {
        against(level, &json!({"spec": spec})).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_plain_pod_fits_the_baseline_and_lacks_what_restricted_asks_for() {
        let plain = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        assert_eq!(lines("baseline", plain.clone()), Vec::<String>::new());
        assert_eq!(lines("privileged", plain.clone()), Vec::<String>::new());
        assert_eq!(
            lines("restricted", plain),
            [
                "allowPrivilegeEscalation != false (containers \"a\", \"b\" must set securityContext.allowPrivilegeEscalation=false)",
                "unrestricted capabilities (containers \"a\", \"b\" must set securityContext.capabilities.drop=[\"ALL\"])",
                "runAsNonRoot != true (pod or containers \"a\", \"b\" must set securityContext.runAsNonRoot=true)",
                "seccompProfile (pod or containers \"a\", \"b\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
            ]
        );
        let good = json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}, "containers": [
            {"name": "a", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}}]});
        assert_eq!(lines("restricted", good), Vec::<String>::new());
    }

    #[test]
    fn what_reaches_the_node_is_against_the_baseline() {
        let rows = [
            (
                json!({"hostNetwork": true, "hostPID": true}),
                "host namespaces (hostNetwork=true, hostPID=true)",
            ),
            (
                json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
                "hostPath volumes (volume \"v\")",
            ),
            (
                json!({"containers": [{"name": "c", "ports": [{"hostPort": 80}, {"hostPort": 81}]}]}),
                "hostPort (container \"c\" uses hostPorts 80, 81)",
            ),
            (
                json!({"initContainers": [{"name": "i", "securityContext": {"privileged": true}}]}),
                "privileged (container \"i\" must not set securityContext.privileged=true)",
            ),
            (
                json!({"containers": [{"name": "c", "securityContext": {"capabilities": {"add": ["SYS_ADMIN", "CHOWN"]}}}]}),
                "non-default capabilities (container \"c\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add)",
            ),
            (
                json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}]}}),
                "forbidden sysctls (kernel.msgmax)",
            ),
            (
                json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
                "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
            ),
            (
                json!({"securityContext": {"seLinuxOptions": {"type": "x_t", "user": "u"}}}),
                "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"x_t\"; user may not be set)",
            ),
        ];
        for (spec, wanted) in rows {
            assert_eq!(lines("baseline", spec), [wanted]);
        }
        let volume = json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]});
        assert_eq!(
            lines("restricted", volume)[0],
            "restricted volume types (volume \"v\" uses restricted volume type \"hostPath\")"
        );
    }

    #[test]
    fn the_line_names_level_and_version() {
        let labels = json!({"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "baseline",
            "pod-security.kubernetes.io/warn-version": "v1.30"});
        let pod = json!({"spec": {"hostPID": true}});
        let line = violation(&labels, "enforce", &pod).unwrap();
        assert_eq!(line, "PodSecurity \"baseline:latest\": host namespaces (hostPID=true)");
        assert!(violation(&labels, "warn", &pod).unwrap().starts_with("PodSecurity \"baseline:v1.30\""));
        assert_eq!(violation(&json!({}), "enforce", &pod), None);
    }
}

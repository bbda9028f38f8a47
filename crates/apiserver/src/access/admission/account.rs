//! A new Pod has a ServiceAccount, which is there, and its token is mounted into every container unless Pod or account say no.

use std::time::Duration;

use serde_json::{Value, json};

use crate::access::token::claims::WARN_SECONDS;
use crate::kinds::Objects;
use crate::registry::{Registry, text};
use crate::verbs::create::generated_name;
use tokio::time::Instant;

/// Where clients look for their token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Names of the volume begin with it.
const VOLUME: &str = "kube-api-access-";
/// Marks a Pod that a kubelet shows for one of its static Pods.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The account of Pods that name none; its controller makes it in every namespace.
const DEFAULT: &str = "default";
/// How long a Pod waits for that. Upstream: ten attempts.
const DEFAULT_DEADLINE: Duration = Duration::from_millis(1500);
const POLL: Duration = Duration::from_millis(10);
/// Mode of the volume's files.
const MODE: i64 = 0o644;

/// Gives a new Pod its account and token.
///
/// # Errors
/// Why the Pod is refused.
pub async fn admit(registry: &Registry, pod: &mut Value) -> Result<(), String> {
    let namespace = text(&pod["metadata"]["namespace"]).to_owned();
    if !pod["metadata"]["annotations"][MIRROR].is_null() {
        return mirror(&pod["spec"]);
    }
    if !pod["spec"].is_object() {
        return Ok(()); // Validation says what is missing.
    }
    let older = text(&pod["spec"]["serviceAccount"]).to_owned();
    if text(&pod["spec"]["serviceAccountName"]).is_empty() {
        let name = if older.is_empty() { DEFAULT.to_owned() } else { older };
        pod["spec"]["serviceAccountName"] = name.into();
    }
    pod["spec"]["serviceAccount"] = pod["spec"]["serviceAccountName"].clone();
    let name = text(&pod["spec"]["serviceAccountName"]).to_owned();
    let account = account(registry, &namespace, &name).await.ok_or_else(|| {
        format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found")
    })?;
    if automount(&account, pod) {
        mount(&mut pod["spec"]);
    }
    Ok(())
}

async fn account(registry: &Registry, namespace: &str, name: &str) -> Option<Value> {
    let since = Instant::now();
    loop {
        let found = Objects::get(registry, "", "serviceaccounts", namespace, name);
        if found.is_some() || name != DEFAULT || since.elapsed() > DEFAULT_DEADLINE {
            return found;
        }
        tokio::time::sleep(POLL).await;
    }
}

fn automount(account: &Value, pod: &Value) -> bool {
    let of_pod = pod["spec"]["automountServiceAccountToken"].as_bool();
    of_pod.or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true)
}

/// The kubelet makes mirrors: they must not let its node have anything.
fn mirror(spec: &Value) -> Result<(), String> {
    if !text(&spec["serviceAccountName"]).is_empty() {
        return Err("a mirror pod may not reference service accounts".to_owned());
    }
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let token = |v: &Value| {
        let mut sources = v["projected"]["sources"].as_array().into_iter().flatten();
        sources.any(|s| !s["serviceAccountToken"].is_null())
    };
    if volumes.into_iter().any(token) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections".to_owned());
    }
    if crate::access::node::graph::has_secrets(spec) {
        return Err("a mirror pod may not reference secrets".to_owned());
    }
    Ok(())
}

/// Mounts the token where a container has nothing in its place.
fn mount(spec: &mut Value) {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut have = volumes.map(|v| text(&v["name"])).filter(|n| n.starts_with(VOLUME));
    let existing = have.next().map(str::to_owned);
    let name = existing.clone().unwrap_or_else(|| generated_name(VOLUME));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter(|c| c.is_object()) {
            let mounts = container["volumeMounts"].as_array().into_iter().flatten();
            if mounts.into_iter().any(|m| m["mountPath"] == MOUNT_PATH) {
                continue;
            }
            let mount = json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH});
            match container["volumeMounts"].as_array_mut() {
                Some(mounts) => mounts.push(mount),
                None => container["volumeMounts"] = json!([mount]),
            }
            needed = true;
        }
    }
    if needed && existing.is_none() {
        match spec["volumes"].as_array_mut() {
            Some(volumes) => volumes.push(volume(&name)),
            None => spec["volumes"] = json!([volume(&name)]),
        }
    }
}

/// Token, authority and namespace: what a client in a Pod needs.
fn volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": MODE, "sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": WARN_SECONDS}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_mounted_where_nothing_is() {
        let taken = json!([{"name": "x", "mountPath": MOUNT_PATH}]);
        let mut alone = json!({"containers": [{"name": "a"}]});
        mount(&mut alone);
        assert_eq!(alone.get("initContainers"), None, "nothing else is added");
        let mut spec = json!({"containers": [{"name": "a"}, {"name": "b", "volumeMounts": taken}],
            "initContainers": [{"name": "i", "volumeMounts": [{"name": "y", "mountPath": "/y"}]}]});
        mount(&mut spec);
        let name = text(&spec["volumes"][0]["name"]).to_owned();
        assert!(name.starts_with(VOLUME) && name.len() == VOLUME.len() + 5, "{name}");
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["mountPath"], MOUNT_PATH);
        assert_eq!(spec["containers"][1]["volumeMounts"].as_array().unwrap().len(), 1);
        assert_eq!(spec["initContainers"][0]["volumeMounts"][1]["name"], name.as_str());
        let before = spec.clone();
        mount(&mut spec);
        assert_eq!(spec, before, "it is there already");
    }

    #[test]
    fn pod_and_account_may_say_no() {
        let (yes, no) =
            (json!({"automountServiceAccountToken": true}), json!({"automountServiceAccountToken": false}));
        let pod = |spec: &Value| json!({"spec": spec});
        let open = json!({});
        for (account, spec, wanted) in
            [(&open, &open, true), (&no, &open, false), (&no, &yes, true), (&yes, &no, false)]
        {
            assert_eq!(automount(account, &pod(spec)), wanted, "{account} {spec}");
        }
    }

    #[test]
    fn a_mirror_refers_to_nothing() {
        assert!(mirror(&json!({"containers": []})).is_ok());
        assert!(mirror(&json!({"serviceAccountName": "x"})).is_err());
        assert!(mirror(&json!({"containers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]})).is_err());
    }
}

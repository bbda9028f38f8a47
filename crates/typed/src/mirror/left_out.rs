//! What a copy for controllers and scheduler does without: the greater part of a Pod is for kubelets alone.
//!
//! Nobody writes a Pod back from such a copy; changes are patches.

use std::any::Any;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, Volume};

/// Leaves out of an object what neither controllers nor scheduler read, and the space that nothing is in.
pub(super) fn leave_out<K: Any>(object: &mut K) {
    if let Some(pod) = (object as &mut dyn Any).downcast_mut::<Pod>() {
        leave_out_of_pod(pod);
    }
}

fn leave_out_of_pod(pod: &mut Pod) {
    if let Some(spec) = &mut pod.spec {
        spec.containers.iter_mut().for_each(of_container);
        spec.containers.shrink_to_fit();
        spec.init_containers.iter_mut().flatten().for_each(of_container);
        shrink(&mut spec.init_containers);
        spec.ephemeral_containers = None;
        (spec.dns_config, spec.host_aliases, spec.image_pull_secrets) = (None, None, None);
        spec.security_context = None;
        if let Some(volumes) = &mut spec.volumes {
            volumes.retain(|volume| !is_of_the_node(volume));
        }
        spec.volumes = spec.volumes.take().filter(|volumes| !volumes.is_empty());
        shrink(&mut spec.volumes);
        shrink(&mut spec.tolerations);
    }
    if let Some(status) = &mut pod.status {
        let started = status.container_statuses.iter_mut().flatten();
        started.chain(status.init_container_statuses.iter_mut().flatten()).for_each(of_status);
        status.ephemeral_container_statuses = None;
        shrink(&mut status.container_statuses);
        shrink(&mut status.init_container_statuses);
        shrink(&mut status.conditions);
        shrink(&mut status.host_ips);
        shrink(&mut status.pod_ips);
    }
    shrink(&mut pod.metadata.owner_references);
    shrink(&mut pod.metadata.finalizers);
}

/// Who reads lists gives them room for four.
fn shrink<T>(list: &mut Option<Vec<T>>) {
    if let Some(list) = list {
        list.shrink_to_fit();
    }
}

/// What is left: name, image, ports, resources and whether it starts again.
fn of_container(container: &mut Container) {
    let Container {
        name, image, ports, resources, resize_policy, restart_policy, restart_policy_rules, ..
    } = std::mem::take(container);
    *container = Container {
        name,
        image,
        ports,
        resources,
        resize_policy,
        restart_policy,
        restart_policy_rules,
        ..Container::default()
    };
    shrink(&mut container.ports);
}

/// What is left: how it goes, how often it began, and what it has.
fn of_status(status: &mut ContainerStatus) {
    status.container_id = None;
    status.image_id.clear();
    status.image_id.shrink_to_fit();
    status.image.clear();
    status.image.shrink_to_fit();
    (status.last_state, status.user, status.volume_mounts) = (None, None, None);
    if let Some(ended) = status.state.as_mut().and_then(|state| state.terminated.as_mut()) {
        (ended.message, ended.container_id) = (None, None);
    }
}

/// A volume that the kubelet makes of what the node has: it binds nothing, is attached nowhere, and fits on each node.
fn is_of_the_node(volume: &Volume) -> bool {
    volume.empty_dir.is_some()
        || volume.host_path.is_some()
        || volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_for_kubelets_is_left_out_and_the_rest_stays() {
        let container = |more: serde_json::Value| {
            let mut container = json!({"name": "c", "image": "web:1", "ports": [{"containerPort": 80, "hostPort": 80}],
                "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}});
            json_patch::merge(&mut container, &more);
            container
        };
        let kubelets = json!({"command": ["a"], "args": ["b"], "env": [{"name": "A", "value": "b"}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}], "livenessProbe": {"periodSeconds": 1},
            "securityContext": {"privileged": true}});
        let always = json!({"restartPolicy": "Always"});
        let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
        let status = |more: serde_json::Value| {
            let mut status = json!({"name": "c", "ready": true, "restartCount": 3, "image": "", "imageID": "",
                "state": {"terminated": {"exitCode": 4, "reason": "Error"}}, "allocatedResources": {"cpu": "1"}});
            json_patch::merge(&mut status, &more);
            status
        };
        let ids = json!({"image": "web:1", "imageID": "sha256:1", "containerID": "trine://1",
            "lastState": {"running": {}}, "state": {"terminated": {"message": "long", "containerID": "trine://1"}}});
        let rest = json!({"nodeName": "n", "hostname": "h", "tolerations": [{"key": "a"}]});
        let pod = |container: &dyn Fn(serde_json::Value) -> serde_json::Value,
                   volumes: serde_json::Value,
                   status: serde_json::Value| {
            let init = container(always.clone());
            let mut spec =
                json!({"containers": [container(json!({}))], "initContainers": [init], "volumes": volumes});
            json_patch::merge(&mut spec, &rest);
            serde_json::from_value::<Pod>(
                json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec,
                "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [status]}}),
            )
            .unwrap()
        };
        let whole = |more: serde_json::Value| {
            let mut whole = container(more);
            json_patch::merge(&mut whole, &kubelets);
            whole
        };
        let of_nodes = [
            ("emptyDir", json!({})),
            ("hostPath", json!({"path": "/x"})),
            ("configMap", json!({"name": "x"})),
            ("secret", json!({"secretName": "x"})),
            ("projected", json!({"sources": []})),
            ("downwardAPI", json!({"items": []})),
        ];
        let mut volumes: Vec<_> =
            of_nodes.iter().map(|(kind, source)| json!({"name": kind, *kind: source})).collect();
        volumes.push(claim.clone());
        let mut told = pod(&whole, volumes.into(), status(ids));
        leave_out(&mut told);
        assert_eq!(told, pod(&container, json!([claim]), status(json!({}))));
    }

    #[test]
    fn volumes_that_a_scheduler_asks_about_stay() {
        for (kind, source) in [
            ("ephemeral", json!({"volumeClaimTemplate": {"spec": {}}})),
            ("csi", json!({"driver": "d"})),
            ("gcePersistentDisk", json!({"pdName": "x"})),
            ("image", json!({"reference": "x"})),
        ] {
            let volume = json!({"name": "v", kind: source});
            let mut pod: Pod = serde_json::from_value(
                json!({"metadata": {}, "spec": {"containers": [], "volumes": [volume]}}),
            )
            .unwrap();
            let before = pod.clone();
            leave_out(&mut pod);
            assert_eq!(pod, before, "{kind}");
        }
    }
}

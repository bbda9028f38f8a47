//! Pods as a whole.

use super::*;
use crate::kinds::Allocators;
use crate::kinds::Objects;
use crate::kinds::fields::items;
use crate::kinds::testing::{Nothing, These};

fn created(spec: Value, objects: &dyn Objects) -> Result<Value, Invalid> {
    let pools = Allocators::new("10.0.0.0/24").unwrap();
    let mut pod = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec});
    Pods.defaults(&mut pod);
    Pods.prepare_create(&mut pod, &mut Cx::new(objects, &pools, 0))?;
    let causes = Pods.validate(&pod, None);
    if causes.is_empty() { Ok(pod) } else { Err(Invalid(causes)) }
}

#[test]
fn a_plain_pod_is_filled_as_upstream_does() {
    let pod = created(
        json!({"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]}),
        &Nothing,
    )
    .unwrap();
    assert_eq!(
        pod["spec"],
        json!({
            "containers": [{"name": "c", "image": "nginx", "imagePullPolicy": "Always", "resources": {},
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
            "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
            "serviceAccount": "default", "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        })
    );
    assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

#[test]
fn parts_are_filled_where_they_are() {
    let pod = created(
        json!({"hostNetwork": true, "containers": [{"name": "c", "image": "r:5000/a/b:1.2", "ports": [{"containerPort": 80}],
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "readinessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": 0}, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "volumeMounts": [{"name": "e", "mountPath": "/e"}]}],
            "volumes": [{"name": "e"}, {"name": "c", "configMap": {"name": "x"}}, {"name": "h", "hostPath": {"path": "/"}}]}),
        &Nothing,
    )
    .unwrap();
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(container["ports"][0]["hostPort"], 80);
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
    assert_eq!(container["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(
        container["readinessProbe"],
        json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
            "successThreshold": 1, "failureThreshold": 3})
    );
    assert_eq!(pod["spec"]["volumes"][0], json!({"name": "e", "emptyDir": {}}));
    assert_eq!(pod["spec"]["volumes"][1]["configMap"]["defaultMode"], 420);
    assert_eq!(pod["spec"]["volumes"][2]["hostPath"]["type"], "");
    assert_eq!(pod["status"]["qosClass"], "Guaranteed");
}

#[test]
fn a_template_is_not_given_what_only_its_pods_are() {
    let limited = json!({"limits": {"cpu": "1"}});
    let mut spec = json!({"hostNetwork": true, "containers": [{"name": "c", "image": "a:1", "ports": [{"containerPort": 80}],
        "resources": limited}]});
    defaults::spec(&mut spec);
    assert_eq!(spec["containers"][0]["resources"], limited);
    assert_eq!(spec["containers"][0]["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
    assert_eq!(spec["enableServiceLinks"], serde_json::Value::Null);
}

#[test]
fn images_without_a_fixed_tag_are_pulled_each_time() {
    for (image, policy) in [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("r:5000/a", "Always"),
        ("a:1", "IfNotPresent"),
        ("r:5000/a:1", "IfNotPresent"),
        ("a@sha256:00", "IfNotPresent"),
    ] {
        let mut container = json!({"image": image});
        defaults::container(&mut container);
        assert_eq!(container["imagePullPolicy"], policy, "{image}");
        let mut spec = json!({"volumes": [{"name": "v", "image": {"reference": image}}]});
        defaults::spec(&mut spec);
        assert_eq!(spec["volumes"][0]["image"]["pullPolicy"], policy, "{image} as a volume");
    }
}

#[test]
fn priority_account_and_runtime_class_come_from_the_cluster() {
    let cluster = These(vec![
        ("priorityclasses", json!({"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"})),
        ("priorityclasses", json!({"metadata": {"name": "normal"}, "value": 3, "globalDefault": true})),
        ("serviceaccounts", json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "s"}]})),
        (
            "runtimeclasses",
            json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}}}),
        ),
    ]);
    let containers = json!([{"name": "c", "image": "i"}]);
    let plain = created(json!({"containers": containers}), &cluster).unwrap();
    assert_eq!(
        (&plain["spec"]["priority"], &plain["spec"]["priorityClassName"]),
        (&json!(3), &json!("normal"))
    );
    assert_eq!(plain["spec"]["imagePullSecrets"], json!([{"name": "s"}]));
    let high = created(
        json!({"containers": containers, "priorityClassName": "high", "runtimeClassName": "vm"}),
        &cluster,
    )
    .unwrap();
    assert_eq!((&high["spec"]["priority"], &high["spec"]["preemptionPolicy"]), (&json!(7), &json!("Never")));
    assert_eq!(
        (&high["spec"]["overhead"], &high["spec"]["nodeSelector"]),
        (&json!({"cpu": "250m"}), &json!({"vm": "yes"}))
    );
    for (field, name) in [("priorityClassName", "none"), ("runtimeClassName", "none")] {
        let refused = created(json!({"containers": containers, field: name}), &cluster).unwrap_err();
        assert_eq!(refused.0[0].kind, crate::kinds::CauseKind::Denied, "{refused}");
    }
}

#[test]
fn faults_of_a_new_pod_are_named() {
    let c = |extra: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        container.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"containers": [container]})
    };
    for (spec, wanted) in [
        (json!({}), "spec.containers: Required value"),
        (json!({"containers": [{"name": "c"}]}), "spec.containers[0].image: Required value"),
        (json!({"containers": [{"image": "i"}]}), "spec.containers[0].name: Required value"),
        (
            json!({"containers": [{"name": "C", "image": "i"}]}),
            "spec.containers[0].name: Invalid value: \"C\": a lowercase RFC 1123 label",
        ),
        (
            json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}),
            "spec.containers[1].name: Duplicate value: \"c\"",
        ),
        (
            c(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            c(json!({"ports": [{"containerPort": 70000}]})),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            c(json!({"ports": [{"containerPort": 1, "protocol": "X"}]})),
            "spec.containers[0].ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ),
        (c(json!({"env": [{"name": "a=b"}]})), "spec.containers[0].env[0].name: Invalid value"),
        (
            c(
                json!({"env": [{"name": "a", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            ),
            "may not be specified when `value` is not empty",
        ),
        (
            c(json!({"env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]})),
            "fieldPath: Unsupported value: \"spec.x\"",
        ),
        (
            c(json!({"livenessProbe": {}})),
            "spec.containers[0].livenessProbe: Required value: must specify a handler type",
        ),
        (
            c(json!({"livenessProbe": {"tcpSocket": {"port": 1}, "successThreshold": 2}})),
            "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            c(json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}})),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            c(json!({"resources": {"limits": {"cpu": "-1"}}})),
            "spec.containers[0].resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (c(json!({"resources": {"limits": {"gpu": "1"}}})), "must be a standard resource for containers"),
        (c(json!({"imagePullPolicy": "Sometimes"})), "imagePullPolicy: Unsupported value"),
        (
            c(json!({"securityContext": {"privileged": true, "allowPrivilegeEscalation": false}})),
            "cannot set `allowPrivilegeEscalation` to false",
        ),
        (
            json!({"restartPolicy": "Maybe", "containers": [{"name": "c", "image": "i"}]}),
            "spec.restartPolicy: Unsupported value: \"Maybe\"",
        ),
        (
            json!({"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}], "containers": [{"name": "c", "image": "i"}]}),
            "may not specify more than 1 volume type",
        ),
        (
            json!({"volumes": [{"name": "v"}, {"name": "v"}], "containers": [{"name": "c", "image": "i"}]}),
            "spec.volumes[1].name: Duplicate value: \"v\"",
        ),
        (
            json!({"initContainers": [{"name": "c", "image": "i"}], "containers": [{"name": "c", "image": "i"}]}),
            "spec.initContainers[0].name: Duplicate value",
        ),
        (
            json!({"initContainers": [{"name": "d", "image": "i", "livenessProbe": {"tcpSocket": {"port": 1}}}], "containers": [{"name": "c", "image": "i"}]}),
            "may not be set for init containers without restartPolicy=Always",
        ),
        (
            json!({"ephemeralContainers": [{"name": "e", "image": "i"}], "containers": [{"name": "c", "image": "i"}]}),
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
        (
            json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}], "containers": [{"name": "c", "image": "i"}]}),
            "value must be empty when `operator` is 'Exists'",
        ),
        (
            json!({"dnsPolicy": "None", "containers": [{"name": "c", "image": "i"}]}),
            "must provide at least one DNS nameserver",
        ),
    ] {
        let refused = created(spec.clone(), &Nothing).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(wanted), "{spec}: {refused}");
    }
}

#[test]
fn only_a_few_fields_of_a_pod_change() {
    let old = created(
        json!({"containers": [{"name": "c", "image": "i:1"}], "activeDeadlineSeconds": 100}),
        &Nothing,
    )
    .unwrap();
    let change = |edit: fn(&mut Value)| {
        let mut new = old.clone();
        edit(&mut new["spec"]);
        Invalid(Pods.validate(&new, Some(&old))).to_string()
    };
    for allowed in [
        (|s: &mut Value| s["containers"][0]["image"] = json!("i:2")) as fn(&mut Value),
        |s| s["activeDeadlineSeconds"] = json!(50),
        |s| s["tolerations"].as_array_mut().unwrap().push(json!({"key": "x", "operator": "Exists"})),
        |s| s["nodeSelector"] = json!({}),
    ] {
        assert_eq!(change(allowed), "[]");
    }
    for (refused, wanted) in [
        (
            (|s: &mut Value| s["containers"][0]["args"] = json!(["x"])) as fn(&mut Value),
            "pod updates may not change fields other than",
        ),
        (|s| s["nodeName"] = json!("n"), "pod updates may not change fields other than"),
        (|s| s["activeDeadlineSeconds"] = json!(200), "must be less than or equal to previous value"),
        (
            |s| s["containers"].as_array_mut().unwrap().push(json!({"name": "d", "image": "i"})),
            "may not add or remove containers",
        ),
        (|s| s["tolerations"] = json!([]), "existing toleration can not be modified"),
    ] {
        let found = change(refused);
        assert!(found.contains(wanted), "{found}");
    }
}

#[test]
fn tolerations_of_a_nodes_troubles_outlive_an_update_that_does_not_name_them() {
    let old = created(json!({"containers": [{"name": "c", "image": "i"}]}), &Nothing).unwrap();
    let mut new = old.clone();
    let own = json!({"key": "mine", "operator": "Exists", "effect": "NoSchedule"});
    set(&mut new["spec"], "tolerations", json!([own]));
    let pools = Allocators::new("10.0.0.0/24").unwrap();
    Pods.prepare_update(&mut new, &old, &mut Cx::new(&Nothing, &pools, 0)).unwrap();
    assert!(Pods.validate(&new, Some(&old)).is_empty());
    assert_eq!(items(&new["spec"], "tolerations").len(), 3);
}

#[test]
fn ephemeral_containers_are_only_added() {
    let mut old = created(json!({"containers": [{"name": "c", "image": "i"}]}), &Nothing).unwrap();
    let mut new = old.clone();
    new["spec"]["ephemeralContainers"] = json!([{"name": "e", "image": "i"}]);
    assert!(Pods.validate_part("ephemeralcontainers", &new, &old).is_empty());
    std::mem::swap(&mut old, &mut new);
    assert!(!Pods.validate_part("ephemeralcontainers", &new, &old).is_empty());
}

#[test]
fn the_status_column_reads_as_in_kubectl() {
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let running = || json!({"running": {}});
    let ended = |code: i64, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
    let two = json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "c"}, {"name": "d"}]});
    let one = json!({"containers": [{"name": "c"}]});
    let cases = [
        ("pending", &one, json!({"phase": "Pending"}), "0/1 Pending 0"),
        (
            "creating",
            &one,
            json!({"phase": "Pending", "containerStatuses": [{"name": "c", "state": waiting("ContainerCreating")}]}),
            "0/1 ContainerCreating 0",
        ),
        (
            "running",
            &one,
            json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": true, "state": running()}]}),
            "1/1 Running 0",
        ),
        (
            "crash loop",
            &one,
            json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 3, "state": waiting("CrashLoopBackOff"),
            "lastState": {"terminated": {"finishedAt": "1970-01-01T00:01:35Z"}}}]}),
            "0/1 CrashLoopBackOff 3 (5s ago)",
        ),
        (
            "completed",
            &one,
            json!({"phase": "Succeeded", "containerStatuses": [{"name": "c", "state": ended(0, "Completed")}]}),
            "0/1 Completed 0",
        ),
        (
            "error",
            &one,
            json!({"phase": "Failed", "containerStatuses": [{"name": "c", "state": ended(2, "")}]}),
            "0/1 ExitCode:2 0",
        ),
        (
            "signal",
            &one,
            json!({"phase": "Failed", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
            "0/1 Signal:9 0",
        ),
        ("evicted", &one, json!({"phase": "Failed", "reason": "Evicted"}), "0/1 Evicted 0"),
        (
            "gated",
            &one,
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated", "status": "False"}]}),
            "0/1 SchedulingGated 0",
        ),
        (
            "init",
            &two,
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": ended(0, "Completed")}, {"name": "j", "state": running()}],
            "containerStatuses": [{"name": "c", "state": waiting("PodInitializing")}]}),
            "0/2 Init:1/2 0",
        ),
        (
            "init waits",
            &two,
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "restartCount": 2, "state": waiting("CrashLoopBackOff")}]}),
            "0/2 Init:CrashLoopBackOff 2",
        ),
        (
            "init fails",
            &two,
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": ended(1, "Error")}]}),
            "0/2 Init:Error 0",
        ),
        (
            "half done",
            &two,
            json!({"phase": "Running", "containerStatuses": [{"name": "c", "state": ended(0, "Completed")}, {"name": "d", "ready": true, "state": running()}]}),
            "1/2 NotReady 0",
        ),
    ];
    for (name, spec, status, wanted) in cases {
        let row = table::row(&json!({"metadata": {"name": "p"}, "spec": spec, "status": status}), 100);
        let shown =
            format!("{} {} {}", row[1].as_str().unwrap(), row[2].as_str().unwrap(), row[3].as_str().unwrap());
        assert_eq!(shown, wanted, "{name}");
    }
    let leaving = json!({"metadata": {"name": "p", "deletionTimestamp": "1970-01-01T00:00:00Z"}, "spec": one, "status": {"phase": "Running"}});
    assert_eq!(table::row(&leaving, 100)[2], "Terminating");
    assert_eq!(table::row(&leaving, 100)[5], "<none>");
}

#[test]
fn sidecars_count_among_the_containers() {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "initContainerStatuses": [{"name": "s", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}}],
            "containerStatuses": [{"name": "c", "ready": true, "state": {"running": {}}}]}});
    let row = table::row(&pod, 0);
    assert_eq!((&row[1], &row[3]), (&json!("2/2"), &json!("1")));
}

//! Kinds with templates as a whole.

use super::*;
use crate::kinds::Hooks;
use serde_json::json;

fn object(mut spec: Value) -> Value {
    spec["template"] = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}});
    json!({"metadata": {"name": "x", "namespace": "d"}, "spec": spec})
}

fn filled(hooks: &dyn Hooks, spec: Value) -> Value {
    let mut object = object(spec);
    hooks.defaults(&mut object);
    object
}

fn wrong(hooks: &dyn Hooks, new: &Value, old: Option<&Value>) -> Vec<String> {
    hooks.validate(new, old).iter().map(ToString::to_string).collect()
}

fn selector() -> Value {
    json!({"selector": {"matchLabels": {"app": "web"}}})
}

#[test]
fn what_is_left_open_is_filled_as_upstream_does() {
    let deployment = filled(&Deployments, selector());
    let spec = &deployment["spec"];
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})
    );
    assert_eq!((&spec["replicas"], &spec["revisionHistoryLimit"]), (&json!(1), &json!(10)));
    assert_eq!(spec["progressDeadlineSeconds"], 600);
    assert_eq!(spec["template"]["spec"]["restartPolicy"], "Always");
    assert_eq!(spec["template"]["spec"]["containers"][0]["imagePullPolicy"], "Always");
    let daemons = filled(&DaemonSets, selector());
    assert_eq!(
        daemons["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}})
    );
    let set = filled(&StatefulSets, selector());
    assert_eq!(
        set["spec"]["updateStrategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}})
    );
    assert_eq!(set["spec"]["podManagementPolicy"], "OrderedReady");
    assert_eq!(
        set["spec"]["persistentVolumeClaimRetentionPolicy"],
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
    );
    let controller = filled(&ReplicationControllers, json!({}));
    assert_eq!(controller["spec"]["selector"], json!({"app": "web"}));
    assert_eq!(controller["metadata"]["labels"], json!({"app": "web"}));
    for (hooks, object) in [
        (&Deployments as &dyn Hooks, &deployment),
        (&DaemonSets, &daemons),
        (&StatefulSets, &set),
        (&ReplicationControllers, &controller),
        (&ReplicaSets, &filled(&ReplicaSets, selector())),
    ] {
        assert_eq!(wrong(hooks, object, None), Vec::<String>::new());
    }
}

#[test]
fn a_selector_is_needed_fits_the_template_and_stays() {
    let none = filled(&Deployments, json!({}));
    assert_eq!(wrong(&Deployments, &none, None)[0], "spec.selector: Required value");
    let other = filled(&Deployments, json!({"selector": {"matchLabels": {"app": "db"}}}));
    assert_eq!(
        wrong(&Deployments, &other, None),
        [
            "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`"
        ]
    );
    let old = filled(&Deployments, selector());
    let found = wrong(&Deployments, &other, Some(&old));
    assert!(found.contains(
        &"spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"db\"}}: field is immutable".to_owned()
    ));
}

#[test]
fn strategies_are_checked() {
    let cases: [(&dyn Hooks, &str, Value, &str); 6] = [
        (
            &Deployments,
            "strategy",
            json!({"type": "Recreate", "rollingUpdate": {}}),
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            &Deployments,
            "strategy",
            json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "0%"}}),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
        ),
        (
            &Deployments,
            "strategy",
            json!({"rollingUpdate": {"maxUnavailable": "x", "maxSurge": 1}}),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"x\": a valid percent string",
        ),
        (
            &DaemonSets,
            "updateStrategy",
            json!({"rollingUpdate": {"maxSurge": 1}}),
            "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero",
        ),
        (
            &StatefulSets,
            "updateStrategy",
            json!({"type": "OnDelete", "rollingUpdate": {}}),
            "spec.updateStrategy.rollingUpdate: Invalid value: {}: only allowed for updateStrategy 'RollingUpdate'",
        ),
        (
            &StatefulSets,
            "updateStrategy",
            json!({"rollingUpdate": {"partition": -1}, "type": "RollingUpdate"}),
            "spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0",
        ),
    ];
    for (hooks, field, strategy, expected) in cases {
        let mut spec = selector();
        spec[field] = strategy;
        let found = wrong(hooks, &filled(hooks, spec), None);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    }
}

#[test]
fn claims_of_a_stateful_set_are_volumes_of_its_pods() {
    let mut spec = selector();
    spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}]);
    let mut set = filled(&StatefulSets, spec);
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/d"}]);
    assert_eq!(wrong(&StatefulSets, &set, None), Vec::<String>::new());
    let mut new = set.clone();
    new["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
    assert!(
        wrong(&StatefulSets, &new, Some(&set))[0].starts_with("spec.volumeClaimTemplates: Invalid value")
    );
}

#[test]
fn counts_of_a_status_fit_each_other() {
    let old = filled(&ReplicaSets, selector());
    let mut new = old.clone();
    new["status"] = json!({"replicas": 1, "readyReplicas": 1, "availableReplicas": 2});
    assert_eq!(
        wrong(&ReplicaSets, &new, Some(&old)),
        [
            "status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas",
            "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"
        ]
    );
}

#[test]
fn rows_are_those_of_kubectl() {
    let mut deployment = filled(
        &Deployments,
        json!({"replicas": 3, "selector": {"matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}, {"key": "x", "operator": "DoesNotExist"}]}}),
    );
    deployment["status"] = json!({"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2});
    let row = Deployments.row(&deployment, 0);
    assert_eq!(row[1..4], [json!("2/3"), json!(3), json!(2)]);
    assert_eq!(row[5..], [json!("c"), json!("nginx"), json!("app=web,tier in (a,b),!x")]);
    let revision = json!({"metadata": {"name": "r", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": true}]}, "revision": 2});
    assert_eq!(Revisions.row(&revision, 0)[1..3], [json!("daemonset.apps/d"), json!("2")]);
}

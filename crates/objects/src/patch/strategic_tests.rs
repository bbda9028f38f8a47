//! The documented semantics, case by case.

use super::*;
use serde_json::json;

fn patched(kind: &str, object: Value, patch: Value) -> Result<Value> {
    let mut object = object;
    strategic(&mut object, &patch, crate::schema::of("", "v1", kind).unwrap())?;
    Ok(object)
}

fn pod(containers: Value) -> Value {
    json!({"spec": {"containers": containers}})
}

#[test]
fn objects_and_maps_merge_like_a_merge_patch() {
    for (name, object, patch, wanted) in [
        (
            "set",
            json!({"metadata": {"name": "a"}}),
            json!({"metadata": {"labels": {"x": "1"}}}),
            json!({"metadata": {"name": "a", "labels": {"x": "1"}}}),
        ),
        (
            "null removes",
            json!({"metadata": {"labels": {"x": "1", "y": "2"}}}),
            json!({"metadata": {"labels": {"x": null}}}),
            json!({"metadata": {"labels": {"y": "2"}}}),
        ),
        (
            "null of nothing",
            json!({"metadata": {}}),
            json!({"metadata": {"labels": {"x": null}}, "spec": null}),
            json!({"metadata": {"labels": {}}}),
        ),
        (
            "null removes an object",
            json!({"spec": {"affinity": {"podAffinity": {}}}}),
            json!({"spec": {"affinity": null}}),
            json!({"spec": {}}),
        ),
        (
            "type changes",
            json!({"spec": {"nodeName": "a"}}),
            json!({"spec": {"nodeName": {"x": 1}}}),
            json!({"spec": {"nodeName": {"x": 1}}}),
        ),
        (
            "node selector merges",
            json!({"spec": {"nodeSelector": {"a": "1"}}}),
            json!({"spec": {"nodeSelector": {"b": "2"}}}),
            json!({"spec": {"nodeSelector": {"a": "1", "b": "2"}}}),
        ),
        (
            "$patch replace",
            json!({"spec": {"nodeSelector": {"a": "1"}}}),
            json!({"spec": {"nodeSelector": {"$patch": "replace", "b": "2"}}}),
            json!({"spec": {"nodeSelector": {"b": "2"}}}),
        ),
        (
            "$patch delete",
            json!({"spec": {"nodeSelector": {"a": "1"}, "nodeName": "n"}}),
            json!({"spec": {"nodeSelector": {"$patch": "delete"}}}),
            json!({"spec": {"nodeSelector": {}, "nodeName": "n"}}),
        ),
        (
            "$patch merge",
            json!({"spec": {"nodeSelector": {"a": "1"}}}),
            json!({"spec": {"nodeSelector": {"$patch": "merge", "b": "2"}}}),
            json!({"spec": {"nodeSelector": {"a": "1", "b": "2"}}}),
        ),
        (
            "directives into nothing",
            json!({}),
            json!({"spec": {"nodeSelector": {"$patch": "replace", "a": null, "b": "2"}}}),
            json!({"spec": {"nodeSelector": {"b": "2"}}}),
        ),
    ] {
        assert_eq!(patched("Pod", object, patch).unwrap(), wanted, "{name}");
    }
}

#[test]
fn lists_with_a_merge_key_merge_item_by_item() {
    let two = || json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]);
    for (name, patch, wanted) in [
        (
            "change one",
            json!([{"name": "b", "image": "2"}]),
            json!([{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]),
        ),
        (
            "add one",
            json!([{"name": "c", "image": "3"}]),
            json!([{"name": "c", "image": "3"}, {"name": "a", "image": "1"}, {"name": "b", "image": "1"}]),
        ),
        ("delete one", json!([{"name": "a", "$patch": "delete"}]), json!([{"name": "b", "image": "1"}])),
        ("delete one absent", json!([{"name": "z", "$patch": "delete"}]), two()),
        ("replace the list", json!([{"$patch": "replace"}, {"name": "c"}]), json!([{"name": "c"}])),
        ("replace by nothing", json!([{"$patch": "replace"}]), json!([])),
        (
            "replace one item",
            json!([{"name": "a", "$patch": "delete"}, {"name": "a", "tty": true}]),
            json!([{"name": "a", "tty": true}, {"name": "b", "image": "1"}]),
        ),
        (
            "nulls in an item",
            json!([{"name": "a", "image": null}]),
            json!([{"name": "a"}, {"name": "b", "image": "1"}]),
        ),
        ("empty", json!([]), two()),
    ] {
        assert_eq!(
            patched("Pod", pod(two()), json!({"spec": {"containers": patch}})).unwrap(),
            pod(wanted),
            "{name}"
        );
    }
    let nested = patched(
        "Pod",
        pod(
            json!([{"name": "a", "env": [{"name": "X", "value": "1"}], "args": ["x"], "volumeMounts": [{"mountPath": "/a", "name": "v"}]}]),
        ),
        json!({"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "3"}], "args": ["y"],
            "volumeMounts": [{"mountPath": "/a", "readOnly": true}]}]}}),
    );
    assert_eq!(
        nested.unwrap(),
        pod(
            json!([{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "3"}], "args": ["y"],
            "volumeMounts": [{"mountPath": "/a", "name": "v", "readOnly": true}]}])
        )
    );
}

#[test]
fn atomic_lists_are_replaced() {
    let object = json!({"spec": {"tolerations": [{"key": "a"}], "readinessGates": [{"conditionType": "x"}]}});
    let patch = json!({"spec": {"tolerations": [{"key": "b"}], "readinessGates": []}});
    assert_eq!(
        patched("Pod", object, patch).unwrap(),
        json!({"spec": {"tolerations": [{"key": "b"}], "readinessGates": []}})
    );
}

#[test]
fn lists_of_plain_values_are_united_and_deleted_from() {
    for (name, patch, wanted) in [
        ("add", json!({"finalizers": ["c"]}), json!(["c", "a", "b"])),
        ("add present", json!({"finalizers": ["b"]}), json!(["a", "b"])),
        ("delete", json!({"$deleteFromPrimitiveList/finalizers": ["a", "z"]}), json!(["b"])),
        (
            "delete and add",
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}),
            json!(["c", "b"]),
        ),
        ("order", json!({"$setElementOrder/finalizers": ["b", "a"]}), json!(["b", "a"])),
        (
            "delete, add, order",
            json!({"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b", "c"], "finalizers": ["c"]}),
            json!(["b", "c"]),
        ),
    ] {
        let object = json!({"metadata": {"finalizers": ["a", "b"]}});
        let result = patched("Pod", object, json!({"metadata": patch})).unwrap();
        assert_eq!(result["metadata"], json!({"finalizers": wanted}), "{name}");
    }
}

#[test]
fn the_element_order_of_a_patch_holds_and_other_items_keep_their_place() {
    let live = || pod(json!([{"name": "a"}, {"name": "s"}, {"name": "b"}]));
    let names = |v: Value| -> Vec<String> {
        v["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    for (name, order, containers, wanted) in [
        ("reorder only", json!([{"name": "b"}, {"name": "a"}]), Value::Null, "s b a"),
        ("as it was", json!([{"name": "a"}, {"name": "b"}]), Value::Null, "a s b"),
        ("append", json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]), json!([{"name": "c"}]), "a s b c"),
        ("insert", json!([{"name": "a"}, {"name": "c"}, {"name": "b"}]), json!([{"name": "c"}]), "a c s b"),
        ("delete", json!([{"name": "b"}]), json!([{"name": "a", "$patch": "delete"}]), "s b"),
    ] {
        let mut spec = json!({"$setElementOrder/containers": order});
        if !containers.is_null() {
            spec["containers"] = containers;
        }
        assert_eq!(names(patched("Pod", live(), json!({"spec": spec})).unwrap()).join(" "), wanted, "{name}");
    }
}

#[test]
fn retained_keys_drop_the_others() {
    let object = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    let patch = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}});
    assert_eq!(
        patched("Pod", object.clone(), patch).unwrap(),
        json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}})
    );
    let stray =
        json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "hostPath": {"path": "/x"}}]}});
    assert!(patched("Pod", object, stray).is_err());
}

#[test]
fn keys_of_other_types_and_kinds_work() {
    let service = json!({"spec": {"ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "tls"}]}});
    let patch =
        json!({"spec": {"ports": [{"port": 443, "targetPort": 8443}, {"port": 80, "$patch": "delete"}]}});
    assert_eq!(
        patched("Service", service, patch).unwrap(),
        json!({"spec": {"ports": [{"port": 443, "name": "tls", "targetPort": 8443}]}})
    );
    let node = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "x"}]}});
    let patch = json!({"status": {"$setElementOrder/conditions": [{"type": "Ready"}], "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(
        patched("Node", node, patch).unwrap(),
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "x"}]}})
    );
}

#[test]
fn malformed_patches_are_refused_and_change_nothing() {
    for (name, patch) in [
        ("not an object", json!([])),
        ("unknown directive", json!({"spec": {"$patch": "swap"}})),
        ("unknown item directive", json!({"spec": {"containers": [{"name": "a", "$patch": "swap"}]}})),
        ("merge directive in a list", json!({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}})),
        ("no merge key", json!({"metadata": {"name": "changed"}, "spec": {"containers": [{"image": "x"}]}})),
        ("delete without key", json!({"spec": {"containers": [{"$patch": "delete"}]}})),
        ("plain among objects", json!({"spec": {"containers": ["a"]}})),
        ("retain keys not a list", json!({"spec": {"$retainKeys": "a"}})),
        ("order not a list", json!({"spec": {"$setElementOrder/containers": {}}})),
        (
            "order disagrees",
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}}),
        ),
        ("deletion not a list", json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}})),
    ] {
        let mut before = pod(json!([{"name": "a"}, {"name": "b"}]));
        before["metadata"] = json!({"finalizers": ["a"]});
        let mut object = before.clone();
        let result = strategic(&mut object, &patch, crate::schema::of("", "v1", "Pod").unwrap());
        assert!(matches!(result, Err(PatchError::Malformed(_))), "{name}");
        assert_eq!(object, before, "{name}");
    }
}

use serde_json::{Value, json};

use super::*;

fn inventory(classes: &[Value]) -> Inventory {
    let mut inventory = Inventory::default();
    for class in classes {
        let class: DeviceClass = serde_json::from_value(class.clone()).unwrap();
        inventory.classes.insert(class.metadata.name.clone().unwrap(), Arc::new(class));
    }
    inventory
}

fn class(name: &str, resource: Option<&str>, made: &str) -> Value {
    json!({"metadata": {"name": name, "creationTimestamp": made}, "spec": {"extendedResourceName": resource}})
}

fn container(name: &str, requests: Value) -> Value {
    json!({"name": name, "resources": {"requests": requests}})
}

fn pod(first: &[Value], containers: &[Value]) -> Pod {
    let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {"initContainers": first, "containers": containers}});
    serde_json::from_value(pod).unwrap()
}

const OLD: &str = "2026-01-01T00:00:00Z";
const NEW: &str = "2026-02-01T00:00:00Z";

/// Requests as `name=class*count`, mappings as `container:resource=request`.
fn shown(pod: &Pod, inventory: &Inventory, offered: &[&str]) -> Option<(String, String)> {
    let extended = Extended::of(pod, inventory, [()].iter(), |(), name| offered.contains(&name))?;
    let at = extended.on(|name| offered.contains(&name))?;
    let variant = extended.variants().nth(at).unwrap();
    let devices = variant.claim.spec.as_ref().unwrap().devices.as_ref().unwrap();
    let request = |request: &DeviceRequest| {
        let exactly = request.exactly.as_ref().unwrap();
        format!("{}={}*{}", request.name, exactly.device_class_name, exactly.count.unwrap())
    };
    let mapping = |m: &ContainerExtendedResourceRequest| {
        format!("{}:{}={}", m.container_name, m.resource_name, m.request_name)
    };
    let requests: Vec<String> = devices.requests.iter().flatten().map(request).collect();
    let mappings: Vec<String> = variant.mappings.iter().map(mapping).collect();
    Some((requests.join(" "), mappings.join(" ")))
}

fn words(requests: &str, mappings: &str) -> Option<(String, String)> {
    Some((requests.to_owned(), mappings.to_owned()))
}

#[test]
fn a_class_stands_for_its_resource_and_for_its_name_and_the_newest_counts() {
    let inventory = inventory(&[
        class("a", Some("x.io/gpu"), OLD),
        class("c", Some("x.io/gpu"), NEW),
        class("b", Some("x.io/gpu"), NEW),
        class("d", None, OLD),
    ]);
    let of = |name: &str| class_of(name, &inventory).and_then(|class| class.metadata.name.clone());
    assert_eq!(of("x.io/gpu").as_deref(), Some("b"));
    assert_eq!(of("deviceclass.resource.kubernetes.io/d").as_deref(), Some("d"));
    for none in ["cpu", "x.io/other", "kubernetes.io/gpu", "deviceclass.resource.kubernetes.io/e"] {
        assert_eq!(of(none), None, "{none}");
    }
}

#[test]
fn requests_are_named_by_container_and_place_among_what_it_asks_for() {
    let inventory = inventory(&[class("c", Some("x.io/gpu"), OLD)]);
    let two = json!({"cpu": "1", "deviceclass.resource.kubernetes.io/c": "1", "x.io/gpu": "2"});
    let pod = pod(&[], &[container("a", json!({"cpu": "1"})), container("b", two)]);
    let implicit = "deviceclass.resource.kubernetes.io/c";
    assert_eq!(
        shown(&pod, &inventory, &[]),
        words(
            "container-1-request-1=c*1 container-1-request-2=c*2",
            &format!("b:{implicit}=container-1-request-1 b:x.io/gpu=container-1-request-2")
        )
    );
    assert_eq!(
        shown(&pod, &inventory, &["x.io/gpu"]),
        words("container-1-request-1=c*1", &format!("b:{implicit}=container-1-request-1")),
        "what the node offers is not asked for"
    );
    assert_eq!(shown(&pod, &inventory, &["x.io/gpu", implicit]), None);
}

#[test]
fn who_goes_before_the_others_has_what_they_will_have() {
    let inventory = inventory(&[class("c", Some("x.io/gpu"), OLD)]);
    let of = |name: &str, count: &str| container(name, json!({"x.io/gpu": count}));
    let mut sidecar = of("side", "1");
    sidecar["restartPolicy"] = json!("Always");
    let pod = pod(&[of("init", "2"), sidecar, of("late", "1")], &[of("main", "1")]);
    assert_eq!(
        shown(&pod, &inventory, &[]),
        words(
            "container-1-request-0=c*1 container-3-request-0=c*1",
            "side:x.io/gpu=container-1-request-0 main:x.io/gpu=container-3-request-0 \
             init:x.io/gpu=container-1-request-0 init:x.io/gpu=container-3-request-0 \
             late:x.io/gpu=container-3-request-0"
        )
    );
}

#[test]
fn of_those_that_go_before_the_others_the_one_that_needs_most_asks_for_all() {
    let inventory = inventory(&[class("c", Some("x.io/gpu"), OLD)]);
    let of = |name: &str, count: &str| container(name, json!({"x.io/gpu": count}));
    let pod = pod(&[of("a", "2"), of("b", "4")], &[of("main", "1")]);
    assert_eq!(
        shown(&pod, &inventory, &[]),
        words(
            "container-1-request-0=c*3 container-2-request-0=c*1",
            "main:x.io/gpu=container-2-request-0 a:x.io/gpu=container-2-request-0 \
             a:x.io/gpu=container-1-request-0 b:x.io/gpu=container-2-request-0 \
             b:x.io/gpu=container-1-request-0"
        )
    );
}

#[test]
fn a_claim_is_the_pods_and_is_told_from_others() {
    let inventory = inventory(&[class("c", Some("x.io/gpu"), OLD)]);
    let pod = pod(&[], &[container("a", json!({"x.io/gpu": "1"}))]);
    let extended = Extended::of(&pod, &inventory, [()].iter(), |(), _| false).unwrap();
    let claim = &extended.variants().next().unwrap().claim;
    assert!(is_unwritten(claim));
    assert_eq!(written_for(claim), Some("u"));
    assert_eq!(claim.metadata.uid.as_deref(), Some(unwritten_uid("u").as_str()));
    let other: ResourceClaim =
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {}})).unwrap();
    assert_eq!((is_unwritten(&other), written_for(&other)), (false, None));
}

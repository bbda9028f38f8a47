use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use trine_typed::k8s_openapi::api::core::v1::Node;

use super::allocator::{Allocator, Problem};
use super::inventory::Inventory;
use super::{AllocationResult, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};

const DRIVER: &str = "dra.example.com";

fn object<K: serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn device(name: &str, more: Value) -> Value {
    let mut device = json!({"name": name});
    json_patch::merge(&mut device, &more);
    device
}

/// A slice of a pool of one slice, for node `n` alone unless `more` says otherwise.
fn slice(name: &str, devices: &[Value], more: Value) -> Arc<ResourceSlice> {
    let mut slice = json!({"metadata": {"name": name}, "spec": {"driver": DRIVER, "nodeName": "n",
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1}, "devices": devices}});
    json_patch::merge(&mut slice, &more);
    object(slice)
}

fn plain(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| device(name, json!({}))).collect()
}

fn claim(name: &str, devices: Value) -> Arc<ResourceClaim> {
    object(json!({"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {"devices": devices}}))
}

/// A claim of one request.
fn wants(more: Value) -> Arc<ResourceClaim> {
    let mut exactly = json!({"deviceClassName": "gpu"});
    json_patch::merge(&mut exactly, &more);
    claim("c", json!({"requests": [{"name": "r", "exactly": exactly}]}))
}

fn inventory(slices: impl IntoIterator<Item = Arc<ResourceSlice>>) -> Inventory {
    let mut inventory = Inventory::default();
    let class: Arc<DeviceClass> = object(json!({"metadata": {"name": "gpu"}, "spec": {
        "selectors": [{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]}}));
    inventory.classes.insert("gpu".to_owned(), class);
    for slice in slices {
        inventory.put_slice((None, Some(slice)));
    }
    inventory
}

fn allocate(inventory: &Inventory, claims: &[Arc<ResourceClaim>]) -> Result<Vec<AllocationResult>, Problem> {
    let node: Node =
        serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"zone": "a"}}})).unwrap();
    let allocator = Allocator::new(inventory, claims).map_err(Problem::Fatal)?;
    allocator.allocate(&node, &|| "share".to_owned())
}

/// The devices that claims get: `request=device`, claims apart by `|`; or why not.
fn got(inventory: &Inventory, claims: &[Arc<ResourceClaim>]) -> String {
    match allocate(inventory, claims) {
        Ok(allocations) => {
            let one = |allocation: &AllocationResult| {
                let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
                let results = results.map(|result| format!("{}={}", result.request, result.device));
                results.collect::<Vec<_>>().join(" ")
            };
            allocations.iter().map(one).collect::<Vec<_>>().join("|")
        }
        Err(Problem::OnNode(why) | Problem::Fatal(why)) => why,
        Err(Problem::TooLong) => "too long".to_owned(),
    }
}

const NONE: &str = "cannot allocate all claims";

#[test]
fn a_request_gets_what_its_selectors_take_in_the_order_of_pools_slices_and_devices() {
    let models = [
        device("a", json!({"attributes": {"model": {"string": "small"}}})),
        device(
            "b",
            json!({"attributes": {"model": {"string": "big"}}, "capacity": {"memory": {"value": "40Gi"}}}),
        ),
        device("c", json!({"attributes": {"model": {"string": "big"}}})),
    ];
    let inventory = inventory([
        slice("pool-2", &plain(&["x"]), json!({})),
        slice("pool-1", &models, json!({})),
        slice("other", &plain(&["o"]), json!({"spec": {"driver": "another.io"}})),
    ]);
    let big = format!("device.attributes['{DRIVER}'].?model.orValue('') == 'big'");
    let memory = format!(
        "has(device.capacity['{DRIVER}'].memory) && device.capacity['{DRIVER}'].memory.compareTo(quantity('1Gi')) > 0"
    );
    let select = |text: &str| json!([{"cel": {"expression": text}}]);
    let rows = [
        ("the first", json!({}), "r=a"),
        ("the first that fits", json!({"selectors": select(&big)}), "r=b"),
        ("several", json!({"count": 3}), "r=a r=b r=c"),
        ("of several pools", json!({"count": 4}), "r=a r=b r=c r=x"),
        ("more than there are", json!({"count": 5}), NONE),
        ("by capacity", json!({"selectors": select(&memory)}), "r=b"),
        ("all that fit", json!({"allocationMode": "All", "selectors": select(&big)}), "r=b r=c"),
        ("all of none", json!({"allocationMode": "All", "selectors": select("false")}), NONE),
        (
            "no such class",
            json!({"deviceClassName": "none"}),
            "claim d/c, request r: could not retrieve device class none: deviceclass.resource.k8s.io \"none\" not found",
        ),
        (
            "more than a claim can have",
            json!({"count": 257}),
            "claim d/c, request r: adding 257 devices exceeds the claim limit of 256, with 0 already accounted for",
        ),
    ];
    for (name, more, expected) in rows {
        assert_eq!(got(&inventory, &[wants(more)]), expected, "{name}");
    }
    let wrong = got(
        &inventory,
        &[wants(json!({"selectors": select(&format!("device.attributes['{DRIVER}'].nothing"))}))],
    );
    assert!(wrong.starts_with("claim d/c: selector #0 on device dra.example.com/pool-1/a: CEL runtime error: no such key: nothing. consider"), "{wrong}");
    let wrong = got(&inventory, &[wants(json!({"selectors": select("nobody.knows")}))]);
    assert!(wrong.starts_with("claim d/c: selector #0: CEL compile error: compilation failed: "), "{wrong}");
}

#[test]
fn what_is_taken_is_not_given_twice_but_to_administrators() {
    let mut inventory = inventory([slice("pool", &plain(&["a", "b"]), json!({}))]);
    let two = || {
        [
            claim("c", json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]})),
            claim("e", json!({"requests": [{"name": "s", "exactly": {"deviceClassName": "gpu"}}]})),
        ]
    };
    assert_eq!(got(&inventory, &two()), "r=a|s=b");
    let first = allocate(&inventory, &[wants(json!({}))]).unwrap().remove(0);

    // It is taken from the decision on, and stays so when the claim tells of it.
    let taker = claim("taker", json!({}));
    inventory.put_claim((None, Some(Arc::clone(&taker))));
    inventory.reserve(&taker, "pod", first.clone());
    assert!(inventory.is_pending(&taker));
    assert_eq!(got(&inventory, &[wants(json!({}))]), "r=b");
    assert_eq!(got(&inventory, &two()), NONE);
    let mut told = ResourceClaim::clone(&taker);
    told.status.get_or_insert_default().allocation = Some(first);
    let told = Arc::new(told);
    assert!(!inventory.put_claim((Some(Arc::clone(&taker)), Some(Arc::clone(&told)))));
    assert!(!inventory.release("pod"), "the claim tells of it");
    assert_eq!(got(&inventory, &[wants(json!({}))]), "r=b");
    let admin = wants(json!({"adminAccess": true, "allocationMode": "All"}));
    assert_eq!(got(&inventory, &[admin]), "r=a r=b");
    assert_eq!(got(&inventory, &[wants(json!({"allocationMode": "All"}))]), NONE, "one of all is taken");

    assert!(inventory.put_claim((Some(told), Some(taker))), "it is given back");
    assert_eq!(got(&inventory, &two()), "r=a|s=b");
}

#[test]
fn what_a_pod_was_given_in_vain_is_free_again() {
    let mut inventory = inventory([slice("pool", &plain(&["a"]), json!({}))]);
    let allocation = allocate(&inventory, &[wants(json!({}))]).unwrap().remove(0);
    inventory.reserve(&wants(json!({})), "pod", allocation);
    assert!(!inventory.release("another"));
    assert!(inventory.release("pod"));
    assert_eq!(got(&inventory, &[wants(json!({}))]), "r=a");
}

#[test]
fn constraints_hold_among_the_devices_of_a_claim() {
    let on = |name: &str, root: &str| {
        device(
            name,
            json!({"attributes": {"root": {"string": root}, "dra.example.com/numa": {"int": root.len()}}}),
        )
    };
    let inventory = inventory([slice(
        "pool",
        &[on("a", "x"), on("b", "yy"), on("c", "x"), device("d", json!({}))],
        json!({}),
    )]);
    let asks = |count: i64, constraints: Value| {
        claim(
            "c",
            json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}],
            "constraints": constraints}),
        )
    };
    let rows = [
        ("alike", 2, json!([{"matchAttribute": "dra.example.com/root"}]), "r=a r=c"),
        ("alike, too many", 3, json!([{"matchAttribute": "dra.example.com/root"}]), NONE),
        ("apart", 2, json!([{"distinctAttribute": "dra.example.com/numa"}]), "r=a r=b"),
        ("apart, too many", 3, json!([{"distinctAttribute": "dra.example.com/numa"}]), NONE),
        ("of others", 2, json!([{"matchAttribute": "dra.example.com/root", "requests": ["s"]}]), "r=a r=b"),
        ("of another domain", 1, json!([{"matchAttribute": "other.io/root"}]), NONE),
    ];
    for (name, count, constraints, expected) in rows {
        assert_eq!(got(&inventory, &[asks(count, constraints)]), expected, "{name}");
    }
    let all = claim(
        "c",
        json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}],
        "constraints": [{"matchAttribute": "dra.example.com/root"}]}),
    );
    let expected = "claim d/c, request r: cannot add device dra.example.com/pool/b because a claim constraint would not be satisfied";
    assert_eq!(got(&inventory, &[all]), expected);
}

#[test]
fn of_alternatives_the_first_is_taken_with_which_the_rest_works_out() {
    let inventory = inventory([slice("pool", &plain(&["a", "b", "c"]), json!({}))]);
    let sub = |name: &str, count: i64| json!({"name": name, "deviceClassName": "gpu", "count": count});
    let list = |subs: &[Value], rest: i64| {
        claim(
            "c",
            json!({"requests": [{"name": "r", "firstAvailable": subs},
            {"name": "s", "exactly": {"deviceClassName": "gpu", "count": rest}}],
            "config": [{"requests": ["r/two"], "opaque": {"driver": DRIVER, "parameters": {"of": "two"}}},
                {"requests": ["r/one"], "opaque": {"driver": DRIVER, "parameters": {"of": "one"}}},
                {"opaque": {"driver": DRIVER, "parameters": {"of": "all"}}}]}),
        )
    };
    let rows = [
        ("the first", list(&[sub("two", 2), sub("one", 1)], 1), "r/two=a r/two=b s=c"),
        ("the rest needs more", list(&[sub("two", 2), sub("one", 1)], 2), "r/one=a s=b s=c"),
        ("none", list(&[sub("two", 2), sub("three", 3)], 2), NONE),
        ("more than can be", list(&[sub("many", 300), sub("one", 1)], 1), "r/one=a s=b"),
    ];
    for (name, claim, expected) in rows {
        assert_eq!(got(&inventory, &[claim]), expected, "{name}");
    }
    let allocated = allocate(&inventory, &[list(&[sub("two", 2), sub("one", 1)], 2)]).unwrap().remove(0);
    let config = serde_json::to_value(allocated.devices.unwrap().config).unwrap();
    let of: Vec<_> =
        config.as_array().unwrap().iter().map(|c| c["opaque"]["parameters"]["of"].clone()).collect();
    assert_eq!(of, ["one", "all"], "of what was chosen");
}

#[test]
fn settings_of_a_class_come_once_and_for_all_its_requests() {
    let mut inventory = inventory([slice("pool", &plain(&["a", "b", "c"]), json!({}))]);
    for (class, of) in [("gpu", "gpu"), ("nic", "nic")] {
        let class: Arc<DeviceClass> = object(json!({"metadata": {"name": class}, "spec": {
            "config": [{"opaque": {"driver": DRIVER, "parameters": {"of": of}}}]}}));
        inventory.classes.insert(of.to_owned(), class);
    }
    let request = |name: &str, class: &str| json!({"name": name, "exactly": {"deviceClassName": class}});
    let one = |requests: &[Value]| {
        let claim = claim("c", json!({"requests": requests}));
        let devices = allocate(&inventory, &[claim]).unwrap().remove(0).devices.unwrap();
        serde_json::to_value(devices.config).unwrap()
    };
    let config = |of: &str, requests: Value| {
        let mut config =
            json!({"source": "FromClass", "opaque": {"driver": DRIVER, "parameters": {"of": of}}});
        json_patch::merge(&mut config, &json!({"requests": requests}));
        config
    };
    assert_eq!(one(&[request("r", "gpu"), request("s", "gpu")]), json!([config("gpu", Value::Null)]));
    assert_eq!(
        one(&[request("r", "gpu"), request("s", "nic"), request("t", "gpu")]),
        json!([config("gpu", json!(["r", "t"])), config("nic", json!(["s"]))])
    );
}

#[test]
fn a_node_gets_what_it_can_reach_and_the_claim_says_from_where_that_is() {
    let zone = |value: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]}]});
    let name = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]});
    let by_device = [
        device("elsewhere", json!({"nodeName": "m"})),
        device("in-zone", json!({"nodeSelector": zone("a")})),
        device("everywhere", json!({"allNodes": true})),
    ];
    let rows = [
        ("its own", plain(&["x"]), json!({}), "r=x", name),
        ("another's", plain(&["x"]), json!({"nodeName": "m"}), NONE, Value::Null),
        ("its zone's", plain(&["x"]), json!({"nodeName": null, "nodeSelector": zone("a")}), "r=x", zone("a")),
        (
            "another zone's",
            plain(&["x"]),
            json!({"nodeName": null, "nodeSelector": zone("b")}),
            NONE,
            Value::Null,
        ),
        ("all nodes'", plain(&["x"]), json!({"nodeName": null, "allNodes": true}), "r=x", Value::Null),
        (
            "by device",
            by_device.to_vec(),
            json!({"nodeName": null, "perDeviceNodeSelection": true}),
            "r=in-zone",
            zone("a"),
        ),
        ("an unknown way", plain(&["x"]), json!({"nodeName": null}), NONE, Value::Null),
    ];
    for (row, devices, spec, expected, selector) in rows {
        let inventory = inventory([slice("pool", &devices, json!({"spec": spec}))]);
        assert_eq!(got(&inventory, &[wants(json!({}))]), expected, "{row}");
        let found = allocate(&inventory, &[wants(json!({}))]).ok().map(|mut all| all.remove(0).node_selector);
        assert_eq!(serde_json::to_value(found.flatten()).unwrap(), selector, "{row}");
    }
}

#[test]
fn pools_that_are_being_changed_or_contradict_themselves_are_left_alone() {
    let part = |name: &str, generation: i64, devices: &[&str], count: i64| {
        slice(
            name,
            &plain(devices),
            json!({"spec": {"pool": {"name": "pool", "generation": generation, "resourceSliceCount": count}}}),
        )
    };
    let all = json!({"allocationMode": "All"});
    let rows = [
        ("whole", vec![part("1", 1, &["a"], 2), part("2", 1, &["b"], 2)], "r=a", "r=a r=b"),
        (
            "a part is missing",
            vec![part("1", 1, &["a"], 2)],
            NONE,
            "claim d/c, request r: asks for all devices, but resource pool dra.example.com/pool is currently being updated",
        ),
        ("the newest counts", vec![part("1", 1, &["a"], 1), part("2", 2, &["b"], 1)], "r=b", "r=b"),
        (
            "one name twice",
            vec![part("1", 1, &["a"], 2), part("2", 1, &["a"], 2)],
            "invalid resource pools were encountered",
            "claim d/c, request r: asks for all devices, but resource pool dra.example.com/pool is currently invalid",
        ),
    ];
    for (name, slices, one, every) in rows {
        let inventory = inventory(slices);
        assert_eq!(got(&inventory, &[wants(json!({}))]), one, "{name}");
        assert_eq!(got(&inventory, &[wants(all.clone())]), every, "{name}, all");
    }
    // A slice of the pool that is not for the node is a part of it all the same.
    let other = slice(
        "2",
        &plain(&["b"]),
        json!({"spec": {"nodeName": "m", "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 2}}}),
    );
    assert_eq!(got(&inventory([part("1", 1, &["a"], 2), other]), &[wants(json!({}))]), "r=a");
    let newer = slice(
        "2",
        &plain(&["b"]),
        json!({"spec": {"nodeName": "m", "pool": {"name": "pool", "generation": 2, "resourceSliceCount": 2}}}),
    );
    assert_eq!(got(&inventory([part("1", 1, &["a"], 2), newer]), &[wants(json!({}))]), NONE, "old news");
}

#[test]
fn a_slice_that_goes_takes_its_devices_along() {
    let first = slice("pool", &plain(&["a"]), json!({}));
    let mut inventory = inventory([Arc::clone(&first)]);
    let second = slice("pool", &plain(&["b"]), json!({"spec": {"nodeName": null, "allNodes": true}}));
    inventory.put_slice((Some(first), Some(Arc::clone(&second))));
    assert_eq!(got(&inventory, &[wants(json!({}))]), "r=b");
    inventory.put_slice((Some(second), None));
    assert_eq!(got(&inventory, &[wants(json!({}))]), NONE);
}

#[test]
fn a_tainted_device_is_for_those_who_tolerate_it() {
    let taint = |effect: &str| json!({"taints": [{"key": "broken", "value": "yes", "effect": effect}]});
    let tolerates = |more: Value| json!({"tolerations": [more]});
    let rows = [
        ("none", taint("NoSchedule"), json!({}), NONE),
        ("no execution", taint("NoExecute"), json!({}), NONE),
        ("only said", taint("None"), json!({}), "r=a"),
        ("tolerated", taint("NoSchedule"), tolerates(json!({"key": "broken", "operator": "Exists"})), "r=a"),
        ("all tolerated", taint("NoSchedule"), tolerates(json!({"operator": "Exists"})), "r=a"),
        (
            "by value",
            taint("NoSchedule"),
            tolerates(json!({"key": "broken", "operator": "Equal", "value": "yes"})),
            "r=a",
        ),
        ("another value", taint("NoSchedule"), tolerates(json!({"key": "broken", "value": "no"})), NONE),
        (
            "another effect",
            taint("NoSchedule"),
            tolerates(json!({"operator": "Exists", "effect": "NoExecute"})),
            NONE,
        ),
    ];
    for (name, device_more, more, expected) in rows {
        let inventory = inventory([slice("pool", &[device("a", device_more)], json!({}))]);
        assert_eq!(got(&inventory, &[wants(more)]), expected, "{name}");
    }
    let rows = [
        ("no selector", Value::Null, "r=a"),
        ("all", json!({}), NONE),
        ("this driver", json!({"driver": DRIVER}), NONE),
        ("this device", json!({"pool": "pool", "device": "a"}), "r=b"),
        ("another", json!({"driver": "another.io"}), "r=a"),
    ];
    for (name, selector, expected) in rows {
        let mut inventory = inventory([slice("pool", &plain(&["a", "b"]), json!({}))]);
        let mut rule =
            json!({"metadata": {"name": "rule"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}});
        json_patch::merge(&mut rule, &json!({"spec": {"deviceSelector": selector}}));
        let rule: Arc<DeviceTaintRule> = object(rule);
        inventory.put_rule((None, Some(Arc::clone(&rule))));
        assert_eq!(got(&inventory, &[wants(json!({}))]), expected, "{name}");
        inventory.put_rule((Some(rule), None));
        assert_eq!(got(&inventory, &[wants(json!({}))]), "r=a", "{name}, gone");
    }
}

#[test]
fn devices_that_share_counters_are_given_as_long_as_there_are_some() {
    let takes = |name: &str, memory: &str| {
        device(
            name,
            json!({"consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}]}),
        )
    };
    let pool = json!({"name": "pool", "generation": 1, "resourceSliceCount": 2});
    let counters = object(
        json!({"metadata": {"name": "counters"}, "spec": {"driver": DRIVER, "nodeName": "n", "pool": pool,
        "sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]}}),
    );
    let devices = [takes("whole", "40Gi"), takes("half-1", "20Gi"), takes("half-2", "20Gi")];
    let mut inventory = inventory([slice("devices", &devices, json!({"spec": {"pool": pool}})), counters]);
    assert_eq!(got(&inventory, &[wants(json!({}))]), "r=whole");
    assert_eq!(got(&inventory, &[wants(json!({"count": 2}))]), "r=half-1 r=half-2");
    assert_eq!(got(&inventory, &[wants(json!({"count": 3}))]), NONE);
    let half = wants(json!({"selectors": [{"cel": {"expression": "device.driver == ''"}}]}));
    assert_eq!(got(&inventory, &[half]), NONE);
    let both = allocate(&inventory, &[wants(json!({"count": 2}))]).unwrap().remove(0);
    let mut one = both;
    one.devices.as_mut().unwrap().results.as_mut().unwrap().truncate(1);
    inventory.reserve(&claim("other", json!({})), "pod", one);
    assert_eq!(got(&inventory, &[wants(json!({}))]), "r=half-2", "the whole is not to be had any more");
    let unknown = device(
        "x",
        json!({"consumesCounters": [{"counterSet": "none", "counters": {"memory": {"value": "1"}}}]}),
    );
    let invalid = self::inventory([slice("pool", &[unknown], json!({}))]);
    assert_eq!(got(&invalid, &[wants(json!({}))]), "invalid resource pools were encountered");
}

#[test]
fn a_device_that_may_be_shared_is_given_in_parts_until_its_capacity_is_gone() {
    let shared = device(
        "gpu",
        json!({"allowMultipleAllocations": true, "capacity": {"memory": {"value": "10Gi",
        "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}}}}),
    );
    let mut inventory = inventory([slice("pool", &[shared], json!({}))]);
    let part = |memory: &str| wants(json!({"capacity": {"requests": {"memory": memory}}}));
    let first = allocate(&inventory, &[part("5500Mi")]).unwrap().remove(0);
    let result = serde_json::to_value(&first.devices.as_ref().unwrap().results.as_ref().unwrap()[0]).unwrap();
    assert_eq!(result["consumedCapacity"], json!({"memory": "6Gi"}));
    assert_eq!(result["shareID"], "share");
    inventory.reserve(&claim("other", json!({})), "pod", first);
    assert_eq!(got(&inventory, &[part("5Gi")]), NONE);
    assert_eq!(got(&inventory, &[part("4Gi")]), "r=gpu");
    let two = [
        part("3Gi"),
        claim("e", json!({"requests": [{"name": "s", "exactly": {"deviceClassName": "gpu"}}]})),
    ];
    assert_eq!(got(&inventory, &two), "r=gpu|s=gpu", "of one node at once, too");
    assert_eq!(got(&inventory, &[part("4Gi"), Arc::clone(&two[1])]), NONE);
    let cores = wants(json!({"capacity": {"requests": {"cores": "1"}}}));
    assert_eq!(got(&inventory, &[cores]), NONE);
    assert!(inventory.release("pod"));
    assert_eq!(got(&inventory, &[part("10Gi")]), "r=gpu");
}

#[test]
fn what_cannot_be_decided_in_time_is_given_up() {
    let devices: Vec<_> = (0..60)
        .map(|at| device(&format!("d{at}"), json!({"attributes": {"at": {"int": at / 20}}})))
        .collect();
    let inventory = inventory([slice("pool", &devices, json!({}))]);
    let requests: Vec<_> = (0..10)
        .map(|at| json!({"name": format!("r{at}"), "exactly": {"deviceClassName": "gpu", "count": 3}}))
        .collect();
    let hopeless =
        claim("c", json!({"requests": requests, "constraints": [{"matchAttribute": "dra.example.com/at"}]}));
    assert_eq!(got(&inventory, &[hopeless]), "too long");
}

#[test]
fn a_claim_of_as_many_devices_as_can_be_does_not_exhaust_the_stack() {
    let names: Vec<String> = (0..256).map(|at| format!("d{at:03}")).collect();
    let slices = names.chunks(128).enumerate().map(|(at, names)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        slice(&format!("pool-{at}"), &plain(&names), json!({}))
    });
    let inventory = inventory(slices);
    let small = std::thread::Builder::new().stack_size(512 << 10);
    let test = move || {
        let all = allocate(&inventory, &[wants(json!({"count": 256}))]).unwrap().remove(0);
        let results = all.devices.unwrap().results.unwrap();
        assert_eq!(results.iter().map(|result| &result.device).collect::<BTreeSet<_>>().len(), 256);
    };
    small.spawn(test).unwrap().join().unwrap();
}

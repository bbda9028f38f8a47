//! Services as a whole: defaults, allocation, change.

use super::*;
use crate::kinds::testing::Nothing;

fn make(spec: Value, allocators: &Allocators) -> Result<Value, Invalid> {
    let mut service = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec});
    Services.defaults(&mut service);
    let mut cx = Cx::new(&Nothing, allocators, 0);
    Services.prepare_create(&mut service, &mut cx)?;
    let causes = Services.validate(&service, None);
    if !causes.is_empty() {
        return Err(Invalid(causes));
    }
    cx.commit();
    Ok(service)
}

fn change(old: &Value, spec: Value, allocators: &Allocators) -> Result<Value, Invalid> {
    let mut service = json!({"metadata": old["metadata"], "spec": spec});
    Services.defaults(&mut service);
    let mut cx = Cx::new(&Nothing, allocators, 0);
    Services.prepare_update(&mut service, old, &mut cx)?;
    let causes = Services.validate(&service, Some(old));
    if !causes.is_empty() {
        return Err(Invalid(causes));
    }
    cx.commit();
    Ok(service)
}

fn pools() -> Allocators {
    Allocators::new("10.96.0.0/24").unwrap()
}

#[test]
fn a_service_is_filled_and_given_an_address() {
    let service = make(json!({"ports": [{"port": 80}], "selector": {"a": "b"}}), &pools()).unwrap();
    assert_eq!(
        service["spec"],
        json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster", "selector": {"a": "b"},
            "clusterIP": "10.96.0.16", "clusterIPs": ["10.96.0.16"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}]})
    );
}

#[test]
fn conflicts_are_named_and_what_a_refused_service_took_is_free_again() {
    let pools = pools();
    let one =
        json!({"clusterIP": "10.96.0.5", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    make(one.clone(), &pools).unwrap();
    let refused = make(one, &pools).unwrap_err().to_string();
    assert_eq!(
        refused,
        "spec.clusterIPs: Invalid value: [\"10.96.0.5\"]: failed to allocate IP 10.96.0.5: provided IP is already allocated"
    );
    let other =
        json!({"clusterIP": "10.96.0.6", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    let refused = make(other, &pools).unwrap_err().to_string();
    assert_eq!(refused, "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated");
    make(json!({"clusterIP": "10.96.0.6", "ports": [{"port": 80}]}), &pools).unwrap();
}

#[test]
fn an_update_keeps_what_was_given_and_a_change_of_type_frees_it() {
    let pools = pools();
    let ports = json!([{"port": 80}]);
    let first = make(json!({"type": "NodePort", "ports": ports}), &pools).unwrap();
    let node_port = first["spec"]["ports"][0]["nodePort"].clone();
    assert_eq!(node_port, 30_086);
    let same = change(&first, json!({"type": "NodePort", "ports": ports}), &pools).unwrap();
    assert_eq!(same["spec"], first["spec"]);
    let inner = change(&same, json!({"type": "ClusterIP", "ports": first["spec"]["ports"]}), &pools).unwrap();
    assert!(inner["spec"]["ports"][0]["nodePort"].is_null());
    assert_eq!(inner["spec"]["clusterIP"], first["spec"]["clusterIP"]);
    make(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": node_port}]}), &pools).unwrap();
    let name = change(&inner, json!({"type": "ExternalName", "externalName": "x.org"}), &pools).unwrap();
    assert!(name["spec"]["clusterIP"].is_null());
    make(json!({"clusterIP": first["spec"]["clusterIP"], "ports": ports}), &pools).unwrap();
    let moved = change(&first, json!({"clusterIP": "10.96.0.9", "ports": ports}), &pools).unwrap_err();
    assert!(moved.to_string().contains("may not change once set"), "{moved}");
}

#[test]
fn a_deleted_service_gives_everything_back_and_a_restart_adopts() {
    let first = pools();
    let service = make(json!({"type": "NodePort", "ports": [{"port": 80}]}), &first).unwrap();
    let second = pools();
    second.adopt([&service]);
    let again = || {
        let ports = service["spec"]["ports"].clone();
        make(json!({"clusterIP": service["spec"]["clusterIP"], "type": "NodePort", "ports": ports}), &second)
    };
    assert!(again().is_err());
    let mut cx = Cx::new(&Nothing, &second, 0);
    Services.after_delete(&service, &mut cx);
    cx.commit();
    assert!(again().is_ok());
}

#[test]
fn faults_are_named() {
    for (spec, wanted) in [
        (json!({}), "spec.ports: Required value"),
        (json!({"ports": [{"port": 0}]}), "spec.ports[0].port: Invalid value: 0"),
        (json!({"ports": [{"port": 1}, {"port": 2}]}), "spec.ports[0].name: Required value"),
        (json!({"ports": [{"port": 80, "nodePort": 30000}]}), "spec.ports[0].nodePort: Forbidden"),
        (json!({"ports": [{"port": 80, "protocol": "ICMP"}]}), "spec.ports[0].protocol: Unsupported value"),
        (json!({"type": "Other", "ports": [{"port": 80}]}), "spec.type: Unsupported value: \"Other\""),
        (json!({"type": "ExternalName"}), "spec.externalName: Required value"),
        (json!({"clusterIP": "x", "ports": [{"port": 80}]}), "spec.clusterIPs[0]: Invalid value: \"x\""),
        (json!({"clusterIP": "1.2.3.4", "ports": [{"port": 80}]}), "The range of valid IPs is 10.96.0.0/24"),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            "The range of valid ports is 30000-32767",
        ),
    ] {
        let refused = make(spec, &pools()).unwrap_err().to_string();
        assert!(refused.contains(wanted), "{refused}");
    }
}

#[test]
fn the_row_shows_ports_and_addresses() {
    let service = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.7",
        "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}});
    let row = Services.row(&service, 0);
    assert_eq!(
        row,
        json!([
            "web",
            "LoadBalancer",
            "10.96.0.7",
            "<pending>",
            "80:30080/TCP,53/UDP",
            "<unknown>",
            "<none>"
        ])
        .as_array()
        .unwrap()
        .clone()
    );
}

fn both() -> Allocators {
    Allocators::new("10.96.0.0/24,fd00:96::/112").unwrap()
}

#[test]
fn a_service_has_the_families_that_its_policy_asks_for() {
    // What is said, families, policy, number of addresses.
    let rows = [
        (json!({}), json!(["IPv4"]), "SingleStack", 1),
        (json!({"ipFamilyPolicy": "PreferDualStack"}), json!(["IPv4", "IPv6"]), "PreferDualStack", 2),
        (json!({"ipFamilyPolicy": "RequireDualStack"}), json!(["IPv4", "IPv6"]), "RequireDualStack", 2),
        (
            json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}),
            json!(["IPv6", "IPv4"]),
            "RequireDualStack",
            2,
        ),
        (json!({"ipFamilies": ["IPv6"]}), json!(["IPv6"]), "SingleStack", 1),
        (json!({"clusterIP": "fd00:96::7"}), json!(["IPv6"]), "SingleStack", 1),
        (
            json!({"clusterIP": "None", "selector": null, "ipFamilyPolicy": "SingleStack"}),
            json!(["IPv4"]),
            "SingleStack",
            1,
        ),
        (json!({"clusterIP": "None", "selector": null}), json!(["IPv4", "IPv6"]), "RequireDualStack", 1),
    ];
    for (said, families, policy, addresses) in rows {
        let mut spec = json!({"ports": [{"port": 80}], "selector": {"a": "b"}});
        spec.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        let service = make(spec, &both()).unwrap_or_else(|e| panic!("{said}: {e}"));
        let spec = &service["spec"];
        assert_eq!((&spec["ipFamilies"], &spec["ipFamilyPolicy"]), (&families, &json!(policy)), "{said}");
        let ips = items(spec, "clusterIPs");
        assert_eq!((ips.len(), &ips[0]), (addresses, &spec["clusterIP"]), "{said}");
        for (ip, family) in ips.iter().zip(items(spec, "ipFamilies")).filter(|(ip, _)| *ip != "None") {
            assert_eq!(json!(families::of(ip.as_str().unwrap().parse().unwrap())), *family, "{said}");
        }
    }
}

#[test]
fn what_cannot_be_had_or_contradicts_itself_is_refused() {
    let dual = "10.96.0.0/24,fd00:96::/112";
    for (ranges, said, wanted) in [
        (
            "10.96.0.0/24",
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (
            "10.96.0.0/24",
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured",
        ),
        ("10.96.0.0/24", json!({"clusterIP": "fd00::1"}), "IPv6 is not configured on this cluster"),
        (dual, json!({"ipFamilies": ["IPv4", "IPv6"]}), "when multiple IP families are specified"),
        (dual, json!({"ipFamilies": ["IPv4", "IPv4"]}), "spec.ipFamilies[1]: Duplicate value"),
        (dual, json!({"ipFamilies": ["IPv5"]}), "spec.ipFamilies[0]: Unsupported value: \"IPv5\""),
        (
            dual,
            json!({"clusterIP": "10.96.0.7", "ipFamilies": ["IPv6"]}),
            "spec.clusterIPs[0]: Invalid value: \"10.96.0.7\": expected an IPv6 value as indicated by `ipFamilies[0]`",
        ),
        (
            dual,
            json!({"clusterIPs": ["10.96.0.7", "10.96.0.8"], "clusterIP": "10.96.0.7", "ipFamilyPolicy": "PreferDualStack"}),
            "may specify no more than one IP for each IP family",
        ),
    ] {
        let mut spec = json!({"ports": [{"port": 80}], "selector": {"a": "b"}});
        spec.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        let refused = make(spec, &Allocators::new(ranges).unwrap()).unwrap_err().to_string();
        assert!(refused.contains(wanted), "{said}: {refused}");
    }
    assert!(Allocators::new("10.96.0.0/24,10.97.0.0/24").is_none());
}

#[test]
fn a_second_family_comes_and_goes_and_the_first_address_stays() {
    let pools = both();
    let ports = json!([{"port": 80}]);
    let one = make(json!({"ports": ports, "selector": {"a": "b"}}), &pools).unwrap();
    let mut spec = one["spec"].clone();
    spec["ipFamilyPolicy"] = json!("PreferDualStack");
    let two = change(&one, spec, &pools).unwrap();
    let ips = items(&two["spec"], "clusterIPs").to_vec();
    assert_eq!((ips.len(), &ips[0]), (2, &one["spec"]["clusterIP"]));
    // Who leaves the second out must say so.
    let mut spec = two["spec"].clone();
    spec["clusterIPs"] = json!([ips[0]]);
    let refused = change(&two, spec, &pools).unwrap_err().to_string();
    assert!(refused.contains("must be 'SingleStack' to release the secondary cluster IP"), "{refused}");
    let mut spec = two["spec"].clone();
    spec["ipFamilyPolicy"] = json!("SingleStack");
    let back = change(&two, spec, &pools).unwrap();
    assert_eq!(back["spec"]["clusterIPs"], json!([ips[0]]));
    assert_eq!(back["spec"]["ipFamilies"], json!(["IPv4"]));
    // It is free again.
    make(json!({"ports": ports, "clusterIP": ips[1]}), &pools).unwrap();
    // A client of before families sends what it knows.
    let same = change(&two, json!({"ports": ports, "selector": {"a": "b"}}), &pools).unwrap();
    assert_eq!(same["spec"], two["spec"]);
}

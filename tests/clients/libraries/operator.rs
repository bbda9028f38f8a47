//! An operator of controller-runtime: it reconciles a kind of its own, and one of two leads.

use serde_json::{Value, json};
use trine_tests::api::Api;
use trine_tests::go;
use trine_typed::k8s_openapi::api::coordination::v1::Lease;
use trine_typed::k8s_openapi::api::core::v1::ConfigMap;
use trine_typed::k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use trine_typed::kube;
use trine_typed::kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};

use crate::talking::Talking;
use crate::until;

/// The kind that the operator and the chart bring.
const BOATS: &str = include_str!("../helm/boat/crds/boats.yaml");

#[test]
fn an_operator_of_controller_runtime_reconciles_cleans_up_and_hands_over() {
    const TEST: &str = "an_operator_of_controller_runtime_reconciles_cleans_up_and_hands_over";
    let Some(program) = go::build(TEST, "tests/clients/go", "./operator", "operator") else { return };
    let api = Api::start();
    let client = api.client();
    let definition: CustomResourceDefinition = serde_saphyr::from_str(BOATS).unwrap();
    let definitions: kube::Api<CustomResourceDefinition> = kube::Api::all(client.clone());
    api.run(definitions.create(&PostParams::default(), &definition)).unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Boat"));
    let boats: kube::Api<DynamicObject> = kube::Api::namespaced_with(client.clone(), "default", &kind);
    let maps: kube::Api<ConfigMap> = kube::Api::namespaced(client.clone(), "default");
    let leases: kube::Api<Lease> = kube::Api::namespaced(client, "default");
    let boat = |name: &str, crew: u32| -> DynamicObject {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": name}, "spec": {"crew": crew}});
        serde_json::from_value(object).unwrap()
    };
    until("the kind is served", || {
        api.run(boats.create(&PostParams::default(), &boat("argo", 3))).map_err(|e| e.to_string())
    });
    let holder =
        || -> Option<String> { api.run(leases.get_opt("boats.example.com")).unwrap()?.spec?.holder_identity };
    let manned = |name: &str, crew: u32, generation: u64| {
        until(&format!("{name} is manned"), || {
            let boat = api.run(boats.get(name)).map_err(|e| e.to_string())?;
            let status = &boat.data["status"];
            let condition = &status["conditions"][0];
            let right = status["crew"] == crew
                && status["observedGeneration"] == generation
                && condition["reason"] == "Manned"
                && condition["observedGeneration"] == generation;
            if right { Ok(boat) } else { Err(boat.data.to_string()) }
        })
    };

    let kubeconfig = api.kubeconfig().display().to_string();
    let first = Talking::start(&program, &[&kubeconfig, "default"]);
    let seen = manned("argo", 3, 1);
    assert_eq!(seen.metadata.finalizers.as_deref(), Some(&["boats.example.com/harbour".to_owned()][..]));
    let owned = api.run(maps.get("argo")).unwrap();
    assert_eq!(owned.data.as_ref().unwrap()["crew"], "3");
    let owner = &owned.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), Some(&owner.uid), owner.controller),
        ("Boat", seen.metadata.uid.as_ref(), Some(true))
    );

    // A change of the spec, and of what is owned, wakes it.
    let patch = |crew: u32| Patch::Merge(json!({"spec": {"crew": crew}}));
    api.run(boats.patch("argo", &PatchParams::default(), &patch(5))).unwrap();
    manned("argo", 5, 2);
    api.run(maps.delete("argo", &Default::default())).unwrap();
    until("what was deleted is there again", || api.run(maps.get("argo")).map_err(|e| e.to_string()));

    // Another one waits for the lease, and takes it over.
    let leader = holder().expect("somebody leads");
    let second = Talking::start(&program, &[&kubeconfig, "default"]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(holder().as_ref(), Some(&leader), "there is one leader at a time");
    first.end();
    until("the other one leads", || match holder() {
        Some(now) if now != leader && !now.is_empty() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    api.run(boats.create(&PostParams::default(), &boat("ark", 2))).unwrap();
    manned("ark", 2, 1);

    // The finalizer runs before the Boat is gone, what it owned goes after it.
    api.run(boats.delete("argo", &Default::default())).unwrap();
    until("the Boat and its ConfigMap are gone, a note is left", || {
        let gone = |found: Result<Option<Value>, kube::Error>| matches!(found, Ok(None));
        let boat = api.run(boats.get_opt("argo")).map(|b| b.map(|b| b.data));
        let map = api.run(maps.get_opt("argo")).map(|m| m.map(|m| json!(m)));
        let note = api.run(maps.get_opt("sunk-argo")).ok().flatten();
        if gone(boat) && gone(map) && note.is_some() { Ok(()) } else { Err("not yet".to_owned()) }
    });
    second.end();
}

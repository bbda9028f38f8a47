use serde_json::{Value, json};

use super::*;

fn claim(spec: Value, annotations: Value, status: Value) -> Arc<PersistentVolumeClaim> {
    let mut spec = spec;
    spec["accessModes"] = json!(["ReadWriteOnce"]);
    spec["resources"] = json!({"requests": {"storage": "1Gi"}});
    let value = json!({"metadata": {"name": "c", "namespace": "d", "uid": "u", "annotations": annotations},
                       "spec": spec, "status": status});
    Arc::new(serde_json::from_value(value).unwrap())
}

fn volume(name: &str, size: &str, claim_ref: Value, phase: &str) -> Arc<PersistentVolume> {
    let value = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"], "claimRef": claim_ref}, "status": {"phase": phase}});
    Arc::new(serde_json::from_value(value).unwrap())
}

fn class(name: &str, mode: &str) -> Arc<StorageClass> {
    let value = json!({"metadata": {"name": name}, "provisioner": "prov", "volumeBindingMode": mode});
    Arc::new(serde_json::from_value(value).unwrap())
}

fn world(
    claims: Vec<Arc<PersistentVolumeClaim>>,
    volumes: Vec<Arc<PersistentVolume>>,
    classes: Vec<Arc<StorageClass>>,
) -> World {
    World {
        claims,
        volumes: volumes.into_iter().map(|v| (v.metadata.name.clone().unwrap(), v)).collect(),
        classes: classes.into_iter().map(|c| (c.metadata.name.clone().unwrap(), c)).collect(),
    }
}

/// A short name of each action, in order.
fn words(world: &World) -> Vec<String> {
    let name = |v: &Arc<PersistentVolume>| v.metadata.name.clone().unwrap();
    let word = |action| match action {
        Action::ClaimVolume(v, _) => format!("claim {}", name(&v)),
        Action::BindClaim(_, v) => format!("bind {}", name(&v)),
        Action::ClaimPhase(_, phase, _) => format!("claim is {phase}"),
        Action::VolumePhase(v, phase) => format!("{} is {phase}", name(&v)),
        Action::AskProvisioner(_, provisioner) => format!("ask {provisioner}"),
        Action::Say(_, _, reason, _) => format!("say {reason}"),
    };
    plan(world).into_iter().map(word).collect()
}

#[test]
fn each_state_of_a_claim_leads_one_step_on() {
    let of = json!({"name": "c", "namespace": "d", "uid": "u"});
    let done = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let none = || json!({});
    let chosen = json!({"volume.kubernetes.io/selected-node": "n"});
    let wait = || class("w", "WaitForFirstConsumer");
    let w = || json!({"storageClassName": "w"});
    let rows: Vec<(&str, World, Vec<&str>)> = vec![
        (
            "no class at all",
            world(vec![claim(none(), none(), none())], vec![], vec![]),
            vec!["say FailedBinding"],
        ),
        (
            "class does not exist",
            world(vec![claim(json!({"storageClassName": "x"}), none(), none())], vec![], vec![]),
            vec!["say ProvisioningFailed"],
        ),
        (
            "waits for its first consumer",
            world(vec![claim(w(), none(), none())], vec![], vec![wait()]),
            vec!["say WaitForFirstConsumer"],
        ),
        (
            "a node was chosen",
            world(vec![claim(w(), chosen.clone(), none())], vec![], vec![wait()]),
            vec!["ask prov"],
        ),
        (
            "binds at once to the smallest that fits",
            world(
                vec![claim(none(), none(), none())],
                vec![
                    volume("small", "500Mi", Value::Null, "Available"),
                    volume("right", "2Gi", Value::Null, "Available"),
                    volume("large", "9Gi", Value::Null, "Available"),
                ],
                vec![],
            ),
            vec!["claim right"],
        ),
        (
            "was provisioned",
            world(
                vec![claim(w(), chosen, none())],
                vec![volume("pv", "1Gi", of.clone(), "Available")],
                vec![wait()],
            ),
            vec!["bind pv", "claim is Bound"],
        ),
        (
            "is bound, phases lag",
            world(
                vec![claim(json!({"volumeName": "pv"}), done.clone(), json!({"phase": "Pending"}))],
                vec![volume("pv", "1Gi", of.clone(), "Available")],
                vec![],
            ),
            vec!["claim is Bound", "pv is Bound"],
        ),
        (
            "is bound",
            world(
                vec![claim(
                    json!({"volumeName": "pv"}),
                    done.clone(),
                    json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}),
                )],
                vec![volume("pv", "1Gi", of.clone(), "Bound")],
                vec![],
            ),
            vec![],
        ),
        (
            "its volume is gone",
            world(vec![claim(json!({"volumeName": "pv"}), done, none())], vec![], vec![]),
            vec!["claim is Lost"],
        ),
        (
            "the claim is gone",
            world(vec![], vec![volume("pv", "1Gi", of, "Bound")], vec![]),
            vec!["pv is Released"],
        ),
    ];
    for (name, world, expected) in rows {
        assert_eq!(words(&world), expected, "{name}");
    }
}

#[test]
fn two_claims_do_not_get_the_same_volume() {
    let other = claim(json!({}), json!({}), json!({}));
    let mut second = (*other).clone();
    second.metadata.name = Some("c2".to_owned());
    second.metadata.uid = Some("u2".to_owned());
    let world =
        world(vec![other, Arc::new(second)], vec![volume("pv", "1Gi", Value::Null, "Available")], vec![]);
    assert_eq!(words(&world), ["claim pv", "say FailedBinding"]);
}

//! Which claims a Pod has, whether it may use them, and what its containers get. Pure.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::{
    Container, Pod, PodExtendedResourceClaimStatus, PodResourceClaim, ResourceClaim as CoreClaim,
    ResourceHealth, ResourceStatus,
};
use trine_typed::k8s_openapi::api::resource::v1::ResourceClaim;
use trine_typed::pods::{is_made_for, is_user};

use super::record::{Claim, Record};

/// A claim of a Pod.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Whether it was made for this very Pod.
    pub own: bool,
}

/// The claims that a Pod asks for.
#[must_use]
pub fn asked(pod: &Pod) -> &[PodResourceClaim] {
    pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default()
}

/// The claim that was written for what a Pod asks for by resources, and which container has which request of it.
fn extended(pod: &Pod) -> Option<&PodExtendedResourceClaimStatus> {
    pod.status.as_ref()?.extended_resource_claim_status.as_ref()
}

/// Whether a Pod has no claims at all.
#[must_use]
pub fn asks_none(pod: &Pod) -> bool {
    asked(pod).is_empty() && extended(pod).is_none()
}

/// The claims of a Pod; one that is not needed is left out.
///
/// # Errors
/// One has not been made yet.
pub fn wanted(pod: &Pod) -> Result<Vec<Wanted>, String> {
    let mut all = Vec::new();
    for claim in asked(pod) {
        if let Some((name, own)) = name_of(pod, claim)? {
            all.push(Wanted { name: name.to_owned(), own });
        }
    }
    all.extend(extended(pod).map(|claim| Wanted { name: claim.resource_claim_name.clone(), own: true }));
    Ok(all)
}

fn name_of<'a>(pod: &'a Pod, claim: &'a PodResourceClaim) -> Result<Option<(&'a str, bool)>, String> {
    if let Some(name) = &claim.resource_claim_name {
        return Ok(Some((name, false)));
    }
    let statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    match statuses.into_iter().find(|status| status.name == claim.name) {
        Some(status) => Ok(status.resource_claim_name.as_deref().map(|name| (name, true))),
        None => Err(format!("pod claim {}: ResourceClaim not created yet", claim.name)),
    }
}

/// Whether all claims of a Pod are ready for it.
#[must_use]
pub fn is_ready(pod: &Pod, record: &Record) -> bool {
    let (uid, namespace) = (pod.metadata.uid.as_deref().unwrap_or_default(), &pod.metadata.namespace);
    wanted(pod).is_ok_and(|wanted| {
        wanted.iter().all(|wanted| {
            let same =
                |claim: &&Claim| Some(&claim.namespace) == namespace.as_ref() && claim.name == wanted.name;
            record.of_pod(uid).find(same).is_some_and(Claim::is_ready)
        })
    })
}

/// Writes into the record that a Pod uses a claim, with the drivers that have to make it ready.
///
/// # Errors
/// It may not.
pub fn note(pod: &Pod, wanted: &Wanted, claim: &ResourceClaim, record: &mut Record) -> Result<(), String> {
    let name = &wanted.name;
    let (uid, pod_uid) =
        (claim.metadata.uid.clone().unwrap_or_default(), pod.metadata.uid.clone().unwrap_or_default());
    let namespace = claim.metadata.namespace.clone().unwrap_or_default();
    if wanted.own && !is_made_for(&claim.metadata, pod) {
        return Err(format!(
            "ResourceClaim {namespace}/{name} was not created for the pod (Pod is not owner)"
        ));
    }
    let status = claim.status.clone().unwrap_or_default();
    if !is_user(pod, claim) {
        return Err(format!("claim {namespace}/{name} is not reserved for the pod"));
    }
    let Some(allocation) = status.allocation else {
        return Err(format!("claim {namespace}/{name} is not allocated"));
    };
    let older = |other: &Claim| other.namespace == namespace && other.name == *name && other.uid != uid;
    if let Some(other) = record.claims.values().find(|other| older(other)) {
        return Err(format!(
            "old ResourceClaim with same name {name} and different UID {} still exists (previous pod force-deleted?!)",
            other.uid
        ));
    }
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let drivers: BTreeMap<_, _> = results.map(|result| (result.driver.clone(), None)).collect();
    let known = record.claims.entry(uid.clone()).or_insert_with(|| Claim {
        namespace,
        name: name.clone(),
        uid,
        pods: Default::default(),
        drivers: BTreeMap::new(),
    });
    known.pods.insert(pod_uid);
    for (driver, none) in drivers {
        known.drivers.entry(driver).or_insert(none);
    }
    Ok(())
}

/// What a container asks for of its Pod's claims, with those that are known.
fn used<'a>(
    pod: &'a Pod,
    container: &'a Container,
    record: &'a Record,
) -> impl Iterator<Item = (&'a CoreClaim, &'a Claim)> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let claims = container.resources.as_ref().and_then(|resources| resources.claims.as_deref());
    claims.unwrap_or_default().iter().filter_map(move |used| {
        let claim = asked(pod).iter().find(|claim| claim.name == used.name)?;
        let (name, _) = name_of(pod, claim).ok().flatten()?;
        Some((used, record.of_pod(uid).find(|claim| claim.name == name)?))
    })
}

/// How the devices of a container are: `claim:NAME`, or `claim:NAME/REQUEST` if it asks for a part. `health` tells by driver, pool and
/// device.
#[must_use]
pub fn health(
    pod: &Pod,
    container: &Container,
    record: &Record,
    health: impl Fn(&str, &str, &str) -> (&'static str, Option<String>),
) -> Vec<ResourceStatus> {
    let mut all: Vec<ResourceStatus> = Vec::new();
    for (used, claim) in used(pod, container, record) {
        let request = used.request.as_deref().filter(|request| !request.is_empty());
        let mut resources: Vec<ResourceHealth> = Vec::new();
        for (driver, device) in claim.devices(request) {
            let by_name = || format!("{driver}/{}/{}", device.pool, device.name);
            let resource_id = device.cdi_devices.first().cloned().unwrap_or_else(by_name);
            if resources.iter().all(|other| other.resource_id != resource_id) {
                let (health, message) = health(driver, &device.pool, &device.name);
                resources.push(ResourceHealth { resource_id, health: Some(health.to_owned()), message });
            }
        }
        if !resources.is_empty() {
            let part = request.map(|request| format!("/{request}")).unwrap_or_default();
            all.push(ResourceStatus {
                name: format!("claim:{}{part}", used.name),
                resources: Some(resources),
            });
        }
    }
    all
}

/// What the runtime is told for a container, by the names that the Pod has of its claims.
#[must_use]
pub fn cdi_devices(pod: &Pod, container: &Container, record: &Record) -> Vec<String> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let mut all = Vec::new();
    for (used, claim) in used(pod, container, record) {
        all.extend(claim.cdi_devices(used.request.as_deref()));
    }
    if let Some(extended) = extended(pod)
        && let Some(claim) = record.of_pod(uid).find(|claim| claim.name == extended.resource_claim_name)
    {
        let its = extended.request_mappings.iter().filter(|of| of.container_name == container.name);
        all.extend(its.flat_map(|of| claim.cdi_devices(Some(&of.request_name))));
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::record::Device;
    use super::*;

    fn device(request: &str, id: &str) -> Device {
        Device {
            pool: "n".into(),
            name: "0".into(),
            requests: vec![request.into()],
            cdi_devices: vec![id.into()],
        }
    }

    fn pod(more: &Value) -> Pod {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "p-uid"},
            "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"},
                {"name": "own", "resourceClaimTemplateName": "t"}]},
            "status": {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "p-own-x"}]}});
        json_patch::merge(&mut pod, more);
        serde_json::from_value(pod).unwrap()
    }

    fn claim(more: &Value) -> ResourceClaim {
        let mut claim = json!({"metadata": {"name": "shared", "namespace": "d", "uid": "c-uid"}, "spec": {},
            "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "p-uid"}],
                "allocation": {"devices": {"results": [{"driver": "a", "pool": "n", "device": "0", "request": "r"}]}}}});
        json_patch::merge(&mut claim, more);
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn a_pods_claims_have_the_names_that_its_status_tells() {
        let names =
            |pod: &Pod| wanted(pod).map(|all| all.into_iter().map(|w| (w.name, w.own)).collect::<Vec<_>>());
        let shared = ("shared".to_owned(), false);
        assert_eq!(names(&pod(&json!({}))), Ok(vec![shared.clone(), ("p-own-x".to_owned(), true)]));
        let none = json!({"status": {"resourceClaimStatuses": [{"name": "own"}]}});
        assert_eq!(names(&pod(&none)), Ok(vec![shared]), "one is not needed");
        assert!(names(&pod(&json!({"status": null}))).is_err());
    }

    #[test]
    fn only_a_user_of_a_claim_that_has_devices_gets_them() {
        let shared = Wanted { name: "shared".to_owned(), own: false };
        let own = Wanted { name: "shared".to_owned(), own: true };
        let old = Claim {
            namespace: "d".into(),
            name: "shared".into(),
            uid: "old".into(),
            pods: Default::default(),
            drivers: BTreeMap::new(),
        };
        let other = Record { claims: BTreeMap::from([("old".to_owned(), old)]) };
        let rows = [
            ("a user", &shared, json!({}), Record::default(), Ok(())),
            (
                "no user",
                &shared,
                json!({"status": {"reservedFor": []}}),
                Record::default(),
                Err("claim d/shared is not reserved for the pod"),
            ),
            (
                "no devices",
                &shared,
                json!({"status": {"allocation": null}}),
                Record::default(),
                Err("claim d/shared is not allocated"),
            ),
            (
                "another's",
                &own,
                json!({}),
                Record::default(),
                Err("ResourceClaim d/shared was not created for the pod (Pod is not owner)"),
            ),
            (
                "an older one is here",
                &shared,
                json!({}),
                other,
                Err(
                    "old ResourceClaim with same name shared and different UID old still exists (previous pod force-deleted?!)",
                ),
            ),
        ];
        for (name, wanted, more, mut record, expected) in rows {
            let noted = note(&pod(&json!({})), wanted, &claim(&more), &mut record);
            assert_eq!(noted, expected.map_err(str::to_owned), "{name}");
            assert_eq!(record.claims.contains_key("c-uid"), expected.is_ok(), "{name}");
        }
    }

    #[test]
    fn a_pod_waits_until_all_its_claims_are_ready_and_its_containers_get_theirs() {
        let pod = pod(&json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]}}));
        let mut record = Record::default();
        assert!(!is_ready(&pod, &record));
        note(&pod, &Wanted { name: "shared".to_owned(), own: false }, &claim(&json!({})), &mut record)
            .unwrap();
        assert!(!is_ready(&pod, &record));
        let devices = vec![device("r", "v/c=0")];
        record.claims.get_mut("c-uid").unwrap().drivers.insert("a".to_owned(), Some(devices));
        assert!(is_ready(&pod, &record));
        let container = |claims: Value| -> Container {
            serde_json::from_value(json!({"name": "c", "resources": {"claims": claims}})).unwrap()
        };
        let rows = [
            (json!([{"name": "gpu"}]), vec!["v/c=0"]),
            (json!([{"name": "gpu", "request": "r"}]), vec!["v/c=0"]),
            (json!([{"name": "gpu", "request": "s"}]), vec![]),
            (json!([]), vec![]),
        ];
        for (claims, expected) in rows {
            assert_eq!(cdi_devices(&pod, &container(claims.clone()), &record), expected, "{claims}");
        }
    }

    #[test]
    fn containers_show_how_their_devices_are() {
        let pod = pod(&json!({"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}]}}));
        let mut record = Record::default();
        note(&pod, &Wanted { name: "shared".to_owned(), own: false }, &claim(&json!({})), &mut record)
            .unwrap();
        let mut nameless = device("s", "");
        nameless.cdi_devices.clear();
        let devices = vec![device("r", "v/c=0"), device("r", "v/c=0"), nameless];
        record.claims.get_mut("c-uid").unwrap().drivers.insert("a".to_owned(), Some(devices));
        let shown = |claims: Value| -> Value {
            let container =
                serde_json::from_value(json!({"name": "c", "resources": {"claims": claims}})).unwrap();
            let tell = |driver: &str, pool: &str, device: &str| {
                ("Unhealthy", Some(format!("{driver} {pool} {device}")))
            };
            json!(health(&pod, &container, &record, tell))
        };
        let one = |id: &str| json!({"resourceID": id, "health": "Unhealthy", "message": "a n 0"});
        assert_eq!(
            shown(json!([{"name": "gpu"}, {"name": "gpu", "request": "s"}, {"name": "gpu", "request": "t"}])),
            json!([{"name": "claim:gpu", "resources": [one("v/c=0"), one("a/n/0")]},
                {"name": "claim:gpu/s", "resources": [one("a/n/0")]}])
        );
        assert_eq!(shown(json!([])), json!([]));
    }

    #[test]
    fn what_is_asked_for_by_resources_comes_from_the_claim_that_was_written_for_it() {
        let of = |container: &str, request: &str| json!({"containerName": container, "resourceName": "x.io/gpu", "requestName": request});
        let pod = pod(&json!({"spec": {"resourceClaims": null}, "status": {"resourceClaimStatuses": null,
            "extendedResourceClaimStatus": {"resourceClaimName": "shared", "requestMappings": [of("c", "r"), of("d", "s")]}}}));
        assert!(!asks_none(&pod));
        let own = Wanted { name: "shared".to_owned(), own: true };
        assert_eq!(wanted(&pod).as_deref(), Ok(&[own][..]));
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid", "controller": true});
        let claim = claim(&json!({"metadata": {"ownerReferences": [owner]}}));
        let mut record = Record::default();
        note(&pod, &wanted(&pod).unwrap()[0], &claim, &mut record).unwrap();
        let devices = vec![device("r", "v/c=0"), device("s", "v/c=1")];
        record.claims.get_mut("c-uid").unwrap().drivers.insert("a".to_owned(), Some(devices));
        for (name, expected) in [("c", vec!["v/c=0"]), ("d", vec!["v/c=1"]), ("e", vec![])] {
            let container: Container = serde_json::from_value(json!({"name": name})).unwrap();
            assert_eq!(cdi_devices(&pod, &container, &record), expected, "{name}");
        }
    }
}

//! ResourceQuotas: a write that uses more than is left is refused; one that fits is counted at once, by compare-and-swap on the
//! quota's status. What is given back is counted by the controller.

use serde_json::{Value, json};
use trine_objects::pod_resources::Amounts;
use trine_objects::quantity::Quantity;
use trine_objects::quota::{Beside, amounts, concerned, covers, missing, shown, usage};
use trine_objects::resources::Resource;
use trine_store::Expect;

use super::Change;
use crate::kinds::{Objects, class_of_service};
use crate::registry::{Registry, now_unix, text};
use crate::status::ApiError;
use crate::verbs::update::parse;

/// How often a lost race for a quota is run again.
const RETRIES: usize = 32;

/// Checks a write against the quotas of its namespace, and counts it.
pub async fn validate(registry: &Registry, change: &Change<'_>, new: &Value) -> Result<(), ApiError> {
    if !change.resource.namespaced || !is_counted(change, new) {
        return Ok(());
    }
    let namespace = text(&new["metadata"]["namespace"]);
    let quotas = registry.list_in("", "resourcequotas", namespace);
    if quotas.is_empty() {
        return Ok(());
    }
    let resource = registry.resource("", "v1", "resourcequotas")?;
    let of_devices =
        (&*change.resource.group, &*change.resource.plural) == ("resource.k8s.io", "resourceclaims");
    let all = |group: &str, plural: &str, namespace: &str| {
        if of_devices { registry.list_in(group, plural, namespace) } else { Vec::new() }
    };
    let classes = all("resource.k8s.io", "deviceclasses", "");
    let (pods, claims) = (all("", "pods", namespace), all("resource.k8s.io", "resourceclaims", namespace));
    let beside = Beside { classes: &classes, pods: &pods, claims: &claims };
    for quota in quotas {
        let name = text(&quota["metadata"]["name"]);
        for attempt in 0.. {
            let Ok(current) = registry.get(&resource, namespace, name) else { break };
            let mut quota = parse(current.json())?;
            let counted = count(change.resource, change.old, new, &quota, (now_unix(), &beside));
            let Some(used) = counted.map_err(|why| change.denied(new, why))? else { break };
            if change.dry_run {
                break;
            }
            quota["status"]["used"] = used;
            match registry.put(&resource, quota, Expect::At(current.revision)).await {
                Err(ApiError::Conflict { .. }) if attempt < RETRIES => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
    }
    Ok(())
}

/// Whether a write may use more than what was there.
fn is_counted(change: &Change<'_>, new: &Value) -> bool {
    let kind = (&*change.resource.group, &*change.resource.plural, change.subresource);
    match (change.old, kind) {
        (None, (_, _, ""))
        | (Some(_), ("", "pods", "resize") | ("", "services" | "persistentvolumeclaims", "")) => true,
        // The Pod changes from one scope into another.
        (Some(old), ("", "pods", "")) => {
            old["spec"]["activeDeadlineSeconds"].is_null() != new["spec"]["activeDeadlineSeconds"].is_null()
        }
        _ => false,
    }
}

/// What a quota counts after a write; `None` if it stays the same.
fn count(
    resource: &Resource,
    old: Option<&Value>,
    new: &Value,
    quota: &Value,
    (now, beside): (i64, &Beside<'_>),
) -> Result<Option<Value>, String> {
    let name = text(&quota["metadata"]["name"]);
    let hard = amounts(&quota["status"]["hard"]);
    let covered = |object: &Value| covers(quota, resource, object, class_of_service(&object["spec"]));
    let limited = concerned(&hard, resource, beside);
    if limited.is_empty() || !covered(new) {
        return Ok(None);
    }
    if old.is_none()
        && resource.plural == "pods"
        && let Some(lacking) = missing(new, &limited)
    {
        return Err(format!("failed quota: {name}: must specify {lacking}"));
    }
    let used = amounts(&quota["status"]["used"]);
    if limited.iter().any(|r| !used.contains_key(*r)) {
        return Err(format!("status unknown for quota: {name}, resources: {}", limited.join(",")));
    }
    let before =
        old.filter(|old| covered(old)).map(|old| usage(resource, old, now, beside)).unwrap_or_default();
    let mut more = usage(resource, new, now, beside);
    more.retain(|r, _| limited.contains(&r.as_str()));
    for (r, amount) in &mut more {
        if let Some(had) = before.get(r) {
            *amount = *amount - *had;
        }
    }
    more.retain(|_, amount| !amount.is_zero());
    if more.is_empty() {
        return Ok(None);
    }
    let zero = Quantity::from_milli(0);
    let sums: Amounts =
        more.iter().map(|(r, a)| (r.clone(), used.get(r).copied().unwrap_or(zero) + *a)).collect();
    // Who gives something back is not refused, though too much is used.
    let over: Vec<&String> =
        sums.iter().filter(|(r, sum)| **sum > hard[*r] && more[*r] > zero).map(|(r, _)| r).collect();
    if !over.is_empty() {
        let only = |of: &Amounts| -> String {
            shown(&over.iter().filter_map(|r| Some(((*r).clone(), *of.get(*r)?))).collect())
        };
        return Err(format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            only(&more),
            only(&used),
            only(&hard)
        ));
    }
    let mut list = quota["status"]["used"].clone();
    for (r, sum) in sums {
        list[r] = json!(sum.to_string());
    }
    Ok(Some(list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_objects::resources::find;

    const AT: (i64, &Beside<'_>) = (0, &Beside { classes: &[], pods: &[], claims: &[] });

    fn pod(cpu: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
    }

    #[test]
    fn a_pod_is_counted_while_it_fits() {
        let pods = find("", "v1", "pods").unwrap();
        let quota = quota(json!({"pods": "2", "cpu": "3"}), json!({"pods": "1", "cpu": "1"}));
        let used = count(pods, None, &pod("1500m"), &quota, AT).unwrap().unwrap();
        assert_eq!(used, json!({"pods": "2", "cpu": "2500m"}));
        assert_eq!(
            count(pods, None, &pod("2500m"), &quota, AT).unwrap_err(),
            "exceeded quota: q, requested: cpu=2500m, used: cpu=1, limited: cpu=3"
        );
        let silent = json!({"spec": {"containers": [{"name": "c"}]}});
        assert_eq!(
            count(pods, None, &silent, &quota, AT).unwrap_err(),
            "failed quota: q: must specify cpu for: c"
        );
    }

    #[test]
    fn only_the_difference_of_an_update_counts() {
        let pods = find("", "v1", "pods").unwrap();
        let quota = quota(json!({"cpu": "3"}), json!({"cpu": "5"}));
        let used = count(pods, Some(&pod("2")), &pod("1"), &quota, AT).unwrap().unwrap();
        assert_eq!(used, json!({"cpu": "4"}));
        assert!(count(pods, Some(&pod("1")), &pod("2"), &quota, AT).is_err());
        assert_eq!(count(pods, Some(&pod("1")), &pod("1"), &quota, AT).unwrap(), None);
    }

    #[test]
    fn a_quota_that_is_not_counted_yet_refuses() {
        let secrets = find("", "v1", "secrets").unwrap();
        let fresh =
            json!({"metadata": {"name": "q"}, "status": {"hard": {"secrets": "1", "count/secrets": "2"}}});
        assert_eq!(
            count(secrets, None, &json!({}), &fresh, AT).unwrap_err(),
            "status unknown for quota: q, resources: count/secrets,secrets"
        );
        let other = quota(json!({"pods": "1"}), json!({"pods": "1"}));
        assert_eq!(count(secrets, None, &json!({}), &other, AT).unwrap(), None);
    }
}

//! What a quota's status says, from the objects that it counts.

use serde_json::{Map, Value};
use trine_objects::pod_resources::Amounts;
use trine_objects::quantity::Quantity;
use trine_objects::quota::{Beside, amounts, concerned, counted_as, covers, usage};
use trine_objects::resources::{Resource, resources};

/// The kinds that a quota's limits are about, from the table of those that are built in.
#[must_use]
pub fn counted(quota: &Value, beside: &Beside<'_>) -> Vec<&'static Resource> {
    let hard = amounts(&quota["spec"]["hard"]);
    let wanted = |r: &&Resource| {
        r.namespaced
            && r.serves("list")
            && !r.is_stored_otherwise()
            && !concerned(&hard, r, beside).is_empty()
    };
    resources().iter().filter(wanted).collect()
}

/// The kinds that a quota counts and the table does not know: plural and group.
#[must_use]
pub fn foreign(quota: &Value) -> Vec<(String, String)> {
    let hard = quota["spec"]["hard"].as_object().into_iter().flatten();
    hard.filter_map(|(name, _)| name.strip_prefix("count/"))
        .filter(|name| !resources().iter().any(|r| counted_as(r) == format!("count/{name}")))
        .filter_map(|name| name.split_once('.'))
        .map(|(plural, group)| (plural.to_owned(), group.to_owned()))
        .collect()
}

/// The status that a quota should have: its limits, and what is used of each by these objects and numbers of objects.
#[must_use]
pub fn status(
    quota: &Value,
    objects: &[(&Resource, Vec<Value>)],
    numbers: &[(String, usize)],
    now_unix: i64,
    beside: &Beside<'_>,
) -> Value {
    let hard = amounts(&quota["spec"]["hard"]);
    let mut used: Amounts = hard.keys().map(|name| (name.clone(), Quantity::from_milli(0))).collect();
    for (resource, objects) in objects {
        let limited = concerned(&hard, resource, beside);
        for object in objects {
            let class = object["status"]["qosClass"].as_str().unwrap_or_default();
            if !covers(quota, resource, object, class) {
                continue;
            }
            for (name, amount) in usage(resource, object, now_unix, beside) {
                if limited.contains(&name.as_str())
                    && let Some(sum) = used.get_mut(&name)
                {
                    // The first amount says how the sum is written.
                    *sum = if sum.is_zero() { amount } else { *sum + amount };
                }
            }
        }
    }
    for (name, number) in numbers {
        if let Some(sum) = used.get_mut(name) {
            *sum = Quantity::from_milli(i128::try_from(*number).unwrap_or(0) * 1000);
        }
    }
    let used: Map<String, Value> = used.into_iter().map(|(n, q)| (n, q.to_string().into())).collect();
    let hard = quota["spec"]["hard"].as_object().cloned().unwrap_or_default();
    let mut status = Map::new();
    status.insert("hard".to_owned(), hard.into());
    status.insert("used".to_owned(), used.into());
    status.into()
}

/// Whether something is used less than was counted before.
#[must_use]
pub fn lowers(before: &Value, after: &Value) -> bool {
    let (before, after) = (amounts(before), amounts(after));
    after.iter().any(|(name, amount)| before.get(name).is_some_and(|had| amount < had))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trine_objects::resources::find;

    #[test]
    fn used_is_what_the_objects_hold() {
        let quota = json!({"spec": {"hard": {"pods": "5", "requests.memory": "2Gi", "count/widgets.x.io": "3", "secrets": "1"}}});
        let pod = |memory: &str, phase: &str| json!({"spec": {"containers": [{"resources": {"requests": {"memory": memory}}}]}, "status": {"phase": phase}});
        let pods = vec![pod("512Mi", "Running"), pod("512Mi", "Pending"), pod("1Gi", "Succeeded")];
        let status = status(
            &quota,
            &[(find("", "v1", "pods").unwrap(), pods)],
            &[("count/widgets.x.io".to_owned(), 2)],
            0,
            &Beside::default(),
        );
        assert_eq!(
            status["used"],
            json!({"pods": "2", "requests.memory": "1Gi", "count/widgets.x.io": "2", "secrets": "0"})
        );
        assert_eq!(status["hard"], quota["spec"]["hard"]);
        let kinds: Vec<&str> = counted(&quota, &Beside::default()).iter().map(|r| &*r.plural).collect();
        assert_eq!(kinds, ["pods", "secrets"]);
        assert_eq!(foreign(&quota), [("widgets".to_owned(), "x.io".to_owned())]);
    }

    #[test]
    fn less_is_told_from_more() {
        let used = json!({"pods": "2", "requests.memory": "1Gi"});
        assert!(lowers(&used, &json!({"pods": "2", "requests.memory": "512Mi"})));
        assert!(!lowers(&used, &json!({"pods": "3", "requests.memory": "1024Mi"})));
        assert!(!lowers(&json!(null), &json!({"pods": "0"})), "nothing was counted yet");
    }

    #[test]
    fn a_scoped_quota_counts_the_pods_of_its_scope() {
        let quota = json!({"spec": {"hard": {"pods": "5"}, "scopes": ["BestEffort"]}});
        let pods =
            vec![json!({"status": {"qosClass": "BestEffort"}}), json!({"status": {"qosClass": "Burstable"}})];
        let status = status(&quota, &[(find("", "v1", "pods").unwrap(), pods)], &[], 0, &Beside::default());
        assert_eq!(status["used"], json!({"pods": "1"}));
    }
}

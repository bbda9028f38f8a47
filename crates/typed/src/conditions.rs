//! Status conditions of Pods: set by type, with the transition time kept while the status is unchanged.

use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Sets the condition of `fresh.type_` in `conditions`. `last_transition_time` changes only with `status`.
pub fn set_pod_condition(conditions: &mut Vec<PodCondition>, mut fresh: PodCondition, now: &Time) {
    match conditions.iter_mut().find(|c| c.type_ == fresh.type_) {
        Some(old) => {
            fresh.last_transition_time =
                if old.status == fresh.status { old.last_transition_time.clone() } else { Some(now.clone()) };
            *old = fresh;
        }
        None => {
            fresh.last_transition_time = Some(now.clone());
            conditions.push(fresh);
        }
    }
}

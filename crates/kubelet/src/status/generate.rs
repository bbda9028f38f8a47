//! The whole status, purely.

use std::collections::BTreeMap;

use jiff::Timestamp;
use trine_typed::conditions::set_pod_condition;
use trine_typed::k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::conditions::{self, ConditionInput};
use super::{containers, phase, resizing};
use crate::container::resources;
use crate::pod::memory::{Memory, Verdicts};
use crate::pod::spec;
use crate::resize::{Numbers, Pending};
use crate::runtime::Observed;

/// What the status is made from.
pub struct StatusInput<'a> {
    /// The Pod as the API server has it.
    pub pod: &'a Pod,
    /// What the runtime has.
    pub observed: &'a Observed,
    /// What is remembered.
    pub memory: &'a Memory,
    /// What the probes say.
    pub verdicts: &'a Verdicts,
    /// What each container's group is to have.
    pub numbers: &'a BTreeMap<String, Numbers>,
    /// Why the Pod is not given what it asks for now.
    pub pending: Option<&'a Pending>,
    /// Name of the runtime.
    pub runtime: &'a str,
    /// Address of the node.
    pub host_ips: &'a [String],
    /// Whether everything is being ended: nothing will be restarted.
    pub stopping: bool,
    /// Phase reason and message of a Pod that failed as a whole.
    pub failed: Option<(&'a str, &'a str)>,
    /// When the kubelet saw the Pod first.
    pub start_time: Timestamp,
    /// The time.
    pub now: Timestamp,
}

/// The status.
#[must_use]
pub fn generate(input: &StatusInput<'_>) -> PodStatus {
    let pod = input.pod;
    let of = |list: &[trine_typed::k8s_openapi::api::core::v1::Container]| {
        list.iter().map(|c| containers::status(input, c)).collect::<Vec<_>>()
    };
    let init = of(spec::init_containers(pod));
    let main = of(spec::containers(pod));
    let ephemeral = of(&spec::ephemeral_containers(pod));
    let old = pod.status.as_ref();
    let phase = match (old.and_then(|s| s.phase.as_deref()), input.failed) {
        // A Pod that ended never lives again.
        (Some("Succeeded"), _) => "Succeeded",
        (Some("Failed"), _) | (_, Some(_)) => "Failed",
        _ => phase::phase(pod, &init, &main),
    };
    let sandbox = input.observed.sandbox().filter(|b| b.ready);
    let sandbox_ready = sandbox.is_some_and(|b| b.host_network || !b.ips.is_empty());
    let mut fresh =
        conditions::conditions(&ConditionInput { pod, phase, init: &init, main: &main, sandbox_ready });
    fresh.extend(resizing::conditions(input));
    fresh.extend(input.failed.and_then(|(reason, message)| conditions::disrupted(reason, message)));
    let mut all = old.and_then(|s| s.conditions.clone()).unwrap_or_default();
    all.retain(|c| !resizing::OURS.contains(&c.type_.as_str()) || fresh.iter().any(|f| f.type_ == c.type_));
    let now = Time(Timestamp::from_second(input.now.as_second()).unwrap_or(input.now));
    for mut condition in fresh {
        condition.observed_generation = pod.metadata.generation;
        set_pod_condition(&mut all, condition, &now);
    }
    let ips = addresses(input, sandbox.map(|b| b.ips.as_slice()).unwrap_or_default());
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(all),
        message: input.failed.map(|f| f.1.to_owned()).or_else(|| old.and_then(|s| s.message.clone())),
        reason: input.failed.map(|f| f.0.to_owned()).or_else(|| old.and_then(|s| s.reason.clone())),
        host_ip: input.host_ips.first().cloned(),
        host_ips: Some(input.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect()),
        pod_ip: ips.first().map(|ip| ip.ip.clone()),
        pod_ips: (!ips.is_empty()).then_some(ips),
        start_time: old.and_then(|s| s.start_time.clone()).or(Some(Time(input.start_time))),
        init_container_statuses: (!init.is_empty()).then_some(init),
        container_statuses: Some(main),
        ephemeral_container_statuses: (!ephemeral.is_empty()).then_some(ephemeral),
        qos_class: old.and_then(|s| s.qos_class.clone()).or_else(|| Some(resources::qos(pod).to_owned())),
        observed_generation: pod.metadata.generation,
        ..Default::default()
    }
}

/// The sandbox's addresses; a Pod that is ending keeps those that it had.
fn addresses(input: &StatusInput<'_>, sandbox: &[String]) -> Vec<PodIP> {
    let made = input.observed.sandbox().is_some();
    if spec::host_network(input.pod) && made {
        return input.host_ips.iter().map(|ip| PodIP { ip: ip.clone() }).collect();
    }
    if sandbox.is_empty() {
        return input.pod.status.as_ref().and_then(|s| s.pod_ips.clone()).unwrap_or_default();
    }
    sandbox.iter().map(|ip| PodIP { ip: ip.clone() }).collect()
}

#[cfg(test)]
#[path = "generate_tests.rs"]
mod tests;

//! When Pods have to leave because of their devices, and what a rule tells of it. Pure. Source: KEP-5055, upstream's
//! `devicetainteviction`.

use std::collections::BTreeSet;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceTaint, DeviceTaintRule, ResourceClaim, ResourceSlice,
};
use trine_typed::k8s_openapi::jiff::{SignedDuration, Timestamp};
use trine_typed::placement::covers_device;
use trine_typed::pods::{is_made_for, is_user};

/// The effect that drives Pods off.
pub const DRIVES_OFF: &str = "NoExecute";

/// When a Pod has to go, and which rules (by UID) say so; none if only drivers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// Not before.
    pub at: Timestamp,
    /// The rules.
    pub rules: BTreeSet<String>,
}

impl Eviction {
    fn and(self, other: Self) -> Self {
        Self { at: self.at.min(other.at), rules: self.rules.into_iter().chain(other.rules).collect() }
    }
}

/// All that decides.
pub struct Known<'a> {
    /// What drivers offer, with their taints.
    pub slices: &'a [Arc<ResourceSlice>],
    /// The taints of administrators.
    pub rules: &'a [Arc<DeviceTaintRule>],
    /// A rule whose taint counts as if it drove off, to see what it would do.
    pub as_if: Option<&'a str>,
}

impl Known<'_> {
    /// When a Pod has to go. `claim` finds those of its namespace.
    pub fn of_pod(&self, pod: &Pod, claim: impl Fn(&str) -> Option<Arc<ResourceClaim>>) -> Option<Eviction> {
        pod.spec.as_ref()?.node_name.as_ref().filter(|node| !node.is_empty())?;
        let claims = names(pod).into_iter().filter_map(|(name, own)| {
            claim(&name).filter(|claim| (!own || is_made_for(&claim.metadata, pod)) && is_user(pod, claim))
        });
        claims.filter_map(|claim| self.of_claim(&claim)).reduce(Eviction::and)
    }

    /// When the users of a claim have to go.
    fn of_claim(&self, claim: &ResourceClaim) -> Option<Eviction> {
        results(claim).filter_map(|device| self.of_device(device)).reduce(Eviction::and)
    }

    fn of_device(&self, device: &DeviceRequestAllocationResult) -> Option<Eviction> {
        let own = own_taints(device, self.slices).into_iter().map(|taint| (taint, None));
        let rules = self.rules.iter().filter(|rule| is_for(rule, device)).map(|rule| {
            let uid = rule.metadata.uid.clone().unwrap_or_default();
            (rule.spec.taint.clone(), Some(uid))
        });
        let driving = own.chain(rules).filter_map(|(mut taint, rule)| {
            if rule.is_some() && rule.as_deref() == self.as_if {
                DRIVES_OFF.clone_into(&mut taint.effect);
            }
            (taint.effect == DRIVES_OFF).then_some((taint, rule))
        });
        let evictions = driving.filter_map(|(taint, rule)| {
            let at = until(device, &taint)?;
            Some(Eviction { at, rules: rule.into_iter().collect() })
        });
        evictions.reduce(Eviction::and)
    }

    /// How many devices a rule is for: of those that are offered, and of those that claims have.
    #[must_use]
    pub fn devices_of(&self, rule: &DeviceTaintRule, claims: &[Arc<ResourceClaim>]) -> (usize, usize) {
        let newest = |slice: &ResourceSlice| {
            let of_pool = self.slices.iter().filter(|other| same_pool(other, slice));
            of_pool.map(|other| other.spec.pool.generation).max() == Some(slice.spec.pool.generation)
        };
        let offered = self.slices.iter().filter(|slice| newest(slice)).flat_map(|slice| {
            let devices = slice.spec.devices.iter().flatten();
            devices.map(|device| [&slice.spec.driver, &slice.spec.pool.name, &device.name])
        });
        let given = claims.iter().flat_map(|claim| results(claim)).filter(|device| is_for(rule, device));
        (offered.filter(|device| selects(rule, *device)).count(), given.count())
    }
}

/// What claims of a Pod are called, and whether it must be theirs.
fn names(pod: &Pod) -> Vec<(String, bool)> {
    let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
    let wanted = spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    let named = wanted.filter_map(|claim| Some((claim.resource_claim_name.clone()?, false)));
    let made = status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    let made = made.filter_map(|claim| Some((claim.resource_claim_name.clone()?, true)));
    let extended = status.and_then(|status| status.extended_resource_claim_status.as_ref());
    let extended = extended.map(|claim| (claim.resource_claim_name.clone(), true));
    named.chain(made).chain(extended).collect()
}

/// What a claim has.
pub fn results(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    allocation.into_iter().flat_map(|a| &a.devices).flat_map(|devices| devices.results.iter().flatten())
}

fn same_pool(a: &ResourceSlice, b: &ResourceSlice) -> bool {
    a.spec.driver == b.spec.driver && a.spec.pool.name == b.spec.pool.name
}

/// The taints that the driver says a device has: what older slices of its pool say does not count.
fn own_taints(device: &DeviceRequestAllocationResult, slices: &[Arc<ResourceSlice>]) -> Vec<DeviceTaint> {
    let of_pool = || {
        let all = slices.iter();
        all.filter(|slice| slice.spec.driver == device.driver && slice.spec.pool.name == device.pool)
    };
    let Some(generation) = of_pool().map(|slice| slice.spec.pool.generation).max() else { return Vec::new() };
    let newest = of_pool().filter(|slice| slice.spec.pool.generation == generation);
    let mut devices = newest.flat_map(|slice| slice.spec.devices.iter().flatten());
    let found = devices.find(|offered| offered.name == device.device);
    found.and_then(|found| found.taints.clone()).unwrap_or_default()
}

/// Whether a rule is for a device.
#[must_use]
pub fn is_for(rule: &DeviceTaintRule, device: &DeviceRequestAllocationResult) -> bool {
    selects(rule, [&device.driver, &device.pool, &device.device])
}

/// Without a selector a rule is for none, with an empty one for all.
fn selects(rule: &DeviceTaintRule, [driver, pool, device]: [&String; 3]) -> bool {
    let meets = |wanted: &Option<String>, is: &String| wanted.as_ref().is_none_or(|wanted| wanted == is);
    rule.spec
        .device_selector
        .as_ref()
        .is_some_and(|of| meets(&of.driver, driver) && meets(&of.pool, pool) && meets(&of.device, device))
}

/// Until when a device's taint is tolerated; nothing if it always is. A taint that does not say since when it is there, as none of a
/// server's does, counts from the beginning of time.
fn until(device: &DeviceRequestAllocationResult, taint: &DeviceTaint) -> Option<Timestamp> {
    let since = taint.time_added.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let tolerations = device.tolerations.iter().flatten();
    // Only what names this effect counts, as upstream: what tolerates all effects does not.
    let mut shortest: Option<i64> = None;
    for toleration in tolerations.filter(|toleration| covers_device(toleration, taint)) {
        if toleration.effect.as_deref() != Some(DRIVES_OFF) {
            continue;
        }
        let seconds = toleration.toleration_seconds?.max(0);
        shortest = Some(shortest.map_or(seconds, |other| other.min(seconds)));
    }
    let wait = SignedDuration::from_secs(shortest.unwrap_or(0));
    Some(since.checked_add(wait).unwrap_or(Timestamp::MAX))
}

/// How far a rule has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Pods that it has driven off since the controller began.
    pub evicted: u64,
    /// Pods that have to go, or would.
    pub pods: usize,
    /// Their namespaces.
    pub namespaces: usize,
    /// Devices that are offered and claims' devices that it is for.
    pub devices: (usize, usize),
}

/// What a rule's condition `EvictionInProgress` says: status, reason and message, in upstream's words.
#[must_use]
pub fn condition(effect: &str, so_far: Progress) -> (bool, &'static str, String) {
    let many =
        |n: u64, one: &str, more: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {more}") };
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let (pods, namespaces) = (count(so_far.pods), count(so_far.namespaces));
    let (status, reason, mut message) = match effect {
        DRIVES_OFF if pods > 0 => {
            let pods = many(pods, "pod needs", "pods need");
            let namespaces = many(namespaces, "namespace", "different namespaces");
            (true, "PodsPendingEviction", format!("{pods} to be evicted in {namespaces}."))
        }
        DRIVES_OFF if so_far.evicted > 0 => (false, "Completed", String::new()),
        DRIVES_OFF => (false, "NotStarted", String::new()),
        "None" => {
            let offered = many(count(so_far.devices.0), "published device", "published devices");
            let given = many(count(so_far.devices.1), "allocated device", "allocated devices");
            let pods = many(pods, "pod", "pods");
            let namespaces = many(namespaces, "namespace", "different namespaces");
            let message = format!(
                "{offered} selected. {given} selected. {pods} would be evicted in {namespaces} if the effect was \
                 NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an \
                 update."
            );
            (false, "NoEffect", message)
        }
        _ => (false, "OtherEffect", "Eviction only happens for the NoExecute effect.".to_owned()),
    };
    if so_far.evicted > 0 {
        let pods = many(so_far.evicted, "pod", "pods");
        let gap = if message.is_empty() { "" } else { " " };
        message.push_str(&format!("{gap}{pods} evicted since starting the controller."));
    }
    (status, reason, message)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;

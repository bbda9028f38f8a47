//! NodeResourcesFit: requests against what is left; the score is [`super::allocation`]'s.

use crate::framework::Rejection;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

/// The resources that somebody else looks after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ignored {
    /// By name.
    pub names: Vec<String>,
    /// By what is before the slash of their names.
    pub groups: Vec<String>,
}

impl Ignored {
    fn covers(&self, name: &str) -> bool {
        let group = name.split_once('/').map(|(group, _)| group);
        self.names.iter().any(|other| other == name)
            || group.is_some_and(|group| self.groups.iter().any(|other| other == group))
    }
}

/// `by_devices` says which resources a Pod gets as devices here, which others look after.
///
/// # Errors
/// Every resource that is short, each as its own reason.
pub fn filter(
    pod: &PodInfo,
    node: &NodeInfo,
    ignored: &Ignored,
    by_devices: impl Fn(&str) -> bool,
) -> Result<(), Vec<Rejection>> {
    let short = node.allocatable.short(&node.requested, &pod.requests);
    let short = short.filter(|(name, _)| !name.contains('/') || !(ignored.covers(name) || by_devices(name)));
    let reason = |(name, hopeless): (&str, bool)| {
        let reason = if name == "pods" { "Too many pods".to_owned() } else { format!("Insufficient {name}") };
        // Emptying the node would not help a Pod that is larger than the node.
        if hopeless { Rejection::lasting(reason) } else { Rejection::passing(reason) }
    };
    let short: Vec<Rejection> = short.map(reason).collect();
    if short.is_empty() { Ok(()) } else { Err(short) }
}

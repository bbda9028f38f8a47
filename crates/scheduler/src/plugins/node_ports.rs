//! NodePorts: a host port can be given away once per node, address and protocol.

use trine_typed::demand::clash;

use crate::framework::Rejection;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

/// # Errors
/// A wanted host port is taken.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    let taken = |wanted| node.pods_with_ports().flat_map(|other| &other.ports).any(|t| clash(wanted, t));
    if pod.ports.iter().any(taken) {
        return Err(Rejection::passing("node(s) didn't have free ports for the requested pod ports"));
    }
    Ok(())
}

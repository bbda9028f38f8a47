//! NodePorts: a host port can be given away once per node, address and protocol.

use trine_typed::demand::{HostPort, clash, host_ports};
use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::framework::Rejection;
use crate::snapshot::NodeInfo;

/// # Errors
/// A wanted host port is taken.
pub fn filter(pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
    let wanted = host_ports(pod);
    let taken: Vec<HostPort> =
        if wanted.is_empty() { Vec::new() } else { node.pods.iter().flat_map(|p| host_ports(p)).collect() };
    if wanted.iter().any(|w| taken.iter().any(|t| clash(w, t))) {
        return Err(Rejection::passing("node(s) didn't have free ports for the requested pod ports"));
    }
    Ok(())
}

//! NodePorts: a host port can be given away once per node, address and protocol.

use trine_typed::k8s_openapi::api::core::v1::Pod;

use crate::framework::Rejection;
use crate::snapshot::NodeInfo;

type HostPort = (String, String, i32);

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

fn clash(a: &HostPort, b: &HostPort) -> bool {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    a.1 == b.1 && a.2 == b.2 && (a.0 == b.0 || any(&a.0) || any(&b.0))
}

fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let ports = spec.containers.iter().flat_map(|c| c.ports.iter().flatten());
    let host_network = spec.host_network.unwrap_or_default();
    ports
        .filter_map(|p| {
            let port = p.host_port.filter(|port| *port > 0).or(host_network.then_some(p.container_port))?;
            let protocol = p.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((p.host_ip.clone().unwrap_or_default(), protocol, port))
        })
        .collect()
}

//! The configuration of the built-in network.

use std::path::Path;

use serde_json::{Value, json};
use trine_kernel::netlink::Cidr;

use super::{OWN, portmap};
use crate::spec::Version;

/// What the built-in network needs to know.
#[derive(Debug, Clone, Copy)]
pub struct DefaultNetwork<'a> {
    /// The instance's id, part of the links' names.
    pub instance: &'a str,
    /// The ranges of Pod addresses of this node, one per family.
    pub pod_cidrs: &'a [Cidr],
    /// Where addresses are kept.
    pub data_dir: &'a Path,
    /// The MTU of Pods, in bytes; the kernel's default (1500) if none.
    pub mtu: Option<u32>,
}

/// The content of `90-trine.conflist`.
#[must_use]
pub fn default_network(network: &DefaultNetwork<'_>) -> Value {
    let ranges: Vec<Value> =
        network.pod_cidrs.iter().map(|cidr| json!([{"subnet": cidr.network()}])).collect();
    let mut plugin = json!({
        "type": OWN,
        "instance": network.instance,
        "ipam": {"type": "host-local", "ranges": ranges, "dataDir": network.data_dir.join("networks")},
    });
    if let Some(mtu) = network.mtu {
        plugin["mtu"] = json!(mtu);
    }
    let ports = json!({
        "type": portmap::NAME, "instance": network.instance, "capabilities": {"portMappings": true},
    });
    json!({
        "cniVersion": Version::NEWEST.text(), "name": "trine", "loadOnlyInlinedPlugins": true,
        "plugins": [plugin, ports],
    })
}

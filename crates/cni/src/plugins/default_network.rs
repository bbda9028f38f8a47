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
    // A runtime that knows no list of versions knows no newer ones either: containerd 1 refuses results of 1.1.0.
    json!({
        "cniVersion": Version::V1_0_0.text(), "cniVersions": [Version::V1_0_0.text(), Version::NEWEST.text()],
        "name": "trine", "loadOnlyInlinedPlugins": true, "plugins": [plugin, ports],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::NetworkList;

    #[test]
    fn old_runtimes_are_answered_in_their_version_and_new_ones_in_the_newest() {
        let range: Cidr = "10.244.0.0/24".parse().unwrap();
        let network =
            DefaultNetwork { instance: "0a0b0c", pod_cidrs: &[range], data_dir: Path::new("/d"), mtu: None };
        let conflist = default_network(&network);
        // What a runtime reads that does not know the list of versions.
        assert_eq!(conflist["cniVersion"], "1.0.0");
        let read = NetworkList::parse(conflist.to_string().as_bytes()).unwrap();
        assert_eq!(read.version, Version::NEWEST);
    }
}

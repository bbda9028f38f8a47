//! The keys of `bridge`.

use serde::Deserialize;

use super::vlans::{self, Trunk};
use crate::spec::{CniError, Code, Request};

/// The configuration, checked.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// The bridge's name.
    pub bridge: String,
    /// The bridge has the gateways' addresses.
    pub is_gateway: bool,
    /// So it has, and the containers have a default route by it.
    pub is_default_gateway: bool,
    /// An address of the bridge that is in the way goes.
    pub force_address: bool,
    /// What leaves the subnet is masqueraded.
    pub ip_masq: bool,
    /// The MTU, in bytes.
    pub mtu: Option<u32>,
    /// A port may be sent back what it sent.
    pub hairpin_mode: bool,
    /// The bridge takes in every frame.
    pub promisc_mode: bool,
    /// The port's VLAN; none if 0.
    pub vlan: i64,
    /// The port's other VLANs.
    pub vlan_trunk: Option<Vec<Trunk>>,
    /// The kernel's own VLAN 1 stays on the port.
    pub preserve_default_vlan: bool,
    /// A port may send from its own hardware address alone.
    pub macspoofchk: bool,
    /// IPv6 addresses are looked for on the link before they are used.
    pub enabledad: bool,
    /// The container's end stays down.
    pub disable_container_interface: bool,
    /// The port does not reach other isolated ports.
    pub port_isolation: bool,
    /// Part of the names of tables.
    pub instance: String,
}

impl Config {
    /// Reads and checks it.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`].
    pub fn of(request: &Request) -> Result<Self, CniError> {
        let mut config: Self = request.config()?;
        if config.bridge.is_empty() {
            "cni0".clone_into(&mut config.bridge);
        }
        config.is_gateway |= config.is_default_gateway;
        config.mtu = config.mtu.filter(|mtu| *mtu > 0);
        let invalid = |msg: String| Err(CniError::new(Code::InvalidConfig, msg));
        if config.hairpin_mode && config.promisc_mode {
            return invalid("cannot set hairpin mode and promiscuous mode at the same time".to_owned());
        }
        if !(0..=vlans::LAST).contains(&config.vlan) {
            return invalid(format!("invalid VLAN ID {} (must be between 0 and 4094)", config.vlan));
        }
        vlans::trunk(config.vlan_trunk.as_deref().unwrap_or_default())?;
        let ipam = request.config.pointer("/ipam/type").and_then(|kind| kind.as_str()).unwrap_or_default();
        if config.disable_container_interface && !ipam.is_empty() {
            return invalid("cannot use IPAM when DisableContainerInterface flag is set".to_owned());
        }
        Ok(config)
    }

    /// True if the bridge has to keep VLANs apart.
    pub fn has_vlans(&self) -> bool {
        self.vlan != 0 || self.vlan_trunk.is_some()
    }

    /// The name of the link by which the host has an address in the port's VLAN.
    pub fn vlan_link(&self) -> String {
        format!("{}.{}", self.bridge, self.vlan)
    }
}

//! What a kubelet, or whoever stands in for one, says of an attachment, and what it is told of it.

use serde_json::Value;
use trine_contracts::networks;

use super::engine::{Attached, Attachment, Which};
use crate::spec::{CniError, CniResult, Version};

impl Attachment {
    /// The same, to the network that `one` says, in its way.
    #[must_use]
    pub fn told(self, one: networks::Attachment) -> Self {
        let mut args = self.args;
        // Plugins without the capability look for addresses among the arguments.
        let ips = one.wishes.get("ips").and_then(Value::as_array).into_iter().flatten();
        let ips: Vec<&str> = ips.filter_map(Value::as_str).collect();
        if !ips.is_empty() {
            args.push(("IP".to_owned(), ips.join(",")));
        }
        if let Some(mac) = one.wishes.get("mac").and_then(Value::as_str) {
            args.push(("MAC".to_owned(), mac.to_owned()));
        }
        let which = match (one.config, one.config_name) {
            (Some(config), _) => Which::Given(config),
            (None, Some(name)) => Which::Named(name),
            (None, None) => Which::OfTheNode,
        };
        Self {
            ifname: one.interface,
            args,
            which,
            wishes: one.wishes,
            cni_args: one.cni_args,
            gateways: one.gateways,
            ..self
        }
    }
}

impl Attached {
    /// What is told of it: by the name that it was given, if any.
    ///
    /// # Errors
    /// If its result cannot be read.
    pub fn told(&self, name: &str, ifname: &str, default: bool) -> Result<networks::Attached, CniError> {
        Ok(networks::Attached {
            name: if name.is_empty() { self.network.clone() } else { name.to_owned() },
            interface: ifname.to_owned(),
            default,
            result: CniResult::from_json(&self.result)?.to_json(Version::NEWEST),
        })
    }
}

//! The annotation by which a kubelet tells a runtime what else a sandbox is attached to, and the runtime's answer.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::selection::is_interface;
use super::{Unusable, unusable};

/// The annotation of a sandbox, with [`Attachments`] as JSON. With two slashes it cannot be an annotation of a Pod, which is
/// copied to its sandbox: whoever may make Pods may not say which configurations the runtime executes as root.
pub const ANNOTATION: &str = "networks.trine.dev/sandbox/v1";
/// The key of a sandbox's verbose status under which [`Attached`] are, as a JSON list, the default network first. It is there
/// only if the sandbox has the annotation.
pub const INFO: &str = "networks";
/// The link to the default network.
pub const DEFAULT_LINK: &str = "eth0";

/// What a sandbox is attached to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attachments {
    /// What is different about the default network; its interface is `eth0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Attachment>,
    /// The others, in the order in which they are attached, behind the default one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Attachment>,
}

/// One attachment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attachment {
    /// What it is called in the answer: `namespace/definition`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The name of the link.
    pub interface: String,
    /// The network: a CNI configuration, a single plugin or a list, with a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// Or: the name of one in the runtime's folder of configurations. The default network has neither if it is the node's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_name: Option<String>,
    /// Further arguments of each plugin (`args.cni`).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub cni_args: Map<String, Value>,
    /// Capabilities (`ips`, `mac`, ...) that have to come true; otherwise the attachment fails.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub wishes: Map<String, Value>,
    /// The default routes by this link, in place of what its plugins made; none are left as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateways: Option<Vec<IpAddr>>,
}

/// How a sandbox is attached to one network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attached {
    /// As it was called, else the network's own name.
    pub name: String,
    /// The name of the link.
    pub interface: String,
    /// It is the default network.
    #[serde(default)]
    pub default: bool,
    /// The result of ADD, of version 1.1.0.
    pub result: Value,
}

impl Attachments {
    /// Reads the annotation.
    ///
    /// # Errors
    /// If it has another shape, or no runtime could do it.
    pub fn parse(text: &str) -> Result<Self, Unusable> {
        let read = |text| serde_json::from_value(Value::Object(serde_json::from_str(text)?));
        let all: Self = read(text).map_err(|e| unusable(format!("annotation {ANNOTATION}: {e}")))?;
        all.check().map_err(|why| unusable(format!("annotation {ANNOTATION}: {why}")))?;
        Ok(all)
    }

    /// The annotation.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    fn check(&self) -> Result<(), String> {
        let mut links = BTreeSet::from([DEFAULT_LINK, "lo"]);
        if let Some(default) = &self.default {
            if default.interface != DEFAULT_LINK {
                return Err(format!("the default network's interface is {DEFAULT_LINK}"));
            }
            if default.config.is_some() && default.config_name.is_some() {
                return Err("the default network has two configurations".to_owned());
            }
        }
        for network in &self.networks {
            let link = network.interface.as_str();
            if !is_interface(link) {
                return Err(format!("{link:?} cannot be an interface's name"));
            }
            if !links.insert(link) {
                return Err(format!("the interface {link} is there twice"));
            }
            if network.config.is_some() == network.config_name.is_some() {
                return Err(format!("interface {link} has not one configuration"));
            }
        }
        let all = self.default.iter().chain(&self.networks);
        match all.filter_map(|n| n.config.as_ref()).find(|config| !config.is_object()) {
            Some(config) => Err(format!("a configuration is no object but {config}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let good = r#"{"default":{"interface":"eth0","gateways":[]},"networks":[
            {"name":"n/a","interface":"net1","config":{"name":"a","type":"bridge"},"wishes":{"mac":"02:00:00:00:00:01"},
             "gateways":["10.0.0.1"]},
            {"name":"n/b","interface":"net2","configName":"b","cniArgs":{"k":1}}]}"#;
        let all = Attachments::parse(good).unwrap();
        assert_eq!(Attachments::parse(&all.text()), Ok(all));
        assert_eq!(Attachments::parse("{}"), Ok(Attachments::default()));
        let one = |network: &str| format!(r#"{{"networks":[{network}]}}"#);
        let rows = [
            (String::new(), "EOF"),
            ("[]".to_owned(), ""),
            (r#"{"other":1}"#.to_owned(), "unknown field"),
            (one(r#"{"interface":"net1","configName":"b","more":1}"#), "unknown field"),
            (one(r#"{"interface":"net1"}"#), "not one configuration"),
            (one(r#"{"interface":"net1","config":{},"configName":"b"}"#), "not one configuration"),
            (one(r#"{"interface":"net1","config":"b"}"#), "no object"),
            (one(r#"{"interface":"eth0","configName":"b"}"#), "there twice"),
            (one(r#"{"interface":"lo","configName":"b"}"#), "there twice"),
            (one(r#"{"interface":"a/b","configName":"b"}"#), "cannot be an interface's name"),
            (r#"{"default":{"interface":"net1"}}"#.to_owned(), "is eth0"),
            (
                r#"{"default":{"interface":"eth0","config":{},"configName":"x"}}"#.to_owned(),
                "two configurations",
            ),
        ];
        for (text, part) in rows {
            let why = Attachments::parse(&text).unwrap_err().to_string();
            assert!(why.contains(part) && why.contains(ANNOTATION), "{text}: {why}");
        }
    }
}

//! What a plugin is asked: environment and configuration.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CniError, CniResult, Code, Dns, Version};

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// Attach a container.
    Add,
    /// Detach it.
    Del,
    /// Is the attachment as it was made?
    Check,
    /// Detach whatever is not named.
    Gc,
    /// Would ADD work?
    Status,
    /// Which versions are spoken?
    Version,
}

impl Command {
    /// Its text in `CNI_COMMAND`.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Add, Self::Del, Self::Check, Self::Gc, Self::Status, Self::Version]
            .into_iter()
            .find(|command| command.text() == text)
    }
}

/// Names an attachment among all of a runtime.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttachmentId {
    /// The container (the sandbox of a Pod).
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The link's name inside.
    pub ifname: String,
}

/// The environment of a plugin; empty means not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Env {
    /// `CNI_COMMAND`.
    pub command: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// `CNI_PATH`.
    pub path: String,
}

impl Env {
    /// The variables, in the order of the specification.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, &str); 6] {
        [
            ("CNI_COMMAND", &self.command),
            ("CNI_CONTAINERID", &self.container_id),
            ("CNI_NETNS", &self.netns),
            ("CNI_IFNAME", &self.ifname),
            ("CNI_ARGS", &self.args),
            ("CNI_PATH", &self.path),
        ]
    }

    /// The environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let var = |name| std::env::var(name).unwrap_or_default();
        Self {
            command: var("CNI_COMMAND"),
            container_id: var("CNI_CONTAINERID"),
            netns: var("CNI_NETNS"),
            ifname: var("CNI_IFNAME"),
            args: var("CNI_ARGS"),
            path: var("CNI_PATH"),
        }
    }

    /// The command, with what it needs present and well formed.
    ///
    /// # Errors
    /// [`Code::InvalidEnvironment`].
    pub fn command(&self) -> Result<Command, CniError> {
        let bad = |msg: String| CniError::new(Code::InvalidEnvironment, msg);
        let command = Command::parse(&self.command)
            .ok_or_else(|| bad(format!("unknown CNI_COMMAND: {:?}", self.command)))?;
        let needed: &[&str] = match command {
            Command::Add | Command::Check => &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
            Command::Del => &["CNI_CONTAINERID", "CNI_IFNAME"],
            Command::Gc | Command::Status | Command::Version => &[],
        };
        let missing: Vec<&str> = self
            .variables()
            .into_iter()
            .filter(|(name, value)| needed.contains(name) && value.is_empty())
            .map(|(name, _)| name)
            .collect();
        if !missing.is_empty() {
            return Err(bad(format!("required env variables [{}] missing", missing.join(","))));
        }
        if needed.contains(&"CNI_CONTAINERID") && !valid_name(&self.container_id) {
            return Err(bad(format!("invalid characters in containerID: {:?}", self.container_id)));
        }
        if needed.contains(&"CNI_IFNAME") && !valid_ifname(&self.ifname) {
            return Err(bad(format!("invalid interface name: {:?}", self.ifname)));
        }
        Ok(command)
    }
}

/// True for names of networks and containers: a letter or digit, then also `_`, `.` and `-`.
#[must_use]
pub fn valid_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn valid_ifname(name: &str) -> bool {
    let odd = |c: char| c == '/' || c == ':' || c.is_whitespace();
    !name.is_empty() && name.len() <= 15 && name != "." && name != ".." && !name.contains(odd)
}

/// The pairs of `CNI_ARGS` (`K=V;K=V`); a part without `=` is left out.
#[must_use]
pub fn parse_args(args: &str) -> Vec<(String, String)> {
    args.split(';')
        .filter_map(|pair| pair.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}

/// The keys of the attachments to keep: the specification's, and the one that it had once.
const ATTACHMENTS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// A request to a plugin, read and checked.
#[derive(Debug, Clone)]
pub struct Request {
    /// The environment as it came.
    pub env: Env,
    /// The network's name.
    pub network: String,
    /// The version to answer in.
    pub version: Version,
    /// The whole configuration.
    pub config: Value,
    /// The result so far.
    pub prev_result: Option<CniResult>,
    /// The process goes on after the answer, so that slow work may follow it.
    pub in_daemon: bool,
}

impl Request {
    /// Reads the configuration for `env`.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`], [`Code::IncompatibleVersion`], [`Code::Decoding`].
    pub fn new(env: &Env, config: Value) -> Result<Self, CniError> {
        let network = config.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if network.is_empty() {
            return Err(CniError::new(Code::InvalidConfig, "missing network name"));
        }
        if !valid_name(&network) {
            return Err(CniError::new(Code::InvalidConfig, "invalid characters found in network name")
                .details(network));
        }
        let version = Version::choose(config.get("cniVersion").and_then(Value::as_str), &[])?;
        let prev_result = match config.get("prevResult") {
            None | Some(Value::Null) => None,
            Some(value) => Some(CniResult::from_json(value)?),
        };
        Ok(Self { env: env.clone(), network, version, config, prev_result, in_daemon: false })
    }

    /// The attachment that is asked about.
    #[must_use]
    pub fn attachment(&self) -> AttachmentId {
        AttachmentId { container_id: self.env.container_id.clone(), ifname: self.env.ifname.clone() }
    }

    /// The attachments to keep (GC).
    ///
    /// # Errors
    /// [`Code::InvalidConfig`] if there is no such list: an empty one means "none", a missing one means nothing.
    pub fn valid_attachments(&self) -> Result<Vec<AttachmentId>, CniError> {
        let value = ATTACHMENTS
            .iter()
            .find_map(|key| self.config.get(*key))
            .ok_or_else(|| CniError::new(Code::InvalidConfig, "GC without cni.dev/valid-attachments"))?;
        if value.is_null() {
            return Ok(Vec::new());
        }
        Vec::deserialize(value).map_err(|e| {
            CniError::new(Code::InvalidConfig, "cni.dev/valid-attachments is no list").because(e)
        })
    }

    /// True if there is a list of attachments to keep, if only an empty one.
    #[must_use]
    pub fn names_attachments(&self) -> bool {
        ATTACHMENTS.iter().any(|key| self.config.get(*key).is_some())
    }

    /// The configuration in a plugin's own type.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`].
    pub fn config<T: for<'de> Deserialize<'de>>(&self) -> Result<T, CniError> {
        T::deserialize(&self.config)
            .map_err(|e| CniError::new(Code::InvalidConfig, "the configuration cannot be read").because(e))
    }

    /// The name servers that the configuration gives, if it gives any: they go before the IPAM's.
    #[must_use]
    pub fn dns(&self) -> Option<Dns> {
        let dns = Dns::deserialize(self.config.get("dns")?).ok()?;
        (dns != Dns::default()).then_some(dns)
    }

    /// The value of a pair of `CNI_ARGS`.
    #[must_use]
    pub fn arg(&self, key: &str) -> Option<String> {
        parse_args(&self.env.args).into_iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The folders of `CNI_PATH`.
    #[must_use]
    pub fn path(&self) -> Vec<PathBuf> {
        std::env::split_paths(&self.env.path).filter(|dir| !dir.as_os_str().is_empty()).collect()
    }

    /// The result so far, which a chained plugin and CHECK need.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`] without one.
    pub fn need_prev_result(&self) -> Result<&CniResult, CniError> {
        self.prev_result.as_ref().ok_or_else(|| CniError::new(Code::InvalidConfig, "missing prevResult"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_checked_like_the_reference_does() {
        let env = |command: &str, id: &str, netns: &str, ifname: &str| Env {
            command: command.to_owned(),
            container_id: id.to_owned(),
            netns: netns.to_owned(),
            ifname: ifname.to_owned(),
            ..Env::default()
        };
        let rows = [
            (env("ADD", "c", "/n", "eth0"), None),
            (env("DEL", "c", "", "eth0"), None),
            (env("GC", "", "", ""), None),
            (env("STATUS", "", "", ""), None),
            (env("VERSION", "", "", ""), None),
            (env("", "c", "/n", "eth0"), Some("unknown CNI_COMMAND")),
            (env("add", "c", "/n", "eth0"), Some("unknown CNI_COMMAND")),
            (env("ADD", "", "", "eth0"), Some("required env variables [CNI_CONTAINERID,CNI_NETNS] missing")),
            (env("CHECK", "c", "", "eth0"), Some("[CNI_NETNS] missing")),
            (env("ADD", "../c", "/n", "eth0"), Some("containerID")),
            (env("ADD", "c", "/n", "."), Some("interface name")),
            (env("ADD", "c", "/n", "0123456789abcdef"), Some("interface name")),
            (env("DEL", "c", "/n", "a b"), Some("interface name")),
        ];
        for (env, expected) in rows {
            match (env.command(), expected) {
                (Ok(_), None) => {}
                (Err(e), Some(part)) => {
                    assert_eq!(e.code, Code::InvalidEnvironment);
                    assert!(e.msg.contains(part), "{}", e.msg);
                }
                (result, _) => panic!("{env:?}: {result:?}"),
            }
        }
    }

    #[test]
    fn both_keys_of_valid_attachments_are_read_and_missing_is_not_empty() {
        let request = |extra: &str| {
            let text = format!(r#"{{"name":"n","cniVersion":"1.1.0"{extra}}}"#);
            Request::new(&Env::default(), serde_json::from_str(&text).unwrap()).unwrap()
        };
        assert!(request("").valid_attachments().is_err());
        assert_eq!(request(r#","cni.dev/attachments":[]"#).valid_attachments().unwrap(), Vec::new());
        let one = request(r#","cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}]"#);
        let id = AttachmentId { container_id: "c".to_owned(), ifname: "eth0".to_owned() };
        assert_eq!(one.valid_attachments().unwrap(), vec![id]);
    }
}

//! Errors of the contract.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Version;

/// The codes of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// 1: the version is not supported.
    IncompatibleVersion,
    /// 2: a field is not supported.
    UnsupportedField,
    /// 3: the container is unknown; DEL is not needed.
    UnknownContainer,
    /// 4: an environment variable is missing or wrong.
    InvalidEnvironment,
    /// 5: input or output failed.
    Io,
    /// 6: the request is not JSON.
    Decoding,
    /// 7: the configuration is wrong.
    InvalidConfig,
    /// 8: the namespace is wrong.
    InvalidNetns,
    /// 11: it may work later.
    TryAgainLater,
    /// 50: the plugin cannot serve ADD.
    NotAvailable,
    /// 51: neither that, nor is what is attached fully connected.
    LimitedConnectivity,
    /// 999: everything else; 100 and above belong to the plugins, and this one is the reference's choice.
    Internal,
    /// A plugin's own.
    Other(u32),
}

/// Codes and numbers, in one table.
const CODES: [(Code, u32); 12] = [
    (Code::IncompatibleVersion, 1),
    (Code::UnsupportedField, 2),
    (Code::UnknownContainer, 3),
    (Code::InvalidEnvironment, 4),
    (Code::Io, 5),
    (Code::Decoding, 6),
    (Code::InvalidConfig, 7),
    (Code::InvalidNetns, 8),
    (Code::TryAgainLater, 11),
    (Code::NotAvailable, 50),
    (Code::LimitedConnectivity, 51),
    (Code::Internal, 999),
];

impl Code {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        if let Self::Other(number) = self {
            return number;
        }
        CODES.iter().find(|(code, _)| *code == self).map_or(999, |(_, number)| *number)
    }

    /// The code of a number.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        CODES.iter().find(|(_, n)| *n == number).map_or(Self::Other(number), |(code, _)| *code)
    }
}

/// Why an operation failed: the contract's code and words, and where it happened.
#[derive(Debug)]
pub struct CniError {
    /// The contract's code.
    pub code: Code,
    /// What is wrong, in one line.
    pub msg: String,
    /// More about it; may be empty.
    pub details: String,
    /// The operation (`ADD`), once known.
    pub call: Option<&'static str>,
    /// The network, once known.
    pub network: Option<Box<str>>,
    /// The plugin's type, once known.
    pub plugin: Option<Box<str>>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The form on the wire.
#[derive(Serialize, Deserialize)]
struct Wire {
    code: u32,
    #[serde(default)]
    msg: String,
    #[serde(default)]
    details: String,
}

impl CniError {
    /// An error without a place yet.
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: String::new(),
            call: None,
            network: None,
            plugin: None,
            source: None,
        }
    }

    /// The same with its cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same under another code.
    #[must_use]
    pub fn with_code(mut self, code: Code) -> Self {
        self.code = code;
        self
    }

    /// The same with details.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// The same in the network `network`, unless it has one.
    #[must_use]
    pub fn in_network(mut self, call: &'static str, network: &str) -> Self {
        self.call.get_or_insert(call);
        self.network.get_or_insert_with(|| network.into());
        self
    }

    /// The same by the plugin `plugin`, unless it has one.
    #[must_use]
    pub fn by_plugin(mut self, plugin: &str) -> Self {
        self.plugin.get_or_insert_with(|| plugin.into());
        self
    }

    /// One error of all; none is success. The first gives the code.
    ///
    /// # Errors
    /// The only error, or one that lists all.
    pub fn all(errors: Vec<Self>) -> Result<(), Self> {
        let texts: Vec<String> = errors.iter().map(Self::chain).collect();
        let count = errors.len();
        let Some(mut first) = errors.into_iter().next() else { return Ok(()) };
        if count > 1 {
            first.msg = format!("{count} errors");
            first.details = texts.join("; ");
            first.plugin = None;
            first.source = None;
        }
        Err(first)
    }

    /// Its words and those of its causes, in one line.
    #[must_use]
    pub fn chain(&self) -> String {
        self.causes(self.to_string())
    }

    fn causes(&self, mut text: String) -> String {
        let mut source = self.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }

    /// The JSON that a plugin prints.
    #[must_use]
    pub fn to_json(&self, version: Version) -> Value {
        let msg = self.causes(self.msg.clone());
        json!({
            "cniVersion": version.text(), "code": self.code.number(), "msg": msg, "details": self.details,
        })
    }

    /// The error in what a plugin printed; none if it is no error.
    #[must_use]
    pub fn from_json(value: &Value) -> Option<Self> {
        let wire = Wire::deserialize(value).ok()?;
        Some(Self::new(Code::from_number(wire.code), wire.msg).details(wire.details))
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cni")?;
        if let Some(call) = self.call {
            write!(f, " {call}")?;
        }
        if let Some(network) = &self.network {
            write!(f, ": network {network:?}")?;
        }
        if let Some(plugin) = &self.plugin {
            let sep = if self.network.is_some() { "," } else { ":" };
            write!(f, "{sep} plugin {plugin:?}")?;
        }
        write!(f, ": {}", self.msg)?;
        if self.details.is_empty() { Ok(()) } else { write!(f, " ({})", self.details) }
    }
}

impl Error for CniError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_numbers_are_one_to_one() {
        for (code, number) in CODES {
            assert_eq!(code.number(), number);
            assert_eq!(Code::from_number(number), code);
        }
        assert_eq!(Code::from_number(137), Code::Other(137));
        assert_eq!(Code::Other(137).number(), 137);
    }

    #[test]
    fn an_error_tells_its_place_and_never_repeats_its_cause() {
        let error = CniError::new(Code::Io, "cannot read the store")
            .because(std::io::Error::other("disk on fire"))
            .by_plugin("host-local")
            .in_network("ADD", "trine")
            .by_plugin("routed");
        assert_eq!(
            error.to_string(),
            "cni ADD: network \"trine\", plugin \"host-local\": cannot read the store"
        );
        let wire = error.to_json(Version::V1_0_0);
        assert_eq!(
            wire,
            json!({"cniVersion": "1.0.0", "code": 5, "msg": "cannot read the store: disk on fire", "details": ""})
        );
        let back = CniError::from_json(&wire).unwrap();
        assert_eq!((back.code, back.msg.as_str()), (Code::Io, "cannot read the store: disk on fire"));
        assert!(CniError::from_json(&json!({"ips": []})).is_none());
    }

    #[test]
    fn several_errors_become_one_that_lists_all() {
        assert!(CniError::all(Vec::new()).is_ok());
        let errors = ["a", "b"]
            .map(|p| CniError::new(Code::TryAgainLater, "busy").by_plugin(p).in_network("DEL", "n"))
            .into();
        let error = CniError::all(errors).unwrap_err();
        assert_eq!(error.code, Code::TryAgainLater);
        assert_eq!(
            error.to_string(),
            "cni DEL: network \"n\": 2 errors (cni DEL: network \"n\", plugin \"a\": busy; \
             cni DEL: network \"n\", plugin \"b\": busy)"
        );
    }
}

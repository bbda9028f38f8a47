//! A network's configuration.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{CniError, Code, Version, valid_name};

/// A network: its name and its chain of plugins.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkList {
    /// Its name.
    pub name: String,
    /// The version that its plugins are spoken to in.
    pub version: Version,
    /// CHECK is not to be called.
    pub disable_check: bool,
    /// GC is not to be called: the network is shared with another runtime.
    pub disable_gc: bool,
    /// Plugins are only those in the list; otherwise the files of the folder with the network's name follow.
    pub only_inlined: bool,
    /// The chain, in the order of ADD.
    pub plugins: Vec<PluginConfig>,
    raw: Map<String, Value>,
}

/// One plugin of a chain.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginConfig {
    /// Its type: the executable's name.
    pub kind: String,
    capabilities: BTreeSet<String>,
    raw: Map<String, Value>,
}

/// What the runtime adds to a plugin's configuration.
#[derive(Debug, Default, Clone, Copy)]
pub struct RuntimeFacts<'a> {
    /// The capabilities that are on offer, with their values.
    pub capabilities: Option<&'a Map<String, Value>>,
    /// The result so far (ADD), or the final one (CHECK, DEL).
    pub prev_result: Option<&'a Value>,
}

fn invalid(msg: impl Into<String>) -> CniError {
    CniError::new(Code::InvalidConfig, msg)
}

/// A flag that some write as a text.
fn flag(raw: &Map<String, Value>, key: &str) -> Result<bool, CniError> {
    match raw.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(invalid(format!("{key} is neither true nor false but {other}"))),
    }
}

fn text<'a>(raw: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, CniError> {
    match raw.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(invalid(format!("{key} is not a text but {other}"))),
    }
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, CniError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(raw)) => Ok(raw),
        Ok(_) => Err(CniError::new(Code::Decoding, "the configuration is not a JSON object")),
        Err(e) => Err(CniError::new(Code::Decoding, "the configuration is not JSON").because(e)),
    }
}

impl PluginConfig {
    fn new(raw: Value) -> Result<Self, CniError> {
        let Value::Object(raw) = raw else { return Err(invalid("a plugin is not an object")) };
        let kind = text(&raw, "type")?.unwrap_or_default().to_owned();
        if kind.is_empty() {
            return Err(invalid("a plugin has no type"));
        }
        if kind.contains('/') {
            return Err(invalid(format!("plugin type {kind:?} holds a path")));
        }
        let capabilities = match raw.get("capabilities") {
            Some(Value::Object(map)) => {
                map.iter().filter(|(_, on)| **on == Value::Bool(true)).map(|(name, _)| name.clone()).collect()
            }
            _ => BTreeSet::new(),
        };
        Ok(Self { kind, capabilities, raw })
    }

    /// One plugin's configuration from its own file.
    ///
    /// # Errors
    /// [`Code::Decoding`], [`Code::InvalidConfig`].
    pub fn parse(bytes: &[u8]) -> Result<Self, CniError> {
        Self::new(Value::Object(object(bytes)?))
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.raw.get(key)
    }

    /// The configuration that the plugin is given on its standard input.
    #[must_use]
    pub fn request(&self, network: &NetworkList, facts: RuntimeFacts<'_>) -> Map<String, Value> {
        let mut raw = self.raw.clone();
        raw.insert("name".to_owned(), json!(network.name));
        raw.insert("cniVersion".to_owned(), json!(network.version.text()));
        let offered = facts.capabilities.into_iter().flatten();
        let wanted: Map<String, Value> = offered
            .filter(|(name, _)| self.capabilities.contains(*name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !wanted.is_empty() {
            raw.insert("runtimeConfig".to_owned(), Value::Object(wanted));
        }
        if let Some(prev_result) = facts.prev_result {
            raw.insert("prevResult".to_owned(), prev_result.clone());
        }
        raw
    }
}

impl NetworkList {
    /// A network from the text of a `.conflist`, or of a `.conf` or `.json` with a single plugin.
    ///
    /// # Errors
    /// [`Code::Decoding`], [`Code::InvalidConfig`], [`Code::IncompatibleVersion`].
    pub fn parse(bytes: &[u8]) -> Result<Self, CniError> {
        let raw = object(bytes)?;
        if raw.contains_key("type") && !raw.contains_key("plugins") {
            return Self::single(raw);
        }
        let mut list = Self::head(&raw)?;
        match raw.get("plugins") {
            Some(Value::Array(plugins)) if !plugins.is_empty() => {
                list.plugins = plugins.iter().cloned().map(PluginConfig::new).collect::<Result<_, _>>()?;
            }
            Some(Value::Array(_)) => return Err(invalid("the list of plugins is empty")),
            Some(_) => return Err(invalid("plugins is not a list")),
            None if list.only_inlined => return Err(invalid("the network has no plugins")),
            None => {}
        }
        list.raw = raw;
        Ok(list)
    }

    fn single(raw: Map<String, Value>) -> Result<Self, CniError> {
        let mut list = Self::head(&raw)?;
        list.only_inlined = true;
        let plugin = Value::Object(raw);
        list.raw = Map::from_iter([
            ("name".to_owned(), json!(list.name)),
            ("cniVersion".to_owned(), json!(list.version.text())),
            ("plugins".to_owned(), json!([plugin])),
        ]);
        list.plugins = vec![PluginConfig::new(plugin)?];
        Ok(list)
    }

    fn head(raw: &Map<String, Value>) -> Result<Self, CniError> {
        let name = text(raw, "name")?.unwrap_or_default();
        if name.is_empty() {
            return Err(invalid("the network has no name"));
        }
        if !valid_name(name) {
            return Err(invalid(format!("{name:?} cannot be a network's name")));
        }
        let many = match raw.get("cniVersions") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            Some(_) => return Err(invalid("cniVersions is not a list")),
        };
        Ok(Self {
            name: name.to_owned(),
            version: Version::choose(text(raw, "cniVersion")?, &many)?,
            disable_check: flag(raw, "disableCheck")?,
            disable_gc: flag(raw, "disableGC")?,
            only_inlined: flag(raw, "loadOnlyInlinedPlugins")?,
            plugins: Vec::new(),
            raw: Map::new(),
        })
    }

    /// True if a plugin has the capability `key`.
    #[must_use]
    pub fn takes(&self, key: &str) -> bool {
        self.plugins.iter().any(|plugin| plugin.capabilities.contains(key))
    }

    /// Gives further arguments (`args.cni`) to every plugin; they count more than those that it has.
    pub fn give_args(&mut self, more: &Map<String, Value>) {
        if more.is_empty() {
            return;
        }
        for plugin in &mut self.plugins {
            let args = plugin.raw.entry("args").or_insert_with(|| json!({}));
            if !args.is_object() {
                *args = json!({});
            }
            match args.get_mut("cni").and_then(Value::as_object_mut) {
                Some(cni) => cni.extend(more.clone()),
                None => args["cni"] = Value::Object(more.clone()),
            }
        }
    }

    /// Has `host-local` keep its addresses in the folder `dir`, unless the configuration says where: nodes on one machine
    /// do not share them.
    pub fn keep_addresses_in(&mut self, dir: &Value) {
        for plugin in &mut self.plugins {
            if let Some(ipam) = plugin.raw.get_mut("ipam").and_then(Value::as_object_mut)
                && ipam.get("type").is_some_and(|kind| kind == "host-local")
            {
                ipam.entry("dataDir").or_insert_with(|| dir.clone());
            }
        }
    }

    /// Appends the plugins of further files.
    pub fn append(&mut self, plugins: Vec<PluginConfig>) {
        self.plugins.extend(plugins);
    }

    /// The whole list as JSON, further plugins inlined, so that it can be kept and parsed again.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut raw = self.raw.clone();
        let plugins = self.plugins.iter().map(|plugin| Value::Object(plugin.raw.clone())).collect();
        raw.insert("plugins".to_owned(), Value::Array(plugins));
        raw.insert("loadOnlyInlinedPlugins".to_owned(), Value::Bool(true));
        Value::Object(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_configurations_of_every_kind_are_read() {
        let rows = [
            (r#"{"name":"n","plugins":[{"type":"a"}]}"#, Version::V0_1_0, 1),
            (r#"{"cniVersion":"0.3.1","name":"n","type":"a"}"#, Version::V0_3_1, 1),
            (
                r#"{"cniVersion":"1.0.0","cniVersions":["1.1.0","2.0.0"],"name":"n","plugins":[{"type":"a"},{"type":"b"}]}"#,
                Version::V1_1_0,
                2,
            ),
            (r#"{"cniVersion":"1.1.0","name":"n"}"#, Version::V1_1_0, 0),
        ];
        for (text, version, plugins) in rows {
            let list = NetworkList::parse(text.as_bytes()).unwrap();
            assert_eq!((list.version, list.plugins.len()), (version, plugins), "{text}");
            let again = NetworkList::parse(list.to_json().to_string().as_bytes());
            assert_eq!(again.is_ok(), plugins > 0, "what is kept can be read again: {text}");
        }
    }

    #[test]
    fn broken_configurations_are_refused_with_the_reason() {
        let rows = [
            ("", Code::Decoding, "not JSON"),
            ("[]", Code::Decoding, "not a JSON object"),
            (r#"{"plugins":[{"type":"a"}]}"#, Code::InvalidConfig, "no name"),
            (
                r#"{"name":"../x","plugins":[{"type":"a"}]}"#,
                Code::InvalidConfig,
                "cannot be a network's name",
            ),
            (r#"{"name":"n","plugins":[]}"#, Code::InvalidConfig, "empty"),
            (r#"{"name":"n","plugins":[{}]}"#, Code::InvalidConfig, "no type"),
            (r#"{"name":"n","plugins":[{"type":"../a"}]}"#, Code::InvalidConfig, "holds a path"),
            (
                r#"{"name":"n","cniVersion":"7.0.0","plugins":[{"type":"a"}]}"#,
                Code::IncompatibleVersion,
                "7.0.0",
            ),
            (r#"{"name":"n","loadOnlyInlinedPlugins":true}"#, Code::InvalidConfig, "no plugins"),
            (
                r#"{"name":"n","disableGC":"perhaps","plugins":[{"type":"a"}]}"#,
                Code::InvalidConfig,
                "disableGC",
            ),
        ];
        for (text, code, part) in rows {
            let error = NetworkList::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.code, code, "{text}");
            assert!(error.msg.contains(part), "{text}: {}", error.msg);
        }
    }

    #[test]
    fn flags_may_be_texts() {
        for (value, expected) in [("true", true), ("\"True\"", true), ("\"false\"", false), ("null", false)] {
            let text = format!(r#"{{"name":"n","disableCheck":{value},"plugins":[{{"type":"a"}}]}}"#);
            assert_eq!(NetworkList::parse(text.as_bytes()).unwrap().disable_check, expected, "{value}");
        }
    }

    #[test]
    fn further_arguments_reach_every_plugin_and_count_more() {
        let text = r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a"},
            {"type":"b","args":{"cni":{"k":"old","stays":1},"other":2}}]}"#;
        let mut list = NetworkList::parse(text.as_bytes()).unwrap();
        list.give_args(json!({"k": "new"}).as_object().unwrap());
        assert_eq!(list.plugins[0].get("args"), Some(&json!({"cni": {"k": "new"}})));
        assert_eq!(list.plugins[1].get("args"), Some(&json!({"cni": {"k": "new", "stays": 1}, "other": 2})));
        assert_eq!(list.to_json()["plugins"][0]["args"]["cni"]["k"], "new", "and are kept for DEL");
    }

    #[test]
    fn addresses_are_kept_where_the_configuration_says_or_else_with_the_node() {
        let text = r#"{"name":"n","plugins":[{"type":"a","ipam":{"type":"host-local"}},
            {"type":"b","ipam":{"type":"host-local","dataDir":"/own"}},{"type":"c","ipam":{"type":"dhcp"}},{"type":"d"}]}"#;
        let mut list = NetworkList::parse(text.as_bytes()).unwrap();
        list.keep_addresses_in(&json!("/node"));
        let dirs: Vec<_> =
            list.plugins.iter().map(|p| p.get("ipam").and_then(|i| i.get("dataDir"))).collect();
        assert_eq!(dirs, [Some(&json!("/node")), Some(&json!("/own")), None, None]);
    }

    #[test]
    fn a_plugin_gets_its_capabilities_and_the_previous_result_and_keeps_its_own_keys() {
        let text = r#"{"cniVersion":"1.0.0","name":"n","plugins":[
            {"type":"a","own":{"deep":1},"capabilities":{"portMappings":true,"bandwidth":false}}]}"#;
        let list = NetworkList::parse(text.as_bytes()).unwrap();
        let offered = json!({"portMappings": [1], "bandwidth": {}, "dns": {}});
        let prev = json!({"ips": []});
        let facts = RuntimeFacts { capabilities: offered.as_object(), prev_result: Some(&prev) };
        assert_eq!(
            Value::Object(list.plugins[0].request(&list, facts)),
            json!({"type": "a", "own": {"deep": 1}, "capabilities": {"portMappings": true, "bandwidth": false},
                "name": "n", "cniVersion": "1.0.0", "runtimeConfig": {"portMappings": [1]},
                "prevResult": {"ips": []}})
        );
    }
}

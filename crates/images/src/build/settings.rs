//! The settings of an image that is made from a folder, as JSON. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::spec::{BuildSpec, Look};

/// An image's `config` section in OCI's words, with owners and modes beside it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
struct Settings {
    env: Vec<String>,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    user: String,
    working_dir: String,
    stop_signal: String,
    exposed_ports: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
    volumes: BTreeMap<String, serde_json::Map<String, serde_json::Value>>,
    labels: BTreeMap<String, String>,
    paths: BTreeMap<String, Look>,
}

/// `spec` with the settings in `text`; the error says what is wrong with them.
pub(super) fn read(text: &str, spec: BuildSpec) -> Result<BuildSpec, String> {
    let settings: Settings =
        serde_json::from_str(text).map_err(|e| format!("its settings are not valid: {e}"))?;
    if let Some(odd) = settings.env.iter().find(|line| !line.contains('=')) {
        return Err(format!("its settings are not valid: Env has {odd:?}, which is no KEY=value"));
    }
    Ok(BuildSpec {
        env: settings.env,
        entrypoint: settings.entrypoint,
        cmd: settings.cmd,
        user: settings.user,
        working_dir: settings.working_dir,
        stop_signal: settings.stop_signal,
        exposed_ports: settings.exposed_ports.into_keys().collect(),
        volumes: settings.volumes.into_keys().collect(),
        labels: settings.labels,
        looks: settings.paths,
        ..spec
    })
}

/// Permission bits as octal text.
pub(super) fn octal<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u32>, D::Error> {
    let Some(text) = Option::<String>::deserialize(input)? else { return Ok(None) };
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.map(Some).ok_or_else(|| {
        serde::de::Error::custom(format!("mode {text:?} is no octal number of at most four digits"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_in_ocis_words() {
        let text = r#"{"Env": ["A=b"], "Entrypoint": ["/app"], "Cmd": ["run"], "User": "1000", "WorkingDir": "/w",
            "ExposedPorts": {"80/tcp": {}}, "Labels": {"a": "b"}, "Paths": {"/app": {"uid": 7, "mode": "4755"}}}"#;
        let spec = read(text, BuildSpec::default()).unwrap();
        assert_eq!(spec.entrypoint, ["/app"]);
        assert_eq!(spec.exposed_ports, ["80/tcp"]);
        assert_eq!(spec.looks["/app"], Look { uid: Some(7), gid: None, mode: Some(0o4755) });
    }

    #[test]
    fn what_is_mistyped_is_refused_by_name() {
        for (text, said) in [
            (r#"{"EntryPoint": []}"#, "EntryPoint"),
            (r#"{"Env": ["A"]}"#, "KEY=value"),
            (r#"{"Paths": {"/a": {"mode": "9"}}}"#, "octal"),
            (r#"{"Paths": {"/a": {"mode": "17777"}}}"#, "octal"),
            (r#"{"Paths": {"/a": {"owner": 1}}}"#, "owner"),
            ("[", "not valid"),
        ] {
            let error = read(text, BuildSpec::default()).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}

//! ConfigMaps and Secrets.

use super::columns::{age, name};
use super::fields::{child, default, entries, is_unset, set, take, text};
use super::hooks::metadata_fields;
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use trine_objects::names;

/// The most bytes of all values together.
const MAX_BYTES: usize = 1024 * 1024;

/// The hooks of ConfigMaps.
pub struct ConfigMaps;

impl Hooks for ConfigMaps {
    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let mut total = 0;
        for (key, value) in entries(obj, "data") {
            causes.name(&format!("data[{key}]"), key, names::config_key);
            if !obj["binaryData"][key].is_null() {
                causes.add(Cause::invalid(
                    format!("data[{key}]"),
                    key.as_str(),
                    "duplicate of key present in binaryData",
                ));
            }
            total += value.as_str().unwrap_or_default().len();
        }
        for (key, value) in entries(obj, "binaryData") {
            causes.name(&format!("binaryData[{key}]"), key, names::config_key);
            total += value.as_str().unwrap_or_default().len() / 4 * 3;
        }
        if total > MAX_BYTES {
            causes.add(Cause::too_long("", MAX_BYTES));
        }
        frozen(obj, old, &["data", "binaryData"], &mut causes);
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Data"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let count = entries(obj, "data").count() + entries(obj, "binaryData").count();
        vec![name(obj), count.to_string().into(), age(obj, now_unix)]
    }
}

/// What was made immutable stays so, with its content.
fn frozen(obj: &Value, old: Option<&Value>, fields: &[&str], causes: &mut Causes) {
    let Some(old) = old.filter(|o| o["immutable"] == true) else { return };
    if obj["immutable"] != true {
        causes.add(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for field in fields {
        if obj[*field] != old[*field] {
            causes.add(Cause::forbidden(*field, "field is immutable when `immutable` is set"));
        }
    }
}

/// The hooks of Secrets.
pub struct Secrets;

impl Hooks for Secrets {
    fn defaults(&self, obj: &mut Value) {
        default(obj, "type", "Opaque");
        // Plain text is for writing only: it is stored and shown as data.
        let plain = take(obj, "stringData");
        if let Value::Object(plain) = plain {
            let data = child(obj, "data");
            for (key, value) in plain {
                set(data, &key, STANDARD.encode(value.as_str().unwrap_or_default()));
            }
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _cx: &mut Cx) -> Result<(), Invalid> {
        // A client that does not name the type does not change it.
        if new["type"] == "Opaque" && is_unset(&old["type"]) {
            take(new, "type");
        }
        Ok(())
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let mut total = 0;
        for (key, value) in entries(obj, "data") {
            causes.name(&format!("data[{key}]"), key, names::config_key);
            total += STANDARD.decode(value.as_str().unwrap_or_default()).map_or(0, |v| v.len());
        }
        if total > MAX_BYTES {
            causes.add(Cause::too_long("data", MAX_BYTES));
        }
        let kind = text(obj, "type");
        for key in needed_keys(kind, obj) {
            if obj["data"][key].is_null() {
                causes.add(Cause::required(format!("data[{key}]"), ""));
            }
        }
        if kind == "kubernetes.io/service-account-token" {
            let account = "kubernetes.io/service-account.name";
            if is_unset(&obj["metadata"]["annotations"][account]) {
                causes.add(Cause::required(format!("metadata.annotations[{account}]"), ""));
            }
        }
        if old.is_some_and(|old| !is_unset(&old["type"]) && old["type"] != obj["type"]) {
            causes.add(Cause::invalid("type", kind, "field is immutable"));
        }
        frozen(obj, old, &["data"], &mut causes);
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::text("Type"), Column::text("Data"), Column::AGE] }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let count = entries(obj, "data").count();
        vec![name(obj), text(obj, "type").into(), count.to_string().into(), age(obj, now_unix)]
    }

    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        let mut fields = metadata_fields(obj);
        fields.push(("type".to_owned(), text(obj, "type").to_owned()));
        fields
    }
}

fn needed_keys(kind: &str, obj: &Value) -> &'static [&'static str] {
    match kind {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/basic-auth"
            if obj["data"]["username"].is_null() && obj["data"]["password"].is_null() =>
        {
            &["username", "password"]
        }
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(hooks: &dyn Hooks, obj: &Value, old: Option<&Value>) -> Vec<String> {
        hooks.validate(obj, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn plain_text_of_a_secret_becomes_data() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"a": "y", "b": "z"}});
        Secrets.defaults(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"a": "eQ==", "b": "eg=="}}));
    }

    #[test]
    fn keys_sizes_and_types_are_checked() {
        assert!(
            messages(&ConfigMaps, &json!({"data": {"a/b": "x"}}), None)[0]
                .starts_with("data[a/b]: Invalid value")
        );
        let twice = json!({"data": {"a": "x"}, "binaryData": {"a": "eA=="}});
        assert!(messages(&ConfigMaps, &twice, None)[0].contains("duplicate of key"));
        let large = json!({"data": {"a": "x".repeat(MAX_BYTES + 1)}});
        assert!(messages(&ConfigMaps, &large, None)[0].contains("Too long"));
        assert_eq!(
            messages(&Secrets, &json!({"type": "kubernetes.io/tls"}), None),
            ["data[tls.crt]: Required value", "data[tls.key]: Required value"]
        );
        let changed = messages(&Secrets, &json!({"type": "a"}), Some(&json!({"type": "b"})));
        assert_eq!(changed, ["type: Invalid value: \"a\": field is immutable"]);
    }

    #[test]
    fn what_is_immutable_stays() {
        let old = json!({"immutable": true, "data": {"a": "1"}});
        let new = json!({"data": {"a": "2"}});
        for hooks in [&ConfigMaps as &dyn Hooks, &Secrets] {
            let found = messages(hooks, &new, Some(&old));
            assert_eq!(found.len(), 2, "{found:?}");
            assert!(messages(hooks, &old, Some(&old)).is_empty());
        }
    }
}

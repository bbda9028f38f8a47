//! `MutatingWebhookConfiguration` and `ValidatingWebhookConfiguration`.

use std::collections::HashSet;

use serde_json::Value;

use super::matching;
use crate::kinds::columns::{age, name};
use crate::kinds::fields::{default, items, items_mut, text};
use crate::kinds::{Cause, Causes, Column, Hooks};
use trine_cel::Known;
use trine_objects::names;

/// The versions of reviews that are spoken.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const TIMEOUT_SECONDS: i64 = 10;

/// The hooks of MutatingWebhookConfigurations.
pub struct Mutating;

/// The hooks of ValidatingWebhookConfigurations.
pub struct Validating;

impl Hooks for Mutating {
    fn defaults(&self, obj: &mut Value) {
        defaults(obj);
        for hook in items_mut(obj, "webhooks") {
            default(hook, "reinvocationPolicy", "Never");
        }
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = check(obj, old);
        for (i, hook) in items(obj, "webhooks").iter().enumerate() {
            causes.one_of(hook, "reinvocationPolicy", &format!("webhooks[{i}]"), &["IfNeeded", "Never"]);
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        row(obj, now_unix)
    }
}

impl Hooks for Validating {
    fn defaults(&self, obj: &mut Value) {
        defaults(obj);
    }

    fn validate(&self, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
        check(obj, old).0
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        row(obj, now_unix)
    }
}

const COLUMNS: &[Column] = &[Column::NAME, Column::integer("Webhooks"), Column::AGE];

fn row(obj: &Value, now_unix: i64) -> Vec<Value> {
    vec![name(obj), items(obj, "webhooks").len().into(), age(obj, now_unix)]
}

fn defaults(obj: &mut Value) {
    for hook in items_mut(obj, "webhooks") {
        default(hook, "failurePolicy", "Fail");
        default(hook, "timeoutSeconds", TIMEOUT_SECONDS);
        matching::defaults(hook);
        matching::rule_defaults(hook, "rules");
        if let Some(service) = hook.get_mut("clientConfig").and_then(|c| c.get_mut("service")) {
            default(service, "port", 443);
        }
    }
}

fn check(obj: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let mut seen = HashSet::new();
    // What was stored before a check was there stays valid.
    let unchanged = |at: usize, key: &str, hook: &Value| {
        old.is_some_and(|old| !hook[key].is_null() && old["webhooks"][at][key] == hook[key])
    };
    for (i, hook) in items(obj, "webhooks").iter().enumerate() {
        let path = format!("webhooks[{i}]");
        let own = text(hook, "name");
        full_name(own, &format!("{path}.name"), &mut causes);
        for (i, rule) in items(hook, "rules").iter().enumerate() {
            matching::rule(rule, &format!("{path}.rules[{i}]"), &mut causes);
        }
        causes.one_of(hook, "failurePolicy", &path, &["Fail", "Ignore"]);
        matching::check(hook, &path, &mut causes);
        let field = format!("{path}.sideEffects");
        match text(hook, "sideEffects") {
            "None" | "NoneOnDryRun" => {}
            "" => causes.add(Cause::required(field, "must specify one of None, NoneOnDryRun")),
            other => causes.add(Cause::not_supported(field, other, &["None", "NoneOnDryRun"])),
        }
        if let Some(seconds) = hook["timeoutSeconds"].as_i64().filter(|s| !(1..=30).contains(s)) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            causes.add(Cause::invalid(format!("{path}.timeoutSeconds"), seconds, detail));
        }
        checked_config(&hook["clientConfig"], &format!("{path}.clientConfig"), &mut causes);
        if !unchanged(i, "matchConditions", hook) {
            let known = Known { authorizer: true, ..Known::default() };
            let path = format!("{path}.matchConditions");
            matching::conditions(items(hook, "matchConditions"), &path, &known, &mut causes);
        }
        let field = format!("{path}.admissionReviewVersions");
        causes.extend(review_versions(&hook["admissionReviewVersions"], &field));
        if !own.is_empty() && !seen.insert(own) {
            causes.add(Cause::duplicate(format!("{path}.name"), own));
        }
    }
    causes
}

/// A domain of three parts at least.
fn full_name(name: &str, field: &str, causes: &mut Causes) {
    causes.needed_name(field, name, names::dns1123_subdomain);
    if !name.is_empty() && name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        causes.add(Cause::invalid(field, name, detail));
    }
}

/// What is wrong with where a webhook is.
pub fn client_config(config: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Causes::default();
    checked_config(config, path, &mut causes);
    causes.0
}

fn checked_config(config: &Value, path: &str, causes: &mut Causes) {
    let (url, service) = (&config["url"], &config["service"]);
    if url.is_string() == service.is_object() {
        return causes.add(Cause::required(path, "exactly one of url or service is required"));
    }
    if let Some(url) = url.as_str() {
        let field = format!("{path}.url");
        return wrong_urls(url)
            .into_iter()
            .for_each(|why| causes.add(Cause::invalid(field.as_str(), url, &why)));
    }
    for (key, detail) in
        [("name", "service name is required"), ("namespace", "service namespace is required")]
    {
        if text(service, key).is_empty() {
            causes.add(Cause::required(format!("{path}.service.{key}"), detail));
        }
    }
    if let Some(port) = service["port"].as_i64().filter(|p| !(1..=65535).contains(p)) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        causes.add(Cause::invalid(format!("{path}.service.port"), port, detail));
    }
    let wanted = text(service, "path");
    if !wanted.is_empty() && !wanted.starts_with('/') {
        let detail = "must start with a '/'";
        causes.add(Cause::invalid(format!("{path}.service.path"), wanted, detail));
    } else if wanted.len() > 1 && wanted[1..].trim_end_matches('/').contains("//") {
        let detail = "segment may not be empty";
        causes.add(Cause::invalid(format!("{path}.service.path"), wanted, detail));
    }
}

/// What is wrong with a URL.
fn wrong_urls(url: &str) -> Vec<String> {
    let form = "; desired format: https://host[/path]";
    let Some((scheme, rest)) = url.split_once("://") else {
        return vec![format!("'https' is the only allowed URL scheme{form}")];
    };
    let mut wrong = Vec::new();
    if scheme != "https" {
        wrong.push(format!("'https' is the only allowed URL scheme{form}"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        wrong.push(format!("host must be specified{form}"));
    } else if let Err(error) = url.parse::<http::Uri>() {
        wrong.push(format!("url must be a valid URL: {error}{form}"));
    }
    if authority.contains('@') {
        wrong.push(format!("user information is not permitted in the URL{form}"));
    }
    if rest.contains('#') {
        wrong.push(format!("fragments are not permitted in the URL{form}"));
    }
    if rest.split('#').next().is_some_and(|r| r.contains('?')) {
        wrong.push(format!("query parameters are not permitted in the URL{form}"));
    }
    wrong
}

/// What is wrong with the versions of reviews that a webhook understands.
pub fn review_versions(list: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Causes::default();
    let versions = list.as_array().map_or(&[][..], Vec::as_slice);
    if versions.is_empty() {
        return vec![Cause::required(path, "must specify one of v1, v1beta1")];
    }
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let (field, version) = (format!("{path}[{i}]"), version.as_str().unwrap_or_default());
        if seen.insert(version) {
            causes.name(&field, version, names::dns1035_label);
        } else {
            causes.add(Cause::invalid(field, version, "duplicate version"));
        }
    }
    if !seen.iter().any(|v| VERSIONS.contains(v)) {
        causes.add(Cause::invalid(path, versions.to_vec(), "must include at least one of v1, v1beta1"));
    }
    causes.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn configuration() -> Value {
        let mut configuration = json!({"metadata": {"name": "c"}, "webhooks": [{"name": "a.b.c", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "s", "namespace": "n"}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}]});
        Mutating.defaults(&mut configuration);
        configuration
    }

    #[test]
    fn what_is_left_open_has_upstreams_defaults() {
        let hook = configuration()["webhooks"][0].clone();
        for (key, wanted) in [
            ("failurePolicy", json!("Fail")),
            ("matchPolicy", json!("Equivalent")),
            ("namespaceSelector", json!({})),
            ("objectSelector", json!({})),
            ("timeoutSeconds", json!(10)),
            ("reinvocationPolicy", json!("Never")),
        ] {
            assert_eq!(hook[key], wanted, "{key}");
        }
        assert_eq!(hook["rules"][0]["scope"], "*");
        assert_eq!(hook["clientConfig"]["service"]["port"], 443);
        assert_eq!(Mutating.validate(&configuration(), None), []);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_field() {
        for (pointer, value, wanted) in [
            (
                "/name",
                json!("a.b"),
                "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three",
            ),
            ("/sideEffects", json!("Some"), "webhooks[0].sideEffects: Unsupported value: \"Some\""),
            ("/timeoutSeconds", json!(31), "webhooks[0].timeoutSeconds: Invalid value: 31"),
            ("/admissionReviewVersions", json!(["v2"]), "must include at least one of v1, v1beta1"),
            ("/admissionReviewVersions", json!([]), "webhooks[0].admissionReviewVersions: Required value"),
            (
                "/clientConfig",
                json!({}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service",
            ),
            ("/clientConfig", json!({"url": "http://x"}), "'https' is the only allowed URL scheme"),
            ("/clientConfig", json!({"url": "https://u@x/?q#f"}), "user information is not permitted"),
            (
                "/rules/0/resources",
                json!(["*/*", "pods"]),
                "if '*/*' is present, must not specify other resources",
            ),
            (
                "/rules/0/resources",
                json!(["pods/*", "pods/status"]),
                "if 'pods/*' is present, must not specify pods/status",
            ),
            (
                "/rules/0/operations",
                json!(["*", "CREATE"]),
                "if '*' is present, must not specify other operations",
            ),
            (
                "/rules/0/operations",
                json!(["LOOK"]),
                "webhooks[0].rules[0].operations[0]: Unsupported value: \"LOOK\"",
            ),
            (
                "/matchConditions",
                json!([{"name": "x", "expression": "... [] bad expression"}]),
                "compilation failed",
            ),
            (
                "/matchConditions",
                json!([{"name": "", "expression": "true"}]),
                "webhooks[0].matchConditions[0].name: Required",
            ),
            (
                "/reinvocationPolicy",
                json!("Often"),
                "webhooks[0].reinvocationPolicy: Unsupported value: \"Often\"",
            ),
        ] {
            let mut wrong = configuration();
            wrong["webhooks"][0]["matchConditions"] = json!([]);
            *wrong.pointer_mut(&format!("/webhooks/0{pointer}")).unwrap() = value;
            let causes: Vec<String> =
                Mutating.validate(&wrong, None).iter().map(ToString::to_string).collect();
            assert!(causes.iter().any(|c| c.contains(wanted)), "{wanted}: {causes:?}");
        }
    }
}

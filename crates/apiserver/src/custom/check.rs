//! What is wrong with a definition.

use std::collections::HashSet;

use serde_json::Value;
use trine_objects::jsonpath::JsonPath;
use trine_objects::names;

use super::structure;
use crate::kinds::{Cause, client_config, name_causes, review_versions};
use crate::registry::text;

/// Everything wrong with a definition, and with its change if there is an old one.
#[must_use]
pub fn check(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &object["spec"];
    let mut causes = Vec::new();
    let group = text(&spec["group"]);
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else {
        causes.extend(name_causes("spec.group", group, names::dns1123_subdomain(group)));
        if !group.contains('.') {
            causes.push(Cause::invalid("spec.group", group, "should be a domain with at least one dot"));
        }
    }
    if !["Cluster", "Namespaced"].contains(&text(&spec["scope"])) {
        causes.push(match text(&spec["scope"]) {
            "" => Cause::required("spec.scope", ""),
            other => Cause::not_supported("spec.scope", other, &["Cluster", "Namespaced"]),
        });
    }
    causes.extend(kind_names(&spec["names"]));
    let (name, plural) = (text(&object["metadata"]["name"]), text(&spec["names"]["plural"]));
    if name != format!("{plural}.{group}") {
        causes.push(Cause::invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group"));
    }
    if protected(group) && text(&object["metadata"]["annotations"]["api-approved.kubernetes.io"]).is_empty() {
        let detail = "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
        causes.push(Cause::required("metadata.annotations[api-approved.kubernetes.io]", detail));
    }
    causes.extend(versions(spec));
    causes.extend(conversion(&spec["conversion"]));
    if let Some(old) = old {
        causes.extend(unchanged(spec, old));
        causes.extend(stored(object));
    }
    causes
}

/// Groups of Kubernetes itself.
fn protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|own| group == *own || group.ends_with(&format!(".{own}")))
}

fn kind_names(given: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["plural", "singular", "kind", "listKind"] {
        let (path, value) = (format!("spec.names.{field}"), text(&given[field]));
        match (field, value) {
            ("plural" | "kind" | "listKind", "") => causes.push(Cause::required(path, "")),
            (_, "") => {}
            ("plural" | "singular", value) => {
                causes.extend(name_causes(&path, value, names::dns1035_label(value)))
            }
            (_, value) => {
                let lower = value.to_lowercase();
                causes.extend(name_causes(&path, value, names::dns1035_label(&lower)));
            }
        }
    }
    for field in ["shortNames", "categories"] {
        for (i, name) in given[field].as_array().into_iter().flatten().enumerate() {
            let path = format!("spec.names.{field}[{i}]");
            causes.extend(name_causes(&path, text(name), names::dns1035_label(text(name))));
        }
    }
    if !text(&given["kind"]).is_empty() && given["kind"] == given["listKind"] {
        let detail = "kind and listKind may not be the same";
        causes.push(Cause::invalid("spec.names.listKind", given["listKind"].clone(), detail));
    }
    causes
}

fn versions(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.is_empty() {
        causes.push(Cause::required("spec.versions", ""));
    }
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{i}]");
        let name = text(&version["name"]);
        causes.extend(name_causes(&format!("{path}.name"), name, names::dns1035_label(name)));
        if !seen.insert(name) {
            causes.push(Cause::invalid("spec.versions", name, "must contain unique version names"));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let at = format!("{path}.schema.openAPIV3Schema");
        if schema.is_object() {
            causes.extend(structure::wrong(schema, &at));
        } else {
            causes.push(Cause::required(at, "schemas are required"));
        }
        for (j, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
            causes.extend(printer_column(column, &format!("{path}.additionalPrinterColumns[{j}]")));
        }
        causes.extend(selectable(version, &path));
        causes.extend(scale(&version["subresources"]["scale"], &format!("{path}.subresources.scale")));
    }
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", "", detail));
    }
    causes
}

fn printer_column(column: &Value, path: &str) -> Vec<Cause> {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    let mut causes = Vec::new();
    if text(&column["name"]).is_empty() {
        causes.push(Cause::required(format!("{path}.name"), ""));
    }
    match text(&column["type"]) {
        "" => causes.push(Cause::required(
            format!("{path}.type"),
            "must be one of boolean,date,integer,number,string",
        )),
        other if !TYPES.contains(&other) => {
            causes.push(Cause::not_supported(format!("{path}.type"), other, &TYPES));
        }
        _ => {}
    }
    causes.extend(json_path(&column["jsonPath"], &format!("{path}.jsonPath")));
    causes
}

fn json_path(given: &Value, path: &str) -> Option<Cause> {
    match text(given) {
        "" => Some(Cause::required(path, "")),
        given => JsonPath::parse(given).err().map(|e| Cause::invalid(path, given, &e.to_string())),
    }
}

fn selectable(version: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let fields = version["selectableFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    if fields.len() > 8 {
        causes.push(Cause::invalid(
            format!("{path}.selectableFields"),
            fields.len(),
            "must have at most 8 items",
        ));
    }
    for (i, field) in fields.iter().enumerate() {
        let path = format!("{path}.selectableFields[{i}].jsonPath");
        let given = text(&field["jsonPath"]);
        let Ok(parsed) = JsonPath::parse(given) else {
            causes.extend(json_path(&field["jsonPath"], &path));
            continue;
        };
        let mut at = &version["schema"]["openAPIV3Schema"];
        for name in parsed.fields().unwrap_or_default() {
            at = &at["properties"][name];
        }
        let plain = ["string", "boolean", "integer"].contains(&text(&at["type"]));
        if given.starts_with(".metadata") || given.is_empty() || !plain {
            let detail = "must point to a field of the schema that is a string, boolean or integer, and not in metadata";
            causes.push(Cause::invalid(path, given, detail));
        }
    }
    causes
}

fn scale(scale: &Value, path: &str) -> Vec<Cause> {
    if !scale.is_object() {
        return Vec::new();
    }
    let mut causes = Vec::new();
    for (field, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        match text(&scale[field]) {
            "" => causes.push(Cause::required(format!("{path}.{field}"), "")),
            given if !given.starts_with(root) => {
                let detail = format!("should be a json path under {}", root.trim_end_matches('.'));
                causes.push(Cause::invalid(format!("{path}.{field}"), given, &detail));
            }
            _ => {}
        }
    }
    causes
}

fn conversion(conversion: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match text(&conversion["strategy"]) {
        "None" => {
            if conversion["webhook"].is_object() {
                let detail = "should not be set when strategy is not set to Webhook";
                causes.push(Cause::forbidden("spec.conversion.webhook", detail));
            }
        }
        "Webhook" => {
            let webhook = &conversion["webhook"];
            if !webhook["clientConfig"].is_object() {
                let detail = "required when strategy is set to Webhook";
                causes.push(Cause::required("spec.conversion.webhook.clientConfig", detail));
            } else {
                causes
                    .extend(client_config(&webhook["clientConfig"], "spec.conversion.webhook.clientConfig"));
            }
            let field = "spec.conversion.webhook.conversionReviewVersions";
            causes.extend(review_versions(&webhook["conversionReviewVersions"], field));
        }
        other => causes.push(Cause::not_supported("spec.conversion.strategy", other, &["None", "Webhook"])),
    }
    causes
}

/// What of a definition is for good once its names are accepted.
fn unchanged(spec: &Value, old: &Value) -> Vec<Cause> {
    let established = trine_objects::conditions::is_true(old, "Established");
    let mut causes = Vec::new();
    let mut compare = |path: &str, new: &Value, old: &Value| {
        if new != old {
            causes.push(Cause::invalid(path, new.clone(), "field is immutable"));
        }
    };
    compare("spec.group", &spec["group"], &old["spec"]["group"]);
    compare("spec.names.plural", &spec["names"]["plural"], &old["spec"]["names"]["plural"]);
    if established {
        compare("spec.scope", &spec["scope"], &old["spec"]["scope"]);
        compare("spec.names.kind", &spec["names"]["kind"], &old["spec"]["names"]["kind"]);
    }
    causes
}

/// Objects may still be stored in a version that is to go.
fn stored(object: &Value) -> Vec<Cause> {
    let versions = object["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut causes = Vec::new();
    for (i, stored) in object["status"]["storedVersions"].as_array().into_iter().flatten().enumerate() {
        if !versions.iter().any(|v| &v["name"] == stored) {
            let detail = "missing from spec.versions; if this version was previously supported, it must stay in spec.versions until all objects are migrated";
            causes.push(Cause::invalid(format!("status.storedVersions[{i}]"), stored.clone(), detail));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn good() -> Value {
        json!({"metadata": {"name": "crons.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
            "names": {"plural": "crons", "singular": "cron", "kind": "Cron", "listKind": "CronList"},
            "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [{"name": "C", "type": "string", "jsonPath": ".spec.color"}],
                "subresources": {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                    "properties": {"color": {"type": "string"}, "n": {"type": "integer"}}}}}}}]}})
    }

    #[test]
    fn a_definition_is_judged_field_by_field() {
        assert_eq!(check(&good(), None), []);
        for (pointer, value, wanted) in [
            ("/metadata/name", json!("x"), "metadata.name"),
            ("/spec/group", json!("x"), "spec.group"),
            ("/spec/scope", json!("World"), "spec.scope"),
            ("/spec/names/kind", json!(""), "spec.names.kind"),
            ("/spec/versions/0/storage", json!(false), "spec.versions"),
            ("/spec/versions/0/schema", json!({}), "spec.versions[0].schema.openAPIV3Schema"),
            (
                "/spec/versions/0/additionalPrinterColumns/0/type",
                json!("text"),
                "spec.versions[0].additionalPrinterColumns[0].type",
            ),
            (
                "/spec/versions/0/selectableFields/0/jsonPath",
                json!(".spec.none"),
                "spec.versions[0].selectableFields[0].jsonPath",
            ),
            (
                "/spec/versions/0/subresources/scale/specReplicasPath",
                json!(".x"),
                "spec.versions[0].subresources.scale.specReplicasPath",
            ),
            ("/spec/conversion/strategy", json!("Magic"), "spec.conversion.strategy"),
        ] {
            let mut bad = good();
            *bad.pointer_mut(pointer).unwrap() = value;
            let fields: Vec<String> = check(&bad, None).into_iter().map(|c| c.field).collect();
            assert!(fields.iter().any(|f| f == wanted), "{pointer}: {fields:?}");
        }
    }

    #[test]
    fn a_version_in_which_objects_are_stored_stays() {
        let mut changed = good();
        changed["status"] = json!({"storedVersions": ["v1beta1", "v1"]});
        let causes = check(&changed, Some(&good()));
        assert_eq!(causes.iter().map(|c| c.field.as_str()).collect::<Vec<_>>(), ["status.storedVersions[0]"]);
    }
}

//! A definition, read for what it serves.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};
use trine_objects::conditions;
use trine_objects::jsonpath::JsonPath;
use trine_objects::resources::{self, Resource, Subresource};
use trine_objects::schema::Structural;

use super::Converter;
use super::columns::PrinterColumn;
use super::rules::Rules;
use crate::registry::text;

/// A definition.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Its API group.
    pub group: String,
    /// Its name, `PLURAL.GROUP`.
    pub name: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Its versions, in the order in which they are listed.
    pub versions: Vec<Arc<Version>>,
    /// How objects of one version become objects of another.
    pub conversion: Conversion,
    names: Names,
}

/// How objects of one version become objects of another.
#[derive(Debug, Clone)]
pub enum Conversion {
    /// `apiVersion` alone changes.
    None,
    /// A webhook converts.
    Webhook(Arc<Converter>),
}

/// The names of a kind, as accepted.
#[derive(Debug, Clone, Default)]
struct Names {
    kind: String,
    list_kind: String,
    plural: String,
    singular: String,
    short: Vec<String>,
    categories: Vec<String>,
}

/// What is particular to one version of a custom kind.
#[derive(Debug)]
pub struct Version {
    /// `v1alpha1`.
    pub name: String,
    /// Whether it is served.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// What clients of a deprecated version are warned with.
    pub deprecated: Option<String>,
    /// Its schema.
    pub schema: Structural,
    /// The schema as published.
    pub published: Value,
    /// Whether `status` is a subresource.
    pub has_status: bool,
    /// Where `scale` finds what it shows.
    pub scale: Option<Scale>,
    /// Whether objects that are stored already may lack what the schema gives.
    pub has_defaults: bool,
    /// Its CEL rules.
    pub rules: Rules,
    pub(super) columns: Vec<PrinterColumn>,
    /// What field selectors may name besides the object's name and namespace: `spec.color` and its path.
    pub selectable: Vec<(String, JsonPath)>,
    /// The kind's name, group and version together, which messages and rules want.
    pub kind: String,
    /// `GROUP/VERSION`.
    pub api_version: String,
    /// The kind of its lists.
    pub list_kind: String,
    /// Whether the definition is being deleted, so that nothing new may be made.
    pub terminating: bool,
    /// Changes with what is published of it.
    pub digest: [u8; 32],
}

/// The paths of `subresources.scale`.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// `specReplicasPath`.
    pub spec_replicas: String,
    /// `statusReplicasPath`.
    pub status_replicas: String,
    /// `labelSelectorPath`.
    pub selector: Option<String>,
}

impl Definition {
    /// Reads a definition. What is malformed is left out: validation has refused it, or the server that stored it knew more.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let spec = &object["spec"];
        let group = text(&spec["group"]).to_owned();
        // What was accepted counts; before anything was, what is asked for.
        let accepted = &object["status"]["acceptedNames"];
        let names = Names::read(if text(&accepted["plural"]).is_empty() { &spec["names"] } else { accepted });
        let versions = spec["versions"].as_array().into_iter().flatten();
        let terminating = is_terminating(object);
        let versions = versions.map(|v| Arc::new(Version::read(v, &group, &names, terminating))).collect();
        let conversion = match text(&spec["conversion"]["strategy"]) {
            "Webhook" => Conversion::Webhook(Arc::new(Converter::read(&spec["conversion"]["webhook"]))),
            _ => Conversion::None,
        };
        let name = text(&object["metadata"]["name"]).to_owned();
        Self { group, name, namespaced: spec["scope"] == "Namespaced", versions, conversion, names }
    }

    /// The version in which objects are stored.
    #[must_use]
    pub fn storage(&self) -> Option<&Arc<Version>> {
        self.versions.iter().find(|v| v.storage)
    }

    /// The names and verbs under which a version is served.
    #[must_use]
    pub fn resource(&self, version: &Version) -> Resource {
        let own = |name: &str, group: &str, of: &str, kind: &str| Subresource {
            name: name.to_owned().into(),
            group: group.to_owned().into(),
            version: of.to_owned().into(),
            kind: kind.to_owned().into(),
            verbs: resources::PART,
        };
        let mut subresources = Vec::new();
        if version.scale.is_some() {
            subresources.push(own("scale", "autoscaling", "v1", "Scale"));
        }
        if version.has_status {
            subresources.push(own("status", &self.group, &version.name, &self.names.kind));
        }
        let owned = |names: &[String]| names.iter().map(|n| n.clone().into()).collect();
        Resource {
            group: self.group.clone().into(),
            version: version.name.clone().into(),
            kind: self.names.kind.clone().into(),
            plural: self.names.plural.clone().into(),
            singular: self.names.singular.clone().into(),
            short_names: owned(&self.names.short),
            namespaced: self.namespaced,
            categories: owned(&self.names.categories),
            verbs: resources::ALL,
            subresources,
        }
    }
}

impl Names {
    fn read(names: &Value) -> Self {
        let kind = text(&names["kind"]).to_owned();
        let texts = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().map(|n| text(n).to_owned()).collect()
        };
        let or = |given: &Value, default: String| match text(given) {
            "" => default,
            given => given.to_owned(),
        };
        Self {
            list_kind: or(&names["listKind"], format!("{kind}List")),
            plural: text(&names["plural"]).to_owned(),
            singular: or(&names["singular"], kind.to_lowercase()),
            short: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            kind,
        }
    }
}

impl Version {
    fn read(version: &Value, group: &str, names: &Names, terminating: bool) -> Self {
        let kind = &names.kind;
        let name = text(&version["name"]).to_owned();
        let published = version["schema"]["openAPIV3Schema"].clone();
        let scale = &version["subresources"]["scale"];
        let given = |v: &Value| Some(text(v).to_owned()).filter(|t| !t.is_empty());
        let deprecated = (version["deprecated"] == true).then(|| {
            let default = format!("{group}/{name} {kind} is deprecated");
            given(&version["deprecationWarning"]).unwrap_or(default)
        });
        let selectable = version["selectableFields"].as_array().into_iter().flatten();
        let selectable = selectable.filter_map(|field| {
            let path = text(&field["jsonPath"]);
            Some((path.trim_start_matches('.').to_owned(), JsonPath::parse(path).ok()?))
        });
        Self {
            served: version["served"] == true,
            storage: version["storage"] == true,
            deprecated,
            schema: Structural::root(&published),
            rules: Rules::compile(&published),
            has_defaults: mentions(&published, "default"),
            published,
            has_status: version["subresources"]["status"].is_object(),
            scale: scale.is_object().then(|| Scale {
                spec_replicas: text(&scale["specReplicasPath"]).to_owned(),
                status_replicas: text(&scale["statusReplicasPath"]).to_owned(),
                selector: given(&scale["labelSelectorPath"]),
            }),
            columns: PrinterColumn::read_all(&version["additionalPrinterColumns"]),
            selectable: selectable.collect(),
            kind: kind.clone(),
            api_version: format!("{group}/{name}"),
            list_kind: names.list_kind.clone(),
            terminating,
            digest: Sha256::digest(format!("{} {version}", names.list_kind)).into(),
            name,
        }
    }
}

/// Whether a definition is being deleted.
pub(super) fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null() || conditions::is_true(object, "Terminating")
}

/// Whether a keyword stands anywhere in a schema.
pub(super) fn mentions(schema: &Value, keyword: &str) -> bool {
    match schema {
        Value::Object(map) => map.contains_key(keyword) || map.values().any(|v| mentions(v, keyword)),
        Value::Array(list) => list.iter().any(|v| mentions(v, keyword)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_definition_is_read_with_its_defaults() {
        let definition =
            Definition::read(&json!({"metadata": {"name": "crons.x.io"}, "spec": {"group": "x.io",
            "scope": "Namespaced", "names": {"plural": "crons", "kind": "Cron", "shortNames": ["cr"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                    "schema": {"openAPIV3Schema": {"type": "object"}}},
                {"name": "v1alpha1", "served": false, "storage": false, "deprecated": true}]}}));
        assert!(definition.namespaced && matches!(definition.conversion, Conversion::None));
        let v1 = definition.storage().unwrap();
        assert_eq!((v1.list_kind.as_str(), v1.terminating), ("CronList", false));
        assert_eq!(v1.selectable[0].0, "spec.color");
        let resource = definition.resource(v1);
        assert_eq!((&*resource.singular, &*resource.short_names[0]), ("cron", "cr"));
        assert_eq!(resource.subresources.len(), 1);
        let old = &definition.versions[1];
        assert_eq!(old.deprecated.as_deref(), Some("x.io/v1alpha1 Cron is deprecated"));
    }
}

//! Roles and bindings.

use super::columns::{age, name};
use super::fields::{default, is_unset, items, items_mut, text};
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::Value;
use trine_objects::names::{self, Checked};

/// The group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// A name that can stand in a path: roles may have colons.
fn path_segment(name: &str) -> Checked {
    let reason = match name {
        "." | ".." => format!("may not be '{name}'"),
        _ if name.contains('/') => "may not contain '/'".to_owned(),
        _ if name.contains('%') => "may not contain '%'".to_owned(),
        _ => return Ok(()),
    };
    Err(vec![reason])
}

/// The hooks of Roles (`namespaced`) and ClusterRoles.
pub struct Roles {
    /// Whether they are within a namespace.
    pub namespaced: bool,
}

impl Hooks for Roles {
    fn name(&self, name: &str) -> Checked {
        path_segment(name)
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        for (i, rule) in items(obj, "rules").iter().enumerate() {
            self.rule(rule, &format!("rules[{i}]"), &mut causes);
        }
        let sum = &obj["aggregationRule"];
        if !sum.is_null() && items(sum, "clusterRoleSelectors").is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            causes.add(Cause::required("aggregationRule.clusterRoleSelectors", detail));
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column { format: "date-time", ..Column::text("Created At") }] }
    }

    fn row(&self, obj: &Value, _now_unix: i64) -> Vec<Value> {
        vec![name(obj), obj["metadata"]["creationTimestamp"].clone()]
    }
}

impl Roles {
    fn rule(&self, rule: &Value, field: &str, causes: &mut Causes) {
        let none = |key: &str| items(rule, key).is_empty();
        if none("verbs") {
            causes.add(Cause::required(format!("{field}.verbs"), "verbs must contain at least one value"));
        }
        if !none("nonResourceURLs") {
            let (field, urls) = (format!("{field}.nonResourceURLs"), rule["nonResourceURLs"].clone());
            if self.namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                causes.add(Cause::invalid(field.clone(), urls.clone(), detail));
            }
            if !(none("apiGroups") && none("resources") && none("resourceNames")) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                causes.add(Cause::invalid(field, urls, detail));
            }
            return;
        }
        for (key, detail) in [
            ("apiGroups", "resource rules must supply at least one api group"),
            ("resources", "resource rules must supply at least one resource"),
        ] {
            if none(key) {
                causes.add(Cause::required(format!("{field}.{key}"), detail));
            }
        }
    }
}

/// The hooks of RoleBindings (`namespaced`) and ClusterRoleBindings.
pub struct Bindings {
    /// Whether they are within a namespace.
    pub namespaced: bool,
}

impl Hooks for Bindings {
    fn name(&self, name: &str) -> Checked {
        path_segment(name)
    }

    fn defaults(&self, obj: &mut Value) {
        if obj["roleRef"].is_object() {
            default(&mut obj["roleRef"], "apiGroup", GROUP);
        }
        for subject in items_mut(obj, "subjects") {
            if matches!(text(subject, "kind"), "User" | "Group") {
                default(subject, "apiGroup", GROUP);
            }
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, _cx: &mut Cx) -> Result<(), Invalid> {
        if new["roleRef"] == old["roleRef"] {
            return Ok(());
        }
        Err(Cause::invalid("roleRef", new["roleRef"].clone(), "cannot change roleRef").into())
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Causes::default();
        let role = &obj["roleRef"];
        if text(role, "apiGroup") != GROUP {
            causes.add(Cause::not_supported("roleRef.apiGroup", text(role, "apiGroup"), &[GROUP]));
        }
        let kinds: &[&str] = if self.namespaced { &["ClusterRole", "Role"] } else { &["ClusterRole"] };
        if !kinds.contains(&text(role, "kind")) {
            causes.add(Cause::not_supported("roleRef.kind", text(role, "kind"), kinds));
        }
        causes.needed_name("roleRef.name", text(role, "name"), path_segment);
        for (i, subject) in items(obj, "subjects").iter().enumerate() {
            self.subject(subject, &format!("subjects[{i}]"), &mut causes);
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Role"),
                Column::AGE,
                Column::text("Users").wide(),
                Column::text("Groups").wide(),
                Column::text("ServiceAccounts").wide(),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let of = |kind: &str| {
            let bound = items(obj, "subjects").iter().filter(|s| text(s, "kind") == kind);
            let shown: Vec<String> = bound
                .map(|s| match text(s, "namespace") {
                    "" => text(s, "name").to_owned(),
                    namespace => format!("{namespace}/{}", text(s, "name")),
                })
                .collect();
            Value::from(shown.join(", "))
        };
        let role = format!("{}/{}", text(&obj["roleRef"], "kind"), text(&obj["roleRef"], "name"));
        vec![name(obj), role.into(), age(obj, now_unix), of("User"), of("Group"), of("ServiceAccount")]
    }
}

impl Bindings {
    fn subject(&self, subject: &Value, field: &str, causes: &mut Causes) {
        let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
        if name.is_empty() {
            causes.add(Cause::required(format!("{field}.name"), ""));
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    causes.name(&format!("{field}.name"), name, names::dns1123_subdomain);
                }
                if !group.is_empty() {
                    causes.add(Cause::not_supported(format!("{field}.apiGroup"), group, &[""]));
                }
                if !self.namespaced && is_unset(&subject["namespace"]) {
                    causes.add(Cause::required(format!("{field}.namespace"), ""));
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    causes.add(Cause::not_supported(format!("{field}.apiGroup"), group, &[GROUP]));
                }
            }
            other => {
                let known = ["Group", "ServiceAccount", "User"];
                causes.add(Cause::not_supported(format!("{field}.kind"), other, &known));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(causes: &[Cause]) -> Vec<&str> {
        causes.iter().map(|c| c.field.as_str()).collect()
    }

    #[test]
    fn rules_say_on_what_they_are() {
        let rows = [
            (json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}), true, vec![]),
            (json!({"verbs": [], "apiGroups": [""], "resources": ["pods"]}), true, vec!["rules[0].verbs"]),
            (json!({"verbs": ["get"]}), true, vec!["rules[0].apiGroups", "rules[0].resources"]),
            (json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}), true, vec!["rules[0].nonResourceURLs"]),
            (json!({"verbs": ["get"], "nonResourceURLs": ["/x"]}), false, vec![]),
            (
                json!({"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}),
                false,
                vec!["rules[0].nonResourceURLs"],
            ),
        ];
        for (rule, namespaced, wanted) in rows {
            let causes = Roles { namespaced }.validate(&json!({"rules": [rule]}), None);
            assert_eq!(fields(&causes), wanted, "{rule}");
        }
    }

    #[test]
    fn bindings_name_a_role_and_who_has_it() {
        let cluster = Bindings { namespaced: false };
        let mut binding = json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "a", "namespace": "n"}]});
        cluster.defaults(&mut binding);
        assert_eq!(cluster.validate(&binding, None), []);
        assert_eq!(cluster.row(&binding, 0)[5], "n/a");
        binding["roleRef"]["kind"] = "Role".into();
        binding["subjects"][1]["namespace"] = "".into();
        binding["subjects"][0]["kind"] = "Robot".into();
        let wanted = ["roleRef.kind", "subjects[0].kind", "subjects[1].namespace"];
        assert_eq!(fields(&cluster.validate(&binding, None)), wanted);
        assert!(cluster.name("system:x").is_ok() && cluster.name("a/b").is_err());
    }
}

//! One rule of a role: what it allows, and whether rules allow all that other rules allow.

use serde_json::{Value, json};

use crate::access::attributes::{Attributes, Subject};

/// Stands for anything.
const ALL: &str = "*";

/// A rule. Either about resources (groups, resources, names) or about paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Verbs.
    pub verbs: Vec<String>,
    /// API groups.
    pub groups: Vec<String>,
    /// `pods`, `pods/log`, `*/scale`, `*`.
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    pub names: Vec<String>,
    /// Paths outside of objects; `*` at the end stands for any rest.
    pub paths: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|v| v == ALL || v == wanted)
}

fn covers_path(list: &[String], path: &str) -> bool {
    let fits = |rule: &String| {
        rule == ALL || rule == path || rule.strip_suffix(ALL).is_some_and(|start| path.starts_with(start))
    };
    list.iter().any(fits)
}

fn covers_resource(list: &[String], resource: &str) -> bool {
    let sub = resource.split_once('/').map(|(_, sub)| sub);
    let fits = |rule: &String| {
        rule == ALL || rule == resource || sub.is_some_and(|sub| rule.strip_prefix("*/") == Some(sub))
    };
    list.iter().any(fits)
}

impl Rule {
    /// Reads a `PolicyRule`.
    #[must_use]
    pub fn read(value: &Value) -> Self {
        let list = |key: &str| {
            let items = value[key].as_array().into_iter().flatten();
            items.filter_map(|v| v.as_str().map(str::to_owned)).collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    /// The rules of a role.
    #[must_use]
    pub fn of_role(role: &Value) -> Vec<Self> {
        role["rules"].as_array().into_iter().flatten().map(Self::read).collect()
    }

    /// The rule as a `PolicyRule`.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut rule = json!({"verbs": self.verbs});
        let lists = [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.paths),
        ];
        for (key, list) in lists {
            if !list.is_empty() {
                rule[key] = json!(list);
            }
        }
        rule
    }

    /// Whether the rule allows it.
    #[must_use]
    pub fn allows(&self, wanted: &Attributes) -> bool {
        if !has(&self.verbs, &wanted.verb) {
            return false;
        }
        match &wanted.subject {
            Subject::Path(path) => covers_path(&self.paths, path),
            Subject::Resource(r) => {
                has(&self.groups, &r.group)
                    && (self.names.is_empty() || !r.name.is_empty() && self.names.contains(&r.name))
                    && (r.subresource.is_empty() && has(&self.resources, &r.resource)
                        || !r.subresource.is_empty() && covers_resource(&self.resources, &r.combined()))
            }
        }
    }

    /// The rule as rules of one verb, group, resource, name or path each.
    fn parts(&self) -> Vec<Self> {
        let one = |v: &String| vec![v.clone()];
        let mut parts = Vec::new();
        for verb in &self.verbs {
            let verbs = one(verb);
            for path in &self.paths {
                parts.push(Self { verbs: verbs.clone(), paths: one(path), ..Self::default() });
            }
            for group in &self.groups {
                for resource in &self.resources {
                    let part = Self {
                        verbs: verbs.clone(),
                        groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    for name in &self.names {
                        parts.push(Self { names: one(name), ..part.clone() });
                    }
                }
            }
        }
        parts
    }

    /// Whether one rule allows all that a part of another allows.
    fn covers(&self, part: &Self) -> bool {
        let every = |mine: &[String], theirs: &[String]| theirs.iter().all(|v| has(mine, v));
        every(&self.verbs, &part.verbs)
            && every(&self.groups, &part.groups)
            && part.resources.iter().all(|r| covers_resource(&self.resources, r))
            && part.paths.iter().all(|p| covers_path(&self.paths, p))
            && (self.names.is_empty()
                || !part.names.is_empty() && part.names.iter().all(|n| self.names.contains(n)))
    }

    /// The same but for the verbs.
    fn like(&self, other: &Self) -> bool {
        self.groups == other.groups
            && self.resources == other.resources
            && self.names == other.names
            && self.paths == other.paths
    }
}

/// What `wanted` allows and `held` does not, verbs put together.
#[must_use]
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let mut missing: Vec<Rule> = Vec::new();
    for part in wanted.iter().flat_map(Rule::parts) {
        if held.iter().any(|rule| rule.covers(&part)) {
            continue;
        }
        match missing.iter_mut().find(|m| m.like(&part)) {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => missing.push(part),
        }
    }
    missing
}

/// As refusals show it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lists = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = lists
            .iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted(list)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// `["a" "b"]`.
#[must_use]
pub fn quoted(list: &[String]) -> String {
    let items: Vec<String> = list.iter().map(|v| format!("{v:?}")).collect();
    format!("[{}]", items.join(" "))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn rule(text: &str) -> Rule {
        crate::access::rbac::defaults::rule(text)
    }

    #[test]
    fn rules_allow_what_they_name() {
        let rows = [
            ("get - pods", Attributes::of("get", "", "pods", "d", "a"), true),
            ("get - pods", Attributes::of("list", "", "pods", "d", ""), false),
            ("get - pods", Attributes::of("get", "apps", "pods", "d", ""), false),
            ("get - pods", Attributes::of("get", "", "pods/log", "d", "a"), false),
            ("get - pods/log", Attributes::of("get", "", "pods/log", "d", "a"), true),
            ("get * */scale", Attributes::of("get", "apps", "deployments/scale", "d", "a"), true),
            ("get * */scale", Attributes::of("get", "apps", "deployments", "d", "a"), false),
            ("* * *", Attributes::of("anything", "x", "y/z", "d", "a"), true),
            ("get - secrets a,b", Attributes::of("get", "", "secrets", "d", "b"), true),
            ("get - secrets a,b", Attributes::of("get", "", "secrets", "d", "c"), false),
            ("list - secrets a", Attributes::of("list", "", "secrets", "d", ""), false),
            ("get / /healthz/*", Attributes::read(&Method::GET, "/healthz/x", ""), true),
            ("get / /healthz", Attributes::read(&Method::GET, "/healthz/x", ""), false),
            ("* * *", Attributes::read(&Method::GET, "/metrics", ""), false),
        ];
        for (text, wanted, allowed) in rows {
            assert_eq!(rule(text).allows(&wanted), allowed, "{text}: {wanted:?}");
        }
    }

    #[test]
    fn what_rules_do_not_cover_is_named() {
        let rows: [(&[&str], &str, &[&str]); 9] = [
            (&["* * *"], "get,list - pods", &[]),
            (&["get - pods", "list - pods"], "get,list - pods", &[]),
            (&["get - pods"], "get,list,watch - pods", &["list,watch - pods"]),
            (&["get - pods a"], "get - pods", &["get - pods"]),
            (&["get - pods"], "get - pods a", &[]),
            (&["get - */log"], "get - pods/log", &[]),
            (&["get - pods"], "get - *", &["get - *"]),
            (&["get / /healthz*"], "get / /healthz/x", &[]),
            (&[], "get / /metrics", &["get / /metrics"]),
        ];
        for (held, wanted, left) in rows {
            let held: Vec<Rule> = held.iter().map(|t| rule(t)).collect();
            let left: Vec<Rule> = left.iter().map(|t| rule(t)).collect();
            assert_eq!(missing(&held, &[rule(wanted)]), left, "{held:?} {wanted}");
        }
    }

    #[test]
    fn a_rule_reads_in_refusals_as_upstreams() {
        let shown = rule("get,list - secrets a").to_string();
        let wanted = r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get" "list"]}"#;
        assert_eq!(shown, wanted);
    }
}

//! Which requests somebody wants to decide about: rules and selectors, which webhooks and policies have in common.

use std::sync::Arc;

use serde_json::Value;
use trine_objects::selector::label::LabelSelector;

use super::attempt::{Attempt, Operation};
use crate::catalog::Served;
use crate::registry::{Registry, text};
use crate::status::ApiError;

/// Which requests somebody wants to decide about.
#[derive(Debug, Default)]
pub struct Matching {
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    /// Whether everything fits where there are no rules.
    open: bool,
    /// Whether another version of the same resource does not fit.
    exact: bool,
    namespace: LabelSelector,
    object: LabelSelector,
}

/// One rule: all of its lists must name what is asked for.
#[derive(Debug, Default)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    scope: Scope,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Scope {
    #[default]
    All,
    Cluster,
    Namespaced,
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|v| text(v).to_owned()).collect()
}

fn names(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    fn read(rule: &Value) -> Self {
        Self {
            operations: texts(&rule["operations"]),
            groups: texts(&rule["apiGroups"]),
            versions: texts(&rule["apiVersions"]),
            resources: texts(&rule["resources"]),
            names: texts(&rule["resourceNames"]),
            scope: match text(&rule["scope"]) {
                "Cluster" => Scope::Cluster,
                "Namespaced" => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }

    fn fits(&self, attempt: &Attempt, resource: &Served) -> bool {
        let inside = !attempt.is_of_namespaces() && !attempt.namespace.is_empty();
        let scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => !inside,
            Scope::Namespaced => inside,
        };
        let resources = |wanted: &String| {
            let (plural, part) = wanted.split_once('/').unwrap_or((wanted, ""));
            (plural == "*" || plural == resource.plural) && (part == "*" || part == attempt.subresource)
        };
        scope
            && names(&self.operations, attempt.operation.name())
            && names(&self.groups, &resource.group)
            && names(&self.versions, &resource.version)
            && self.resources.iter().any(resources)
            && (self.names.is_empty() || self.names.contains(&attempt.name))
    }
}

fn selector(selector: &Value) -> LabelSelector {
    // Validation has refused what cannot be read.
    LabelSelector::from_object(selector).unwrap_or_default()
}

impl Matching {
    /// What a webhook wants.
    #[must_use]
    pub fn of_webhook(webhook: &Value) -> Self {
        Self { rules: rules(&webhook["rules"]), ..Self::common(webhook) }
    }

    /// `matchConstraints` of a policy, `matchResources` of a binding.
    #[must_use]
    pub fn of_resources(resources: &Value) -> Self {
        let rules_of = rules(&resources["resourceRules"]);
        let excluded = rules(&resources["excludeResourceRules"]);
        Self { open: rules_of.is_empty(), rules: rules_of, excluded, ..Self::common(resources) }
    }

    fn common(value: &Value) -> Self {
        Self {
            exact: value["matchPolicy"] == "Exact",
            namespace: selector(&value["namespaceSelector"]),
            object: selector(&value["objectSelector"]),
            ..Self::default()
        }
    }

    /// The version under which this request is looked at; `None` if it is not. The objects are as they are stored.
    ///
    /// # Errors
    /// If the namespace whose labels are needed is not there.
    pub fn find(
        &self,
        registry: &Registry,
        attempt: &Attempt,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Arc<Served>>, ApiError> {
        let selects = |o: &Value| self.object.matches(&o["metadata"]["labels"]);
        if !self.object.is_empty() && !object.is_some_and(selects) && !old.is_some_and(selects) {
            return Ok(None);
        }
        let versions = versions(registry, attempt, self.exact);
        let fits = |rules: &[Rule]| {
            rules_first(rules, &versions[..1], attempt)
                .or_else(|| rules_first(rules, &versions[1..], attempt))
        };
        if fits(&self.excluded).is_some() {
            return Ok(None);
        }
        let found = if self.open { Some(Arc::clone(&attempt.resource)) } else { fits(&self.rules) };
        let Some(found) = found else { return Ok(None) };
        Ok(self.in_namespace(registry, attempt, object)?.then_some(found))
    }

    fn in_namespace(
        &self,
        registry: &Registry,
        attempt: &Attempt,
        object: Option<&Value>,
    ) -> Result<bool, ApiError> {
        if attempt.namespace.is_empty() && !attempt.is_of_namespaces() || self.namespace.is_empty() {
            return Ok(true);
        }
        let written = matches!(attempt.operation, Operation::Create | Operation::Update);
        if attempt.is_of_namespaces() && attempt.subresource.is_empty() && written {
            return Ok(object.is_some_and(|o| self.namespace.matches(&o["metadata"]["labels"])));
        }
        let Some(namespace) = attempt.namespace_object(registry) else {
            let (resource, name) = ("namespaces".to_owned(), attempt.namespace.clone());
            return Err(ApiError::NotFound { resource, name });
        };
        Ok(self.namespace.matches(&namespace["metadata"]["labels"]))
    }
}

fn rules(list: &Value) -> Vec<Rule> {
    list.as_array().into_iter().flatten().map(Rule::read).collect()
}

/// The version that was asked for, then the others under which the same objects are served.
fn versions(registry: &Registry, attempt: &Attempt, exact: bool) -> Vec<Arc<Served>> {
    let mut versions = vec![Arc::clone(&attempt.resource)];
    if !exact {
        let stored = attempt.resource.stored();
        let resources = registry.catalog().now();
        let others = resources.iter().filter(|r| **r != attempt.resource && r.stored() == stored);
        versions.extend(others.cloned());
    }
    versions
}

/// The earliest rule decides.
fn rules_first(rules: &[Rule], versions: &[Arc<Served>], attempt: &Attempt) -> Option<Arc<Served>> {
    rules.iter().find_map(|rule| versions.iter().find(|v| rule.fits(attempt, v)).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::user::User;
    use serde_json::json;

    fn attempt(group: &str, plural: &str, namespace: &str, subresource: &str) -> Attempt {
        let resource = Catalog::new().now().find(group, "v1", plural).unwrap().clone();
        Attempt {
            operation: Operation::Create,
            resource,
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: "x".to_owned(),
            options: Value::Null,
            dry_run: false,
            user: Arc::new(User::anonymous()),
            stored: true,
        }
    }

    #[test]
    fn a_rule_fits_what_all_of_its_lists_name() {
        let pods = attempt("", "pods", "d", "");
        let status = attempt("", "pods", "d", "status");
        let node = attempt("", "nodes", "", "");
        let namespace = attempt("", "namespaces", "x", "");
        let rule = |more: Value| {
            let mut rule =
                json!({"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
            more.as_object().unwrap().iter().for_each(|(k, v)| rule[k] = v.clone());
            Rule::read(&rule)
        };
        let rows: [(Value, &Attempt, bool); 15] = [
            (json!({}), &pods, true),
            (json!({}), &status, false),
            (json!({"resources": ["pods/*"]}), &status, true),
            (json!({"resources": ["pods/*"]}), &pods, true),
            (json!({"resources": ["*/status"]}), &status, true),
            (json!({"resources": ["*/*"]}), &status, true),
            (json!({"resources": ["*"]}), &status, false),
            (json!({"operations": ["UPDATE", "CREATE"]}), &pods, true),
            (json!({"operations": ["DELETE"]}), &pods, false),
            (json!({"apiGroups": ["apps"]}), &pods, false),
            (json!({"apiVersions": ["v2"]}), &pods, false),
            (json!({"resources": ["*"], "scope": "Cluster"}), &node, true),
            (json!({"resources": ["*"], "scope": "Cluster"}), &namespace, true),
            (json!({"resources": ["*"], "scope": "Namespaced"}), &namespace, false),
            (json!({"resourceNames": ["y"]}), &pods, false),
        ];
        for (more, attempt, wanted) in rows {
            assert_eq!(rule(more.clone()).fits(attempt, &attempt.resource), wanted, "{more}");
        }
    }
}

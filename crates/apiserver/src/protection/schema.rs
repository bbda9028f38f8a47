//! Which FlowSchema a request falls under. Source: apiserver `flowcontrol/rule.go`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use super::counts::Counts;
use crate::access::attributes::{Attributes, Subject};
use crate::registry::text;
use crate::user::{User, account_of};

/// A FlowSchema.
#[derive(Debug)]
pub(super) struct Schema {
    pub name: String,
    pub uid: String,
    pub level: String,
    pub precedence: i64,
    by: By,
    rules: Vec<Rule>,
    pub counts: Arc<Counts>,
}

/// What tells the flows of a schema apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Nothing,
    User,
    Namespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Who>,
    resources: Vec<OfResources>,
    paths: Vec<OfPaths>,
}

#[derive(Debug)]
enum Who {
    User(String),
    Group(String),
    Account { namespace: String, name: String },
}

#[derive(Debug)]
struct OfResources {
    verbs: Words,
    groups: Words,
    resources: Words,
    namespaces: Words,
    cluster: bool,
}

#[derive(Debug)]
struct OfPaths {
    verbs: Words,
    paths: Vec<String>,
}

/// Words of which one must be said; `None` for any.
#[derive(Debug)]
struct Words(Option<Vec<String>>);

impl Words {
    fn read(list: &Value) -> Self {
        let words = texts(list);
        Self((words != ["*"]).then_some(words))
    }

    fn has(&self, word: &str) -> bool {
        self.0.as_ref().is_none_or(|words| words.iter().any(|w| w == word))
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|v| text(v).to_owned()).collect()
}

impl Schema {
    /// Reads an object.
    pub(super) fn read(object: &Value, counts: Arc<Counts>) -> Self {
        let spec = &object["spec"];
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let rule = |rule: &Value| Rule {
            subjects: list(&rule["subjects"]).iter().filter_map(Who::read).collect(),
            resources: list(&rule["resourceRules"])
                .iter()
                .map(|r| OfResources {
                    verbs: Words::read(&r["verbs"]),
                    groups: Words::read(&r["apiGroups"]),
                    resources: Words::read(&r["resources"]),
                    namespaces: Words::read(&r["namespaces"]),
                    cluster: r["clusterScope"] == true,
                })
                .collect(),
            paths: list(&rule["nonResourceRules"])
                .iter()
                .map(|r| OfPaths { verbs: Words::read(&r["verbs"]), paths: texts(&r["nonResourceURLs"]) })
                .collect(),
        };
        Self {
            name: text(&object["metadata"]["name"]).to_owned(),
            uid: text(&object["metadata"]["uid"]).to_owned(),
            level: text(&spec["priorityLevelConfiguration"]["name"]).to_owned(),
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            by: match text(&spec["distinguisherMethod"]["type"]) {
                "ByUser" => By::User,
                "ByNamespace" => By::Namespace,
                _ => By::Nothing,
            },
            rules: list(&spec["rules"]).iter().map(rule).collect(),
            counts,
        }
    }

    /// Whether a request falls under it.
    pub(super) fn takes(&self, user: &User, wanted: &Attributes) -> bool {
        self.rules.iter().any(|rule| rule.subjects.iter().any(|s| s.is(user)) && rule.is_about(wanted))
    }

    /// The flow that a request belongs to.
    pub(super) fn flow(&self, user: &User, wanted: &Attributes) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.name.hash(&mut hasher);
        match (self.by, &wanted.subject) {
            (By::User, _) => user.name.hash(&mut hasher),
            (By::Namespace, Subject::Resource(resource)) => resource.namespace.hash(&mut hasher),
            (By::Namespace | By::Nothing, _) => {}
        }
        hasher.finish()
    }
}

impl Who {
    fn read(subject: &Value) -> Option<Self> {
        let name = |of: &str| text(&subject[of]["name"]).to_owned();
        Some(match text(&subject["kind"]) {
            "User" => Self::User(name("user")),
            "Group" => Self::Group(name("group")),
            "ServiceAccount" => Self::Account {
                namespace: text(&subject["serviceAccount"]["namespace"]).to_owned(),
                name: name("serviceAccount"),
            },
            _ => return None,
        })
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(name) => name == "*" || user.is_in(name),
            Self::Account { namespace, name } => account_of(&user.name)
                .is_some_and(|(its, own)| its == namespace && (name == "*" || name == own)),
        }
    }
}

impl Rule {
    fn is_about(&self, wanted: &Attributes) -> bool {
        match &wanted.subject {
            Subject::Path(path) => {
                self.paths.iter().any(|r| r.verbs.has(&wanted.verb) && r.paths.iter().any(|p| below(p, path)))
            }
            Subject::Resource(r) => self.resources.iter().any(|rule| {
                rule.verbs.has(&wanted.verb)
                    && (rule.resources.0.is_none() || rule.resources.has(&r.combined()))
                    && rule.groups.has(&r.group)
                    && if r.namespace.is_empty() { rule.cluster } else { rule.namespaces.has(&r.namespace) }
            }),
        }
    }
}

/// Whether a path is the rule's, or below it.
fn below(rule: &str, path: &str) -> bool {
    if rule == "*" || rule == path {
        return true;
    }
    let prefix = rule.strip_suffix('*').unwrap_or(rule);
    path.strip_prefix(prefix).is_some_and(|rest| prefix.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_defaults;
    use http::Method;

    #[test]
    fn requests_fall_under_the_first_schema_that_takes_them() {
        let mut schemas: Vec<Schema> =
            flow_defaults::schemas().iter().map(|s| Schema::read(s, Arc::default())).collect();
        schemas.sort_by_key(|s| (s.precedence, s.name.clone()));
        let node: (&str, &[&str]) = ("system:node:n1", &["system:nodes"]);
        for ((name, groups), method, path, wanted) in [
            (("admin", &["system:masters"][..]), Method::GET, "/api/v1/pods", "exempt"),
            (("jane", &[]), Method::GET, "/readyz", "probes"),
            (("jane", &[]), Method::GET, "/readyz/ping", "probes"),
            (("jane", &[]), Method::GET, "/readyzz", "global-default"),
            (node, Method::PATCH, "/api/v1/nodes/n1/status", "system-node-high"),
            (node, Method::GET, "/api/v1/pods", "system-nodes"),
            (
                ("system:kube-scheduler", &[]),
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/s",
                "system-leader-election",
            ),
            (("system:kube-scheduler", &[]), Method::GET, "/api/v1/pods", "kube-scheduler"),
            (
                ("system:serviceaccount:kube-system:gc", &["system:serviceaccounts"]),
                Method::GET,
                "/api/v1/pods",
                "kube-system-service-accounts",
            ),
            (
                ("system:serviceaccount:default:a", &["system:serviceaccounts"]),
                Method::GET,
                "/api/v1/pods",
                "service-accounts",
            ),
            (("jane", &[]), Method::GET, "/api/v1/pods", "global-default"),
        ] {
            let wish = Attributes::read(&method, path, "");
            let user = User::new(name, groups);
            let found = schemas.iter().find(|s| s.takes(&user, &wish)).map(|s| s.name.as_str());
            assert_eq!(found, Some(wanted), "{name} {path}");
        }
    }

    #[test]
    fn flows_are_told_apart_as_the_schema_says() {
        let wish = |namespace: &str| Attributes::of("get", "", "pods", namespace, "p");
        let flow = |by: &str, user: &str, namespace: &str| {
            let object =
                serde_json::json!({"metadata": {"name": "s"}, "spec": {"distinguisherMethod": {"type": by}}});
            Schema::read(&object, Arc::default()).flow(&User::new(user, &[]), &wish(namespace))
        };
        assert_ne!(flow("ByUser", "a", "x"), flow("ByUser", "b", "x"));
        assert_eq!(flow("ByUser", "a", "x"), flow("ByUser", "a", "y"));
        assert_ne!(flow("ByNamespace", "a", "x"), flow("ByNamespace", "a", "y"));
        assert_eq!(flow("", "a", "x"), flow("", "b", "y"));
    }
}

//! Roles and bindings, found by who asks: a check looks only at the bindings of the user and its groups.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use trine_store::Object;

use super::rule::Rule;
use crate::access::attributes::{Attributes, Subject};
use crate::access::decision::Decision;
use crate::access::follow::Derive;
use crate::registry::text;
use crate::user::{User, account_name};

/// Plurals of what the index is derived from, in the order of its sources.
pub const SOURCES: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

/// A role binding of either kind.
#[derive(Debug)]
struct Binding {
    /// Empty for one of the whole cluster.
    namespace: String,
    name: String,
    kind: String,
    role: String,
    subjects: Vec<Bound>,
}

/// Somebody who is bound.
#[derive(Debug, PartialEq, Eq)]
enum Bound {
    User(String),
    Group(String),
    Account { namespace: String, name: String },
}

/// Bindings by those whom they bind.
#[derive(Debug, Default)]
struct Bindings {
    users: HashMap<String, Vec<Arc<Binding>>>,
    groups: HashMap<String, Vec<Arc<Binding>>>,
}

/// All roles and bindings.
#[derive(Debug, Default)]
pub struct Index {
    /// By name, or `namespace/name`: no name of a role has a slash.
    roles: HashMap<String, Arc<[Rule]>>,
    bindings: HashMap<String, Arc<Binding>>,
    cluster: Bindings,
    /// By namespace.
    inside: HashMap<String, Bindings>,
}

/// What a visitor of bindings is shown.
struct Grant<'a> {
    binding: &'a Binding,
    through: &'a Bound,
    /// `None` if the role does not exist.
    rules: Option<&'a [Rule]>,
}

impl Binding {
    fn read(key: &str, object: &Value) -> Self {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let subjects = object["subjects"].as_array().into_iter().flatten().filter_map(|s| {
            let name = text(&s["name"]).to_owned();
            match text(&s["kind"]) {
                "User" => Some(Bound::User(name)),
                "Group" => Some(Bound::Group(name)),
                "ServiceAccount" => {
                    let given = text(&s["namespace"]);
                    let namespace = if given.is_empty() { namespace } else { given }.to_owned();
                    Some(Bound::Account { namespace, name })
                }
                _ => None,
            }
        });
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            kind: text(&object["roleRef"]["kind"]).to_owned(),
            role: text(&object["roleRef"]["name"]).to_owned(),
            subjects: subjects.collect(),
        }
    }

    /// The key of its role in the index.
    fn role_key(&self) -> String {
        if self.kind == "ClusterRole" {
            self.role.clone()
        } else {
            format!("{}/{}", self.namespace, self.role)
        }
    }

    /// Why somebody is allowed something, in upstream's words.
    fn reason(&self, through: &Bound) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let to = match through {
            Bound::User(name) => format!("User {name:?}"),
            Bound::Group(name) => format!("Group {name:?}"),
            Bound::Account { namespace, name } => {
                format!("ServiceAccount {:?}", format!("{name}/{namespace}"))
            }
        };
        format!("RBAC: allowed by {kind} {name:?} of {} {:?} to {to}", self.kind, self.role)
    }
}

impl Bindings {
    fn list(&mut self, bound: &Bound) -> &mut Vec<Arc<Binding>> {
        match bound {
            Bound::User(name) => self.users.entry(name.clone()).or_default(),
            Bound::Group(name) => self.groups.entry(name.clone()).or_default(),
            Bound::Account { namespace, name } => {
                self.users.entry(account_name(namespace, name)).or_default()
            }
        }
    }

    fn add(&mut self, binding: &Arc<Binding>) {
        for bound in &binding.subjects {
            self.list(bound).push(Arc::clone(binding));
        }
    }

    fn remove(&mut self, binding: &Arc<Binding>) {
        for bound in &binding.subjects {
            self.list(bound).retain(|b| !Arc::ptr_eq(b, binding));
        }
        self.users.retain(|_, list| !list.is_empty());
        self.groups.retain(|_, list| !list.is_empty());
    }

    fn of<'a>(&'a self, user: &'a User) -> impl Iterator<Item = (&'a Arc<Binding>, &'a Bound)> {
        let by_name = self.users.get(&user.name).into_iter().flatten();
        let through_name = move |b: &'a Arc<Binding>| {
            b.subjects.iter().find(|s| match s {
                Bound::User(name) => *name == user.name,
                Bound::Account { namespace, name } => account_name(namespace, name) == user.name,
                Bound::Group(_) => false,
            })
        };
        let by_group = user.groups.iter().flat_map(move |group| {
            let found = self.groups.get(group).into_iter().flatten();
            found.filter_map(move |b| {
                Some((b, b.subjects.iter().find(|s| matches!(s, Bound::Group(name) if name == group))?))
            })
        });
        by_name.filter_map(move |b| Some((b, through_name(b)?))).chain(by_group)
    }
}

impl Index {
    fn grants<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = Grant<'a>> {
        let inside = if namespace.is_empty() { None } else { self.inside.get(namespace) };
        let bindings = self.cluster.of(user).chain(inside.into_iter().flat_map(move |b| b.of(user)));
        bindings.map(|(binding, through)| Grant {
            binding,
            through,
            rules: self.roles.get(&binding.role_key()).map(|rules| &**rules),
        })
    }

    /// Whether some binding allows it, and which.
    #[must_use]
    pub fn decide(&self, user: &User, wanted: &Attributes) -> Decision {
        let namespace = match &wanted.subject {
            Subject::Resource(r) => r.namespace.as_str(),
            Subject::Path(_) => "",
        };
        let mut missing = Vec::new();
        for grant in self.grants(user, namespace) {
            match grant.rules {
                Some(rules) if rules.iter().any(|rule| rule.allows(wanted)) => {
                    return Decision::Allow(grant.binding.reason(grant.through));
                }
                Some(_) => {}
                None => {
                    let (kind, role) = (grant.binding.kind.to_lowercase(), &grant.binding.role);
                    missing.push(format!("{kind}.rbac.authorization.k8s.io {role:?} not found"));
                }
            }
        }
        match missing.as_slice() {
            [] => Decision::NoOpinion(String::new()),
            [one] => Decision::NoOpinion(format!("RBAC: {one}")),
            many => Decision::NoOpinion(format!("RBAC: [{}]", many.join(", "))),
        }
    }

    /// All rules that hold for a user in a namespace.
    #[must_use]
    pub fn rules(&self, user: &User, namespace: &str) -> Vec<Rule> {
        self.grants(user, namespace).filter_map(|g| g.rules).flatten().cloned().collect()
    }

    /// The rules of a role; those of a ClusterRole if the namespace is empty. `None` if there is no such role.
    #[must_use]
    pub fn role(&self, namespace: &str, name: &str) -> Option<Arc<[Rule]>> {
        let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        self.roles.get(&key).cloned()
    }

    fn scope(&mut self, binding: &Binding) -> &mut Bindings {
        if binding.namespace.is_empty() {
            &mut self.cluster
        } else {
            self.inside.entry(binding.namespace.clone()).or_default()
        }
    }

    fn unbind(&mut self, key: &str) {
        if let Some(old) = self.bindings.remove(key) {
            self.scope(&old).remove(&old);
        }
    }
}

impl Derive for Index {
    fn put(&mut self, source: usize, key: &str, object: &Object) {
        let Ok(value) = serde_json::from_slice::<Value>(object.json()) else { return };
        if SOURCES[source].ends_with("bindings") {
            self.unbind(key);
            let binding = Arc::new(Binding::read(key, &value));
            self.scope(&binding).add(&binding);
            self.bindings.insert(key.to_owned(), binding);
        } else {
            self.roles.insert(key.to_owned(), Rule::of_role(&value).into());
        }
    }

    fn remove(&mut self, source: usize, key: &str) {
        if SOURCES[source].ends_with("bindings") {
            self.unbind(key);
        } else {
            self.roles.remove(key);
        }
    }

    fn clear(&mut self, source: usize) {
        let inside = source >= 2;
        if SOURCES[source].ends_with("bindings") {
            let keys: Vec<String> =
                self.bindings.keys().filter(|k| k.contains('/') == inside).cloned().collect();
            keys.iter().for_each(|key| self.unbind(key));
        } else {
            self.roles.retain(|key, _| key.contains('/') != inside);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;
    use trine_store::cache::Decoded;

    use super::*;

    fn put(index: &mut Index, source: usize, key: &str, value: &Value) {
        let decoded = Decoded { json: value.to_string().into(), ..Decoded::default() };
        index.put(source, key, &Object { key: key.into(), revision: 1, decoded });
    }

    fn binding(kind: &str, role: &str, subject: Value) -> Value {
        json!({"roleRef": {"kind": kind, "name": role}, "subjects": [subject]})
    }

    fn index() -> Index {
        let mut index = Index::default();
        let reads = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
        put(&mut index, 0, "reader", &reads);
        put(&mut index, 2, "d/reader", &reads);
        index
    }

    #[test]
    fn accounts_users_and_groups_are_found_through_their_bindings() {
        let mut index = index();
        let (there, elsewhere) =
            (Attributes::of("get", "", "pods", "d", "p"), Attributes::of("get", "", "pods", "e", "p"));
        put(
            &mut index,
            3,
            "d/b",
            &binding("Role", "reader", json!({"kind": "ServiceAccount", "name": "sa"})),
        );
        let account = User::account("d", "sa", "");
        let allowed = index.decide(&account, &there);
        assert_eq!(
            allowed.reason(),
            "RBAC: allowed by RoleBinding \"b/d\" of Role \"reader\" to ServiceAccount \"sa/d\""
        );
        assert!(!index.decide(&account, &elsewhere).allowed());
        put(&mut index, 1, "c", &binding("ClusterRole", "reader", json!({"kind": "Group", "name": "g"})));
        assert!(index.decide(&User::new("x", &["g"]), &elsewhere).allowed());
        put(&mut index, 1, "c", &binding("ClusterRole", "gone", json!({"kind": "User", "name": "x"})));
        let refused = index.decide(&User::new("x", &["g"]), &elsewhere);
        assert_eq!(refused, Decision::no("RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found"));
        index.remove(3, "d/b");
        assert!(!index.decide(&account, &there).allowed());
        index.clear(1);
        assert!(index.cluster.users.is_empty() && index.bindings.is_empty());
    }

    #[test]
    fn a_check_does_not_get_slower_by_the_bindings_of_others() {
        let mut index = index();
        for i in 0..5000 {
            let user = json!({"kind": "User", "name": format!("u{i}")});
            put(&mut index, 1, &format!("b{i}"), &binding("ClusterRole", "reader", user));
        }
        let (user, wanted) = (User::new("u77", &[]), Attributes::of("get", "", "pods", "d", "p"));
        let since = Instant::now();
        for _ in 0..1000 {
            assert!(index.decide(&user, &wanted).allowed());
        }
        let each = since.elapsed() / 1000;
        println!("one check among 5,000 bindings: {each:?}");
        assert!(each < Duration::from_micros(200), "{each:?}");
    }
}

//! The roles and bindings that every cluster begins with, from the table `defaults.txt`.

use serde_json::{Value, json};

use super::rule::Rule;

/// Set on each of them: whether they are brought up to date at start.
pub const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Labels of roles that are added to another begin with it.
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";
/// Roles of controllers begin with it; the rest is the name of the ServiceAccount.
const CONTROLLER: &str = "system:controller:";
/// The group of all of them.
pub const GROUP: &str = "rbac.authorization.k8s.io";

const TABLE: &str = include_str!("defaults.txt");

/// One object: its plural, its namespace (empty for none) and itself.
pub type Default = (&'static str, &'static str, Value);

/// All of them, roles before the bindings to them.
#[must_use]
pub fn all() -> Vec<Default> {
    let mut namespace = "";
    let (mut roles, mut bindings): (Vec<Default>, Vec<Default>) = (Vec::new(), Vec::new());
    for line in TABLE.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if let Some(name) = line.strip_prefix('@') {
            namespace = name;
        } else if let Some(head) = line.strip_prefix('=') {
            let (plural, role) = role(head, namespace);
            if namespace.is_empty()
                && role["metadata"]["name"].as_str().is_some_and(|n| n.starts_with(CONTROLLER))
            {
                bindings.push(controller(&role));
            }
            roles.push((plural, namespace, role));
        } else if let Some(rest) = line.strip_prefix('>') {
            bindings.push(binding(rest, namespace));
        } else if let Some((_, _, role)) = roles.last_mut()
            && let Some(rules) = role["rules"].as_array_mut()
        {
            rules.push(rule(line).json());
        }
    }
    roles.extend(bindings);
    roles
}

/// A rule in the table's form.
#[must_use]
pub fn rule(line: &str) -> Rule {
    let mut words = line.split(' ');
    let mut list = || -> Vec<String> {
        let word = words.next().unwrap_or_default();
        let items = word.split(',').filter(|i| !i.is_empty());
        items.map(|i| if i == "-" { String::new() } else { i.to_owned() }).collect()
    };
    let (verbs, groups, resources, names) = (list(), list(), list(), list());
    if groups == ["/"] {
        return Rule { verbs, paths: resources, ..Rule::default() };
    }
    Rule { verbs, groups, resources, names, ..Rule::default() }
}

/// The rules of the default role of this name, empty if there is none.
#[must_use]
pub fn rules_of(role: &str) -> Vec<Rule> {
    let mut lines =
        TABLE.lines().skip_while(|l| l.strip_prefix('=').is_none_or(|h| h.split(' ').next() != Some(role)));
    lines.next();
    lines.take_while(|l| !l.is_empty() && !l.starts_with(['=', '>', '@'])).map(rule).collect()
}

fn metadata(name: &str, namespace: &str) -> Value {
    let mut meta = json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTO_UPDATE: "true"}});
    if !namespace.is_empty() {
        meta["namespace"] = namespace.into();
    }
    meta
}

fn role(head: &str, namespace: &str) -> (&'static str, Value) {
    let mut words = head.split(' ');
    let mut meta = metadata(words.next().unwrap_or_default(), namespace);
    let mut sums = Vec::new();
    for word in words {
        match (word.strip_prefix('+'), word.strip_prefix('^')) {
            (Some(to), _) => meta["labels"][format!("{AGGREGATE}{to}")] = "true".into(),
            (_, Some(of)) => sums.push(json!({"matchLabels": {format!("{AGGREGATE}{of}"): "true"}})),
            _ => {}
        }
    }
    let (plural, kind) =
        if namespace.is_empty() { ("clusterroles", "ClusterRole") } else { ("roles", "Role") };
    let mut role = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": meta, "rules": []});
    if !sums.is_empty() {
        role["aggregationRule"] = json!({"clusterRoleSelectors": sums});
    }
    (plural, role)
}

fn made(name: &str, namespace: &'static str, role: (&str, &str), subjects: Vec<Value>) -> Default {
    let (plural, kind) = if namespace.is_empty() {
        ("clusterrolebindings", "ClusterRoleBinding")
    } else {
        ("rolebindings", "RoleBinding")
    };
    let mut binding = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata(name, namespace),
        "roleRef": {"apiGroup": GROUP, "kind": role.0, "name": role.1}});
    if !subjects.is_empty() {
        binding["subjects"] = subjects.into();
    }
    (plural, namespace, binding)
}

fn binding(line: &'static str, namespace: &'static str) -> Default {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (name, kind, role) = (word(), word(), word());
    let subjects = words.filter_map(|w| match w.split_once(':')? {
        ("group", name) => Some(json!({"apiGroup": GROUP, "kind": "Group", "name": name})),
        ("user", name) => Some(json!({"apiGroup": GROUP, "kind": "User", "name": name})),
        (_, account) => account.split_once('/').map(|(ns, name)| subject(ns, name)),
    });
    made(name, namespace, (kind, role), subjects.collect())
}

fn subject(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
}

fn controller(role: &Value) -> Default {
    let name = role["metadata"]["name"].as_str().unwrap_or_default();
    let account = name.strip_prefix(CONTROLLER).unwrap_or(name);
    made(name, "", ("ClusterRole", name), vec![subject("kube-system", account)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_what_clients_look_for() {
        let all = all();
        let find = |plural: &str, name: &str| {
            all.iter().find(|(p, _, o)| *p == plural && o["metadata"]["name"] == name).map(|(_, _, o)| o)
        };
        for role in [
            "cluster-admin",
            "admin",
            "edit",
            "view",
            "system:node",
            "system:kube-scheduler",
            "system:discovery",
        ] {
            assert!(find("clusterroles", role).is_some(), "{role}");
        }
        let admin = find("clusterrolebindings", "cluster-admin").unwrap();
        assert_eq!(admin["subjects"][0]["name"], "system:masters");
        let controller = find("clusterrolebindings", "system:controller:job-controller").unwrap();
        assert_eq!(controller["subjects"][0], subject("kube-system", "job-controller"));
        let edit = find("clusterroles", "edit").unwrap();
        assert_eq!(edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
        assert_eq!(
            edit["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"]["rbac.authorization.k8s.io/aggregate-to-edit"],
            "true"
        );
        let reader = find("rolebindings", "system::extension-apiserver-authentication-reader").unwrap();
        assert_eq!(reader["metadata"]["namespace"], "kube-system");
        assert!(find("clusterrolebindings", "system:node").unwrap()["subjects"].is_null());
        assert!(rules_of("system:node").len() > 20 && rules_of("nothing").is_empty());
        let roles = all.iter().filter(|(p, ..)| *p == "clusterroles").count();
        assert!(roles > 70, "{roles}");
    }

    #[test]
    fn every_object_fits_its_type() {
        for (plural, _, object) in all() {
            let resource = trine_objects::resources::find(GROUP, "v1", plural).unwrap();
            let ty = trine_objects::schema::of(GROUP, "v1", &resource.kind).unwrap();
            assert!(trine_objects::schema::check(ty, &object).is_empty(), "{object}");
        }
    }
}

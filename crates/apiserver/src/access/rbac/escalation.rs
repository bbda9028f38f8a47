//! Nobody gives away more than he has: who writes a role or a binding must hold every rule that it gives, or be allowed to
//! `escalate` the role or to `bind` to it.

use serde_json::Value;

use super::defaults::GROUP;
use super::rule::{Rule, missing, quoted};
use crate::access::attributes::Attributes;
use crate::access::authorizer::Authorizer;
use crate::registry::text;
use crate::user::{MASTERS, User};

/// Why a user may not write this role or binding; `None` if he may. `plural` is one of the four kinds of the group.
#[must_use]
pub fn refuse(
    authorizer: &Authorizer,
    user: &User,
    plural: &str,
    new: &Value,
    old: Option<&Value>,
) -> Option<String> {
    if user.is_in(MASTERS) {
        return None;
    }
    match plural {
        "roles" | "clusterroles" => role(authorizer, user, plural, new, old),
        "rolebindings" | "clusterrolebindings" => binding(authorizer, user, new, old),
        _ => None,
    }
}

fn role(
    authorizer: &Authorizer,
    user: &User,
    plural: &str,
    new: &Value,
    old: Option<&Value>,
) -> Option<String> {
    let sums = |role: &Value| !role["aggregationRule"].is_null();
    let unchanged = |field: &str| old.is_some_and(|old| old[field] == new[field]);
    if unchanged("rules") && unchanged("aggregationRule") {
        return None;
    }
    let (namespace, name) = (text(&new["metadata"]["namespace"]), text(&new["metadata"]["name"]));
    if authorizer.decide(user, &Attributes::of("escalate", GROUP, plural, namespace, name)).allowed() {
        return None;
    }
    // What a sum will hold is not known beforehand, so only who holds everything may make one.
    if sums(new) || old.is_some_and(sums) {
        let all = |list: &str| vec![list.to_owned()];
        let objects = Rule { verbs: all("*"), groups: all("*"), resources: all("*"), ..Rule::default() };
        let paths = Rule { verbs: all("*"), paths: all("*"), ..Rule::default() };
        if !missing(&authorizer.rules(user, ""), &[objects, paths]).is_empty() {
            return Some("must have cluster-admin privileges to use the aggregationRule".to_owned());
        }
    }
    lacks(authorizer, user, namespace, &Rule::of_role(new))
}

fn binding(authorizer: &Authorizer, user: &User, new: &Value, old: Option<&Value>) -> Option<String> {
    if old.is_some_and(|old| old["roleRef"] == new["roleRef"] && old["subjects"] == new["subjects"]) {
        return None;
    }
    let namespace = text(&new["metadata"]["namespace"]);
    let (kind, name) = (text(&new["roleRef"]["kind"]), text(&new["roleRef"]["name"]));
    let plural = if kind == "ClusterRole" { "clusterroles" } else { "roles" };
    if authorizer.decide(user, &Attributes::of("bind", GROUP, plural, namespace, name)).allowed() {
        return None;
    }
    let place = if kind == "ClusterRole" { "" } else { namespace };
    let Some(rules) = authorizer.role(place, name) else {
        return Some(format!("{plural}.{GROUP} {name:?} not found"));
    };
    lacks(authorizer, user, namespace, &rules)
}

fn lacks(authorizer: &Authorizer, user: &User, namespace: &str, wanted: &[Rule]) -> Option<String> {
    let missing = missing(&authorizer.rules(user, namespace), wanted);
    if missing.is_empty() {
        return None;
    }
    let mut lines: Vec<String> = missing.iter().map(ToString::to_string).collect();
    lines.sort();
    Some(format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        lines.join("\n")
    ))
}

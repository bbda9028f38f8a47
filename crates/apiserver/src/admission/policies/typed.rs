//! What is wrong with the types in a policy's expressions, told in its status. Upstream: the controller
//! `validatingadmissionpolicy-status`.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trine_objects::resources::split_api_version;
use trine_store::Expect;
use trine_store::cache::Part;

use crate::catalog::{Resources, Served};
use crate::cel::Types;
use crate::changes::Changes;
use crate::registry::{Registry, prefix, text};
use crate::status::ApiError;
use crate::verbs::update::parse;

/// The most kinds that a policy is looked at for. Source: `maxTypesToCheck`.
const MOST_KINDS: usize = 10;

/// Looks at every policy that is new or changed, until `stop`.
///
/// # Errors
/// [`ApiError`] if policies are not served.
pub fn follow(
    registry: &Arc<Registry>,
    background: &TaskTracker,
    stop: CancellationToken,
) -> Result<(), ApiError> {
    let policies = registry.resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")?;
    let registry = Arc::clone(registry);
    background.spawn(async move {
        let mut changes = Changes::of(&registry, [Arc::clone(&policies)]);
        loop {
            round(&registry, &policies).await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = changes.next() => {}
            }
        }
    });
    Ok(())
}

async fn round(registry: &Registry, policies: &Served) {
    let listed = registry.prefix(policies).list(&Part::all(&prefix(policies)));
    for object in &listed.objects {
        let Ok(mut policy) = parse(object.json()) else { continue };
        let generation = policy["metadata"]["generation"].clone();
        if policy["status"]["observedGeneration"] == generation {
            continue;
        }
        let warnings = warnings(&registry.catalog().now(), &policy["spec"]);
        let checked = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        policy["status"]["typeChecking"] = checked;
        policy["status"]["observedGeneration"] = generation;
        let name = text(&policy["metadata"]["name"]).to_owned();
        if let Err(error) = registry.put(policies, policy, Expect::At(object.revision)).await {
            // Whoever changed it meanwhile causes the next round.
            tracing::debug!(policy = name, %error, "not looked at");
        }
    }
}

/// What is wrong, expression by expression, for each kind that the policy is about.
fn warnings(resources: &Resources, spec: &Value) -> Vec<Value> {
    let kinds = kinds(resources, &spec["matchConstraints"]);
    let params = &spec["paramKind"];
    let params = params.is_object().then(|| {
        let (group, version) = split_api_version(text(&params["apiVersion"]));
        resources.by_kind(group, version, text(&params["kind"]))
    });
    let params = params.flatten();
    let mut found = Vec::new();
    for (i, validation) in spec["validations"].as_array().into_iter().flatten().enumerate() {
        for key in ["expression", "messageExpression"] {
            let expression = text(&validation[key]);
            let warning: String =
                kinds.iter().filter_map(|kind| of_kind(kind, params, spec, expression)).collect();
            if !warning.is_empty() {
                found.push(json!({"fieldRef": format!("spec.validations[{i}].{key}"), "warning": warning}));
            }
        }
    }
    found
}

fn of_kind(kind: &Served, params: Option<&Arc<Served>>, spec: &Value, expression: &str) -> Option<String> {
    let mut types = Types::new(kind.schema(), params.map(|p| p.schema()));
    for variable in spec["variables"].as_array().into_iter().flatten() {
        types.declare(text(&variable["name"]), text(&variable["expression"]));
    }
    let wrong = types.check(expression);
    let lines: String = wrong.iter().map(|why| format!("\nERROR: <input>: {why}\n | {expression}")).collect();
    let of = format!("{}, Kind={}", kind.api_version(), kind.kind);
    (!wrong.is_empty()).then(|| format!("{of}: {}\n", lines.trim_start()))
}

/// The kinds that the rules name, without those that name all.
fn kinds<'a>(resources: &'a Resources, constraints: &Value) -> Vec<&'a Arc<Served>> {
    let texts = |list: &Value| -> BTreeSet<String> {
        list.as_array().into_iter().flatten().map(|v| text(v).to_owned()).collect()
    };
    let mut kinds: Vec<&Arc<Served>> = Vec::new();
    for rule in constraints["resourceRules"].as_array().into_iter().flatten() {
        let lists = ["apiGroups", "apiVersions", "resources"].map(|key| texts(&rule[key]));
        if lists.iter().any(|list| list.iter().any(|item| item.contains('*'))) {
            continue;
        }
        let [groups, versions, plurals] = &lists;
        for (group, version, plural) in groups
            .iter()
            .flat_map(|g| versions.iter().flat_map(move |v| plurals.iter().map(move |p| (g, v, p))))
        {
            let found = resources.find(group, version, plural).filter(|r| !kinds.contains(r));
            kinds.extend(found);
        }
    }
    kinds.sort_by_key(|r| (r.api_version(), r.kind.to_string()));
    kinds.truncate(MOST_KINDS);
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn a_policy_is_told_what_cannot_be_for_the_kinds_that_it_names() {
        let resources = Catalog::new().now();
        let spec = json!({"matchConstraints": {"resourceRules": [
                {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments", "deployments/scale"]},
                {"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "validations": [{"expression": "object.spec.replicas > '1'",
                "messageExpression": "'wants replicas > 1, got ' + object.spec.replicas"}, {"expression": "true"}]});
        let found = warnings(&resources, &spec);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0]["fieldRef"], "spec.validations[0].expression");
        assert_eq!(
            found[0]["warning"],
            "apps/v1, Kind=Deployment: ERROR: <input>: found no matching overload for '_>_' applied to '(int, string)'\n | \
             object.spec.replicas > '1'\n"
        );
        assert_eq!(found[1]["fieldRef"], "spec.validations[0].messageExpression");
    }
}

//! `MutatingAdmissionPolicy`: expressions that change what is written.

use http::StatusCode;
use serde_json::{Value, json};
use trine_cel::cel::Value as Cel;
use trine_objects::apply::{atomics, merge, validate};
use trine_objects::patch;
use trine_objects::schema::{self, SchemaRef};

use super::calls::{Call, calls, namespace_of};
use super::policy::Names;
use super::refusal::refused;
use super::{Pairs, Policy};
use crate::admission::again::Again;
use crate::admission::attempt::Attempt;
use crate::admission::conditions::Met;
use crate::admission::patched::take_over;
use crate::admission::wanted::Wanted;
use crate::catalog::Served;
use crate::registry::{Registry, text};
use crate::status::ApiError;
use trine_cel::{Expression, to_json};

/// What a policy changes.
#[derive(Debug)]
pub struct Mutating {
    mutations: Vec<Mutation>,
    again: bool,
}

#[derive(Debug)]
struct Mutation {
    /// Whether the expression gives a JSON patch, and not an object to merge.
    patch: bool,
    expression: Result<Expression, String>,
}

/// Policy, binding, and namespace and name of the parameters.
pub type Id = (String, String, String, String);

impl Policy<Mutating> {
    /// Reads a `MutatingAdmissionPolicy`.
    #[must_use]
    pub fn mutating(policy: &Value) -> Self {
        Self::read(policy, Mutating::read)
    }
}

impl Mutating {
    fn read(spec: &Value, names: &Names) -> Self {
        let mutations = spec["mutations"].as_array().into_iter().flatten();
        let mutation = |m: &Value| {
            let patch = m["patchType"] == "JSONPatch";
            let source = if patch { &m["jsonPatch"] } else { &m["applyConfiguration"] };
            let expression = Expression::compile(text(&source["expression"]), &names.known_to_changes());
            Mutation { patch, expression }
        };
        Self { mutations: mutations.map(mutation).collect(), again: spec["reinvocationPolicy"] == "IfNeeded" }
    }
}

/// The schema of what a policy sees.
fn schema_of<'a>(attempt: &Attempt, version: &'a Served) -> SchemaRef<'a> {
    match version.subresource(&attempt.subresource) {
        Some(part) if part.kind != version.kind => {
            schema::of(&part.group, &part.version, &part.kind).map_or(SchemaRef::ANY, SchemaRef::from)
        }
        _ => version.schema(),
    }
}

impl Call<Mutating> {
    fn id(&self) -> Id {
        let of_param =
            |key: &str| self.param.as_ref().map(|p| text(&p["metadata"][key]).to_owned()).unwrap_or_default();
        (self.policy.name.clone(), self.binding.name.clone(), of_param("namespace"), of_param("name"))
    }

    /// Changes `shown` as one mutation says.
    fn change(
        &self,
        registry: &Registry,
        attempt: &Attempt,
        wanted: &mut Wanted,
        mutation: &Mutation,
    ) -> Result<(), String> {
        let expression = mutation.expression.as_ref().map_err(Clone::clone)?;
        let namespace = namespace_of(registry, attempt);
        let run = self.run(registry, attempt, wanted, namespace.as_ref());
        let given = run.value(expression);
        let given = given.map_err(|e| format!("expression '{}' resulted in error: {e}", expression.text))?;
        let Some(shown) = &mut wanted.object else { return Ok(()) };
        if mutation.patch {
            return patched(&given, shown);
        }
        let merged = applied(schema_of(attempt, &self.version), &given, shown);
        *shown = merged.map_err(|e| format!("error applying patch: {e}"))?;
        Ok(())
    }
}

/// An object with what an expression gave merged into it.
fn applied(schema: SchemaRef<'_>, given: &Cel, shown: &Value) -> Result<Value, String> {
    let Some(mut change) = to_json(given).filter(Value::is_object) else {
        return Err(format!(
            "unsupported return type from ApplyConfiguration expression: {}",
            given.type_of()
        ));
    };
    for key in ["apiVersion", "kind"] {
        change[key] = shown[key].clone();
    }
    validate(schema, &change, false)
        .map_err(|e| format!("failed to convert patch object to typed object: {e}"))?;
    let whole = atomics(schema, &change);
    if !whole.is_empty() {
        let list = whole.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {list}"
        ));
    }
    merge(schema, shown, &change).map_err(|e| format!("failed to merge patch: {e}"))
}

/// Patches an object by what an expression gave. One that tests in vain changes nothing.
fn patched(given: &Cel, shown: &mut Value) -> Result<(), String> {
    let wrong = || "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned();
    let operations = to_json(given).ok_or_else(wrong)?;
    let operations = operations.as_array().ok_or_else(wrong)?;
    let mut changed = shown.clone();
    for operation in operations {
        if !operation.is_object() {
            return Err(wrong());
        }
        match patch::json(&mut changed, &json!([operation])) {
            Ok(()) => {}
            Err(_) if operation["op"] == "test" => return Ok(()),
            Err(error) => return Err(format!("JSON Patch: {error}")),
        }
    }
    *shown = changed;
    Ok(())
}

/// Lets the policies change an object that are in force. `round` 0 asks all; 1 those that `again` names.
///
/// # Errors
/// [`ApiError::Refused`] for what goes wrong in a policy that must not fail.
pub async fn mutate(
    registry: &Registry,
    pairs: &Pairs<Mutating>,
    attempt: &Attempt,
    (object, old): (&mut Option<Value>, Option<&Value>),
    (round, again): (usize, &mut Again<Id>),
) -> Result<(), ApiError> {
    let wanted_again = again.take();
    let (calls, wrong) = calls(registry, pairs, attempt, object.as_ref(), old).await;
    let mut denied: Vec<(String, bool)> =
        wrong.iter().map(|w| (said(&w.policy, &w.binding, &w.why), false)).collect();
    for call in &calls {
        let id = call.id();
        if round > 0 && !wanted_again.contains(&id) {
            continue;
        }
        let mut failed = |why: &str| {
            if !call.policy.lenient {
                denied.push((said(&call.policy.name, &call.binding.name, why), true));
            }
        };
        let mut wanted = call.wanted(registry, attempt, object.as_ref(), old).await?;
        match call.met(registry, attempt, &wanted) {
            Met::Yes => {}
            Met::No => continue,
            Met::Unknown(why) => {
                failed(&why);
                continue;
            }
        }
        // Of what is deleted there is nothing to change.
        let Some(object) = object.as_mut() else { continue };
        let mut changed = false;
        for mutation in &call.policy.decides.mutations {
            match call.change(registry, attempt, &mut wanted, mutation) {
                Ok(()) => {
                    let made = wanted.object.take().unwrap_or_default();
                    changed |= take_over(registry, attempt, &call.version, made, object).await?;
                    wanted.object = attempt.shown(registry, &call.version, Some(object)).await?;
                }
                Err(why) => failed(&why),
            }
        }
        if changed {
            again.note_change();
        }
        if call.policy.decides.again {
            again.asked(id);
        }
    }
    let Some((first, invalid)) = denied.first().cloned() else { return Ok(()) };
    let messages: Vec<String> = denied.into_iter().map(|(message, _)| message).collect();
    let reason = if invalid { "Invalid" } else { "Forbidden" };
    // The code stays that of a refusal, whatever the reason.
    let reason = (reason, StatusCode::FORBIDDEN);
    Err(refused(attempt, object.as_ref().or(old), reason, Some(&first), &messages))
}

fn said(policy: &str, binding: &str, why: &str) -> String {
    if binding.is_empty() {
        return format!("policy {policy:?} denied request: {why}");
    }
    format!("policy '{policy}' with binding '{binding}' denied request: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_cel::{Bindings, Known, Run};

    fn given(text: &str) -> Cel {
        let expression = Expression::compile(text, &Known { objects: true, ..Known::default() }).unwrap();
        Run::new(Bindings::default()).value(&expression).unwrap()
    }

    #[test]
    fn an_object_is_merged_by_the_marks_of_its_schema() {
        let schema = schema::of("apps", "v1", "Deployment").map(SchemaRef::from).unwrap();
        let shown = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}});
        let text = "Object{metadata: Object.metadata{annotations: {'by': 'policy'}}, spec: Object.spec{template: \
                    Object.spec.template{spec: Object.spec.template.spec{containers: [\
                    Object.spec.template.spec.containers{name: 'b', image: 'j'}]}}}}";
        let merged = applied(schema, &given(text), &shown).unwrap();
        assert_eq!(merged["metadata"]["annotations"], json!({"by": "policy"}));
        assert_eq!(merged["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len), Some(2));
        let whole = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{nodeSelector: {'a': 'b'}}}}}";
        let error = applied(schema, &given(whole), &shown).unwrap_err();
        assert!(
            error.contains("may not mutate atomic arrays, maps or structs: .spec.template.spec.nodeSelector"),
            "{error}"
        );
        assert!(applied(schema, &given("Object{spec: Object.spec{nothing: 1}}"), &shown).is_err());
        assert!(applied(schema, &given("7"), &shown).is_err());
    }

    #[test]
    fn a_patch_that_tests_in_vain_changes_nothing() {
        let before = json!({"a": 1});
        let mut shown = before.clone();
        patched(&given("[JSONPatch{op: 'add', path: '/b', value: [1, 'x']}]"), &mut shown).unwrap();
        assert_eq!(shown, json!({"a": 1, "b": [1, "x"]}));
        shown = before.clone();
        let vain =
            "[JSONPatch{op: 'add', path: '/b', value: 1}, JSONPatch{op: 'test', path: '/a', value: 2}]";
        patched(&given(vain), &mut shown).unwrap();
        assert_eq!(shown, before);
        let error = patched(&given("[JSONPatch{op: 'remove', path: '/none'}]"), &mut shown).unwrap_err();
        assert!(error.starts_with("JSON Patch: "), "{error}");
    }
}

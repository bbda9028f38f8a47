//! `ValidatingAdmissionPolicy`: expressions that must hold of what is written.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trine_cel::cel::Value as Cel;

use super::calls::{Call, calls, namespace_of};
use super::policy::Names;
use super::refusal::{code, refused};
use super::{Pairs, Policy};
use crate::access::audit::annotations::annotate;
use crate::admission::attempt::Attempt;
use crate::admission::conditions::Met;
use crate::admission::wanted::Wanted;
use crate::registry::{Registry, text};
use crate::status::ApiError;
use trine_cel::{Expression, Run};

/// The longest message that an expression may make, bytes. Source: `MaxEvaluatedMessageExpressionSizeBytes`.
const LONGEST_MESSAGE: usize = 5 * 1024;
/// The longest note that an expression may make, bytes.
const LONGEST_NOTE: usize = 10 * 1024;
/// The most failed validations that are noted of one request.
const MOST_NOTED: usize = 50;

/// What a policy decides.
#[derive(Debug)]
pub struct Validating {
    validations: Vec<Validation>,
    notes: Vec<(String, Compiled)>,
}

type Compiled = Result<Expression, String>;

#[derive(Debug)]
struct Validation {
    expression: Compiled,
    text: String,
    message: String,
    message_expression: Option<Compiled>,
    reason: String,
}

/// What a validation found.
struct Failed {
    message: String,
    reason: String,
}

impl Policy<Validating> {
    /// Reads a `ValidatingAdmissionPolicy`.
    #[must_use]
    pub fn validating(policy: &Value) -> Self {
        Self::read(policy, Validating::read)
    }
}

impl Validating {
    fn read(spec: &Value, names: &Names) -> Self {
        let list = |key: &str| spec[key].as_array().cloned().unwrap_or_default();
        let validation = |v: &Value| Validation {
            expression: Expression::compile(text(&v["expression"]), &names.known(true)),
            text: text(&v["expression"]).trim().to_owned(),
            message: text(&v["message"]).trim().to_owned(),
            message_expression: v["messageExpression"]
                .as_str()
                .map(|e| Expression::compile(e, &names.known(false))),
            reason: v["reason"].as_str().unwrap_or("Invalid").to_owned(),
        };
        let note = |n: &Value| {
            let expression = Expression::compile(text(&n["valueExpression"]), &names.known(true));
            (text(&n["key"]).to_owned(), expression)
        };
        Self {
            validations: list("validations").iter().map(validation).collect(),
            notes: list("auditAnnotations").iter().map(note).collect(),
        }
    }
}

/// What an expression gives, or why it gives nothing.
fn evaluated(expression: &Compiled, run: &Run) -> Result<Cel, String> {
    let expression = expression.as_ref().map_err(Clone::clone)?;
    run.value(expression).map_err(|e| format!("expression '{}' resulted in error: {e}", expression.text))
}

impl Validation {
    /// `None` if it holds. What cannot be said is passed over where the policy is lenient.
    fn fails(&self, run: &Run, lenient: bool) -> Option<Failed> {
        match evaluated(&self.expression, run) {
            Ok(Cel::Bool(true)) => None,
            Ok(_) => Some(Failed { message: self.message(run), reason: self.reason.clone() }),
            Err(_) if lenient => None,
            Err(message) => Some(Failed { message, reason: String::new() }),
        }
    }

    fn message(&self, run: &Run) -> String {
        let made = self.message_expression.as_ref().and_then(|e| match evaluated(e, run) {
            Ok(Cel::String(made)) => Some(made.trim().to_owned()),
            _ => None,
        });
        made.filter(|m| !m.is_empty() && m.len() <= LONGEST_MESSAGE && !m.contains('\n'))
            .or_else(|| Some(self.message.clone()).filter(|m| !m.is_empty()))
            .unwrap_or_else(|| format!("failed expression: {}", self.text))
    }
}

/// What a policy found about a request.
#[derive(Default)]
struct Found {
    /// By the place of the validation.
    failed: Vec<(usize, Failed)>,
    /// Notes that could not be made.
    broken: Vec<String>,
    notes: Vec<(String, String)>,
}

impl Call<Validating> {
    fn decide(&self, registry: &Registry, attempt: &Attempt, wanted: &Wanted) -> Found {
        let lenient = self.policy.lenient;
        match self.met(registry, attempt, wanted) {
            Met::Yes => {}
            Met::No => return Found::default(),
            Met::Unknown(message) => {
                let failed = vec![(0, Failed { message, reason: String::new() })];
                return Found { failed, ..Found::default() };
            }
        }
        let namespace = namespace_of(registry, attempt);
        let run = self.run(registry, attempt, wanted, namespace.as_ref());
        let validations = self.policy.decides.validations.iter().enumerate();
        let failed =
            validations.filter_map(|(i, v)| v.fails(&run, lenient).map(|failed| (i, failed))).collect();
        let mut found = Found { failed, ..Found::default() };
        for (key, expression) in &self.policy.decides.notes {
            let broken = match evaluated(expression, &run) {
                Ok(Cel::Null) => continue,
                Ok(Cel::String(value)) => {
                    let mut value = value.trim().to_owned();
                    let end = (0..=LONGEST_NOTE.min(value.len())).rev().find(|i| value.is_char_boundary(*i));
                    value.truncate(end.unwrap_or_default());
                    if !value.is_empty() {
                        found.notes.push((key.clone(), value));
                    }
                    continue;
                }
                Ok(other) => format!(
                    "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                    expression.as_ref().map_or("", |e| &e.text),
                    other.type_of()
                ),
                Err(error) => error,
            };
            if !lenient {
                found.broken.push(broken);
            }
        }
        found
    }
}

/// Refuses what a policy refuses that is in force.
///
/// # Errors
/// [`ApiError::Refused`] with what was found first.
pub async fn validate(
    registry: &Registry,
    pairs: &Pairs<Validating>,
    attempt: &Attempt,
    object: Option<&Value>,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    let (calls, wrong) = calls(registry, pairs, attempt, object, old).await;
    let mut denied: Vec<(String, String)> = Vec::new();
    for w in wrong {
        denied.push((said(&w.policy, &w.binding, &w.why), String::new()));
    }
    let mut noted = Vec::new();
    let mut notes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for call in &calls {
        let (policy, binding) = (&call.policy.name, &call.binding);
        let wanted = call.wanted(registry, attempt, object, old).await?;
        let found = call.decide(registry, attempt, &wanted);
        for (i, failed) in found.failed {
            for action in &binding.actions {
                let evaluated = !failed.reason.is_empty();
                let decisions = registry.dynamic().decisions();
                decisions.policy(policy, &binding.name, &action.to_lowercase(), evaluated);
                match action.as_str() {
                    "Deny" => {
                        denied.push((said(policy, &binding.name, &failed.message), failed.reason.clone()))
                    }
                    "Warn" => warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {}",
                        binding.name, failed.message
                    )),
                    _ => noted
                        .push(json!({"message": failed.message, "policy": policy, "binding": binding.name,
                        "expressionIndex": i, "validationActions": binding.actions})),
                }
            }
        }
        denied.extend(found.broken.into_iter().map(|why| (said(policy, &binding.name, &why), String::new())));
        for (key, value) in found.notes {
            let values = notes.entry(format!("{policy}/{key}")).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    for (key, values) in notes {
        annotate(key, values.join(", "));
    }
    if !noted.is_empty() {
        noted.truncate(MOST_NOTED);
        annotate("validation.policy.admission.k8s.io/validation_failure", Value::from(noted).to_string());
    }
    match denied.into_iter().next() {
        None => Ok(()),
        Some((message, reason)) => {
            let reason = if reason.is_empty() { "Invalid" } else { &reason };
            Err(refused(attempt, object.or(old), (reason, code(reason)), None, &[message]))
        }
    }
}

fn said(policy: &str, binding: &str, why: &str) -> String {
    if binding.is_empty() {
        return format!("ValidatingAdmissionPolicy '{policy}' denied request: {why}");
    }
    format!("ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {why}")
}

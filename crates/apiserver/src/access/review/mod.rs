//! Questions about access, asked as objects that are answered and never kept.
//!
//! - [`subject`] may this user do that; [`rules`] what may I do
//! - [`token`] whose token is this; [`who`] who am I

pub mod rules;
pub mod subject;
pub mod token;
pub mod who;

use serde_json::Value;
use trine_objects::resources::Resource;

use super::gate::Gate;
use crate::catalog::Served;
use crate::status::ApiError;
use crate::user::User;

/// Whether a resource is such a question.
#[must_use]
pub fn is_question(resource: &Resource) -> bool {
    matches!(&*resource.group, "authentication.k8s.io" | "authorization.k8s.io")
}

/// Answers a question of `user`: the object with its status.
///
/// # Errors
/// [`ApiError`] for a question that makes no sense.
pub fn answer(
    gate: &Gate,
    user: &User,
    resource: &Served,
    namespace: &str,
    mut question: Value,
    now: i64,
) -> Result<Value, ApiError> {
    crate::verbs::create::fit_to_path(resource, namespace, &mut question)?;
    let status = match &*resource.plural {
        "subjectaccessreviews" => subject::of(gate.authorizer(), &question)?,
        "localsubjectaccessreviews" => subject::local(gate.authorizer(), namespace, &question)?,
        "selfsubjectaccessreviews" => subject::own(gate.authorizer(), user, &question)?,
        "selfsubjectrulesreviews" => rules::own(gate.authorizer(), user, &question)?,
        "tokenreviews" => token::whose(gate, &mut question, now)?,
        "selfsubjectreviews" => {
            question["metadata"]["creationTimestamp"] = trine_objects::time::format(now).into();
            who::am_i(user)
        }
        _ => return Err(ApiError::NoResource),
    };
    question["status"] = status;
    if question["metadata"].is_null() {
        question["metadata"] = serde_json::json!({});
    }
    Ok(question)
}

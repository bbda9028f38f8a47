//! Who am I?

use serde_json::{Value, json};

use crate::access::token::accounts::user_info;
use crate::user::User;

/// The status of a SelfSubjectReview.
#[must_use]
pub fn am_i(user: &User) -> Value {
    json!({"userInfo": user_info(user)})
}

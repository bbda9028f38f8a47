//! A number, or a share of another in percent: `IntOrString`.

use crate::kinds::{Cause, Causes};
use serde_json::Value;

const NO_PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                          regex used for validation is '[0-9]+%')";

/// The percentage, if it is one.
fn percent(value: &Value) -> Option<i64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    let all = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    all.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// The number or the percentage; zero for what is neither.
pub fn amount(value: &Value) -> i64 {
    value.as_i64().or_else(|| percent(value)).unwrap_or(0)
}

/// How it is shown: `1`, `25%`.
pub fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// It is a percentage, or a number that is not negative; unset passes.
pub fn check(object: &Value, key: &str, path: &str, causes: &mut Causes) {
    let value = &object[key];
    if value.is_string() && percent(value).is_none() {
        causes.add(Cause::invalid(format!("{path}.{key}"), value.clone(), NO_PERCENT));
    }
    causes.not_negative(object, key, path);
}

/// A percentage is at most 100.
pub fn at_most_all(object: &Value, key: &str, path: &str, causes: &mut Causes) {
    if percent(&object[key]).is_some_and(|p| p > 100) {
        causes.add(Cause::invalid(
            format!("{path}.{key}"),
            object[key].clone(),
            "must not be greater than 100%",
        ));
    }
}

//! What a Job does about failed Pods, and when it counts as done before all are.

use crate::kinds::fields::{items, text};
use crate::kinds::{Cause, Causes};
use serde_json::Value;
use trine_objects::names;

/// The most rules of a policy.
const RULES_MAX: usize = 20;
/// The most exit codes that a rule names.
const CODES_MAX: usize = 255;
/// The most conditions that a rule names.
const PATTERNS_MAX: usize = 20;

/// The policy for failed Pods.
pub fn failure(spec: &Value, path: &str, causes: &mut Causes) {
    let path = format!("{path}.podFailurePolicy.rules");
    let rules = items(&spec["podFailurePolicy"], "rules");
    if rules.len() > RULES_MAX {
        causes.add(Cause::too_many(&*path, rules.len(), RULES_MAX));
    }
    let containers: Vec<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| items(&spec["template"]["spec"], list))
        .map(|c| text(c, "name"))
        .collect();
    for (i, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{i}]");
        match text(rule, "action") {
            "" => causes.add(Cause::required(
                format!("{path}.action"),
                "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
            )),
            "FailIndex" if spec["backoffLimitPerIndex"].is_null() => {
                let detail = "requires the backoffLimitPerIndex to be set";
                causes.add(Cause::invalid(format!("{path}.action"), "FailIndex", detail));
            }
            _ => causes.one_of(rule, "action", &path, &["Count", "FailIndex", "FailJob", "Ignore"]),
        }
        requirements(rule, &path, &containers, causes);
    }
}

fn requirements(rule: &Value, path: &str, containers: &[&str], causes: &mut Causes) {
    let codes = &rule["onExitCodes"];
    let conditions = items(rule, "onPodConditions");
    if codes.is_object() {
        exit_codes(codes, &format!("{path}.onExitCodes"), containers, causes);
    }
    if conditions.len() > PATTERNS_MAX {
        causes.add(Cause::too_many(format!("{path}.onPodConditions"), conditions.len(), PATTERNS_MAX));
    }
    for (j, pattern) in conditions.iter().enumerate() {
        let path = format!("{path}.onPodConditions[{j}]");
        causes.name(&format!("{path}.type"), text(pattern, "type"), names::qualified_name);
        causes.one_of(pattern, "status", &path, &["False", "True", "Unknown"]);
    }
    let detail = match (codes.is_object(), !conditions.is_empty()) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    causes.add(Cause::invalid(path, "", detail));
}

fn exit_codes(codes: &Value, path: &str, containers: &[&str], causes: &mut Causes) {
    let operator = text(codes, "operator");
    match operator {
        "" => causes.add(Cause::required(format!("{path}.operator"), "valid values: [\"In\" \"NotIn\"]")),
        _ => causes.one_of(codes, "operator", path, &["In", "NotIn"]),
    }
    let container = text(codes, "containerName");
    if !codes["containerName"].is_null() && !containers.contains(&container) {
        let detail = "must be one of the container or initContainer names in the pod template";
        causes.add(Cause::invalid(format!("{path}.containerName"), container, detail));
    }
    let (values, field) = (items(codes, "values"), format!("{path}.values"));
    if values.is_empty() {
        let detail = "at least one value is required";
        causes.add(Cause::invalid(&*field, codes["values"].clone(), detail));
    } else if values.len() > CODES_MAX {
        causes.add(Cause::too_many(&*field, values.len(), CODES_MAX));
    }
    for (i, value) in values.iter().enumerate() {
        if operator == "In" && value == 0 {
            let detail = "must not be 0 for the In operator";
            causes.add(Cause::invalid(format!("{field}[{i}]"), 0, detail));
        }
        match values.get(i + 1).and_then(Value::as_i64).zip(value.as_i64()) {
            Some((next, this)) if next == this => {
                causes.add(Cause::duplicate(format!("{field}[{}]", i + 1), next));
            }
            Some((next, this)) if next < this => {
                causes.add(Cause::invalid(&*field, codes["values"].clone(), "must be ordered"));
            }
            _ => {}
        }
    }
}

/// The policy for early success.
pub fn success(spec: &Value, path: &str, causes: &mut Causes) {
    let policy = &spec["successPolicy"];
    let path = format!("{path}.successPolicy");
    if policy.is_null() {
        return;
    }
    if spec["completionMode"] != "Indexed" {
        return causes.add(Cause::invalid(path, policy.clone(), "requires indexed completion mode"));
    }
    let rules = items(policy, "rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        causes.add(Cause::required(format!("{path}.rules"), detail));
    } else if rules.len() > RULES_MAX {
        causes.add(Cause::too_many(format!("{path}.rules"), rules.len(), RULES_MAX));
    }
    let completions = spec["completions"].as_i64().unwrap_or(0);
    for (i, rule) in rules.iter().enumerate() {
        success_rule(rule, &format!("{path}.rules[{i}]"), completions, causes);
    }
}

fn success_rule(rule: &Value, path: &str, completions: i64, causes: &mut Causes) {
    if rule["succeededCount"].is_null() && rule["succeededIndexes"].is_null() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        causes.add(Cause::required(path, detail));
    }
    let listed = match rule["succeededIndexes"].as_str().map(|text| indexes(text, completions)) {
        Some(Err(why)) => {
            let field = format!("{path}.succeededIndexes");
            causes.add(Cause::invalid(field, rule["succeededIndexes"].clone(), &why));
            None
        }
        found => found.and_then(Result::ok),
    };
    let Some(count) = rule["succeededCount"].as_i64() else { return };
    causes.not_negative(rule, "succeededCount", path);
    let field = format!("{path}.succeededCount");
    if count > completions {
        let detail =
            format!("must be less than or equal to {completions} (the number of specified completions)");
        causes.add(Cause::invalid(&*field, count, &detail));
    }
    if let Some(listed) = listed.filter(|listed| count > *listed) {
        let detail = format!(
            "must be less than or equal to {listed} (the number of indexes in the specified succeededIndexes field)"
        );
        causes.add(Cause::invalid(field, count, &detail));
    }
}

/// How many indexes a text as `0,2-4` names, each below `completions` and above the one before it.
fn indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut last, mut count) = (-1, 0);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let number = |end: &str| -> Result<i64, String> {
            let index: i64 =
                end.parse().map_err(|_| format!("cannot convert string to integer for index: {end:?}"))?;
            if index >= completions { Err(format!("too large index: {end:?}")) } else { Ok(index) }
        };
        let (first, end) = match part.split_once('-') {
            Some((first, end)) => (number(first)?, number(end)?),
            None => (number(part)?, number(part)?),
        };
        if first <= last {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        if end < first || (part.contains('-') && end == first) {
            return Err(format!("non-increasing order, previous: {first}, current: {end}"));
        }
        count += end - first + 1;
        last = end;
    }
    Ok(count)
}

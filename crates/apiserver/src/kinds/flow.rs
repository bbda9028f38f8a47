//! Who waits how long when the server is busy: FlowSchemas sort requests, PriorityLevelConfigurations share out the places.

use super::columns::{age, name, or_none};
use super::fields::{child, items, set, text};
use super::workload::default_number;
use super::{Cause, Causes, Column, Cx, Hooks, Invalid};
use serde_json::{Value, json};
use trine_objects::conditions;

/// How early a FlowSchema is tried unless it is said: lower is earlier.
const PRECEDENCE: i64 = 1000;
/// Places, queues, queues for one flow and requests in each, unless they are said.
const SHARES: i64 = 30;
const QUEUES: i64 = 64;
const HAND: i64 = 8;
const QUEUE_LENGTH: i64 = 50;
/// Kept as they are by the server.
const EXEMPT: &str = "exempt";
const CATCH_ALL: &str = "catch-all";

/// A number for which zero is the absence of one.
fn positive_default(object: &mut Value, key: &str, value: i64) {
    if object[key].as_i64().unwrap_or(0) == 0 {
        set(object, key, value);
    }
}

/// The hooks of FlowSchemas.
pub struct Schemas;

impl Hooks for Schemas {
    fn defaults(&self, obj: &mut Value) {
        positive_default(child(obj, "spec"), "matchingPrecedence", PRECEDENCE);
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({}));
        Ok(())
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        let own = text(&obj["metadata"], "name");
        causes.range(spec, "matchingPrecedence", "spec", 1, 10_000);
        if spec["matchingPrecedence"] == 1 && own != EXEMPT {
            let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
            causes.add(Cause::invalid("spec.matchingPrecedence", 1, detail));
        }
        let level = &spec["priorityLevelConfiguration"];
        causes.needed(level, "name", "spec.priorityLevelConfiguration");
        let method = &spec["distinguisherMethod"];
        causes.one_of(method, "type", "spec.distinguisherMethod", &["ByNamespace", "ByUser"]);
        for (i, rule) in items(spec, "rules").iter().enumerate() {
            self::rule(rule, &format!("spec.rules[{i}]"), &mut causes);
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("PriorityLevel"),
                Column::text("MatchingPrecedence"),
                Column::text("DistinguisherMethod"),
                Column::AGE,
                Column::text("MissingPL"),
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let spec = &obj["spec"];
        let dangling = conditions::find(obj, "Dangling").map_or("?", |c| text(c, "status"));
        vec![
            name(obj),
            text(&spec["priorityLevelConfiguration"], "name").into(),
            spec["matchingPrecedence"].as_i64().unwrap_or(0).into(),
            or_none(text(&spec["distinguisherMethod"], "type")),
            age(obj, now_unix),
            dangling.into(),
        ]
    }
}

fn rule(rule: &Value, path: &str, causes: &mut Causes) {
    if items(rule, "subjects").is_empty() {
        let detail = "subjects must contain at least one value";
        causes.add(Cause::required(format!("{path}.subjects"), detail));
    }
    for (i, subject) in items(rule, "subjects").iter().enumerate() {
        let path = format!("{path}.subjects[{i}]");
        let kind = text(subject, "kind");
        let field = match kind {
            "User" => "user",
            "Group" => "group",
            "ServiceAccount" => "serviceAccount",
            _ => {
                let known = ["Group", "ServiceAccount", "User"];
                causes.add(Cause::not_supported(format!("{path}.kind"), kind, &known));
                continue;
            }
        };
        if subject[field].is_null() {
            let detail = format!("{field} is required when subject kind is '{kind}'");
            causes.add(Cause::required(format!("{path}.{field}"), &detail));
        } else {
            causes.needed(&subject[field], "name", &format!("{path}.{field}"));
        }
    }
    if items(rule, "resourceRules").is_empty() && items(rule, "nonResourceRules").is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        causes.add(Cause::required(path, detail));
    }
    let lists = [
        ("resourceRules", ["verbs", "apiGroups", "resources"].as_slice()),
        ("nonResourceRules", &["verbs", "nonResourceURLs"]),
    ];
    for (rules, fields) in lists {
        for (i, part) in items(rule, rules).iter().enumerate() {
            for field in fields {
                if items(part, field).is_empty() {
                    let detail = format!("{field} must contain at least one value");
                    causes.add(Cause::required(format!("{path}.{rules}[{i}].{field}"), &detail));
                }
            }
        }
    }
}

/// The hooks of PriorityLevelConfigurations.
pub struct Levels;

impl Hooks for Levels {
    fn defaults(&self, obj: &mut Value) {
        let spec = child(obj, "spec");
        if spec["exempt"].is_object() {
            default_number(&mut spec["exempt"], "nominalConcurrencyShares", 0);
            default_number(&mut spec["exempt"], "lendablePercent", 0);
        }
        if spec["limited"].is_object() {
            let limited = &mut spec["limited"];
            default_number(limited, "nominalConcurrencyShares", SHARES);
            default_number(limited, "lendablePercent", 0);
            if limited["limitResponse"]["queuing"].is_object() {
                let queuing = &mut limited["limitResponse"]["queuing"];
                positive_default(queuing, "handSize", HAND);
                positive_default(queuing, "queues", QUEUES);
                positive_default(queuing, "queueLengthLimit", QUEUE_LENGTH);
            }
        }
    }

    fn prepare_create(&self, obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        set(obj, "status", json!({}));
        Ok(())
    }

    fn validate(&self, obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        let spec = &obj["spec"];
        let mut causes = Causes::default();
        let own = text(&obj["metadata"], "name");
        match text(spec, "type") {
            "Exempt" if own != EXEMPT => {
                let detail = "type must be 'Limited' if the name is not 'exempt'";
                causes.add(Cause::invalid("spec.type", "Exempt", detail));
            }
            "Exempt" if !spec["limited"].is_null() => {
                let detail = "must be nil if the type is not Limited";
                causes.add(Cause::forbidden("spec.limited", detail));
            }
            "Exempt" => {}
            "Limited" => limited(&spec["limited"], own, &mut causes),
            other => causes.add(Cause::not_supported("spec.type", other, &["Exempt", "Limited"])),
        }
        causes.0
    }

    fn columns(&self) -> &'static [Column] {
        const {
            &[
                Column::NAME,
                Column::text("Type"),
                Column::text("NominalConcurrencyShares"),
                Column::text("Queues"),
                Column::text("HandSize"),
                Column::text("QueueLengthLimit"),
                Column::AGE,
            ]
        }
    }

    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        let limited = &obj["spec"]["limited"];
        let queuing = &limited["limitResponse"]["queuing"];
        let shown = |value: &Value| if value.is_null() { "<none>".into() } else { value.clone() };
        vec![
            name(obj),
            text(&obj["spec"], "type").into(),
            shown(&limited["nominalConcurrencyShares"]),
            shown(&queuing["queues"]),
            shown(&queuing["handSize"]),
            shown(&queuing["queueLengthLimit"]),
            age(obj, now_unix),
        ]
    }
}

fn limited(limited: &Value, own: &str, causes: &mut Causes) {
    let path = "spec.limited";
    if !limited.is_object() {
        return causes.add(Cause::required(path, "must not be empty when type is Limited"));
    }
    causes.not_negative(limited, "nominalConcurrencyShares", path);
    causes.range(limited, "lendablePercent", path, 0, 100);
    let response = &limited["limitResponse"];
    let path = "spec.limited.limitResponse";
    match text(response, "type") {
        "Reject" if !response["queuing"].is_null() => {
            let detail = "must be nil if limited.limitResponse.type is not Limited";
            causes.add(Cause::forbidden(format!("{path}.queuing"), detail));
        }
        "Reject" => {}
        "Queue" if own == CATCH_ALL => {
            causes.add(Cause::invalid(format!("{path}.type"), "Queue", "must be 'Reject' for catch-all"));
        }
        "Queue" => {
            let queuing = &response["queuing"];
            let path = format!("{path}.queuing");
            if !queuing.is_object() {
                let detail = "must not be empty if limited.limitResponse.type is Limited";
                return causes.add(Cause::required(path, detail));
            }
            for field in ["queues", "handSize", "queueLengthLimit"] {
                if let Some(n) = queuing[field].as_i64().filter(|n| *n <= 0) {
                    causes.add(Cause::invalid(format!("{path}.{field}"), n, "must be positive"));
                }
            }
            let (hand, queues) = (queuing["handSize"].as_i64(), queuing["queues"].as_i64());
            if let (Some(hand), Some(queues)) = (hand, queues)
                && hand > queues
            {
                let detail = format!("should not be greater than queues ({queues})");
                causes.add(Cause::invalid(format!("{path}.handSize"), hand, &detail));
            }
        }
        other => causes.add(Cause::not_supported(format!("{path}.type"), other, &["Queue", "Reject"])),
    }
}

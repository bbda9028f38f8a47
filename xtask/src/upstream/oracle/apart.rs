//! Differences that are meant, and why ours is right. Pure.

use serde_json::Value;

use super::compare::difference;

/// What begins so may differ.
const NAMED: &[(&str, &str)] = &[
    ("bad, addresses of nobody (1.0.0): 1. ADD", LEAVES_NOTHING),
    ("bad, a namespace that is a file (1.0.0): 1. ADD", LEAVES_NOTHING),
    ("bad, a namespace that is not there (1.0.0): 1. ADD", LEAVES_NOTHING),
    ("bridge, a range that is used up (1.0.0): 2. ADD", LEAVES_NOTHING),
    (
        "bad, down without a namespace (1.0.0): 2. DEL",
        "the link goes by its host's end, too, when its namespace is not named",
    ),
    (
        "bridge, two ranges",
        "the bridge is the gateway of each range; the reference's can have one IPv4 address, so its ADD fails",
    ),
    ("bridge, without addresses (0.4.0): 2. CHECK", CHECKS),
    ("bridge, without addresses (1.0.0): 2. CHECK", CHECKS),
    ("bridge, without addresses (1.1.0): 2. CHECK", CHECKS),
    ("tap, a bridge that is not there (1.0.0): 1. ADD", LEAVES_NOTHING),
    ("loopback (0.1.0): 1. ADD", IN_FORM),
    ("loopback (0.2.0): 1. ADD", IN_FORM),
    ("loopback (0.3.0): 1. ADD", IN_FORM),
    ("loopback (0.3.1): 1. ADD", IN_FORM),
    ("loopback (0.4.0): 1. ADD", IN_FORM),
    ("macvlan, addresses of nobody (1.0.0)", LEAVES_NOTHING),
];
const LEAVES_NOTHING: &str = "an ADD that fails leaves no link and no bridge; the reference's does";
const CHECKS: &str = "CHECK finds what ADD has just made; the reference's does not find its own";
const IN_FORM: &str =
    "the answer has the form of the version that is asked for; the reference's has the newest one's";
const CODE: &str = "an error has the specification's code; the reference's has none";
const GONE: &str =
    "DEL of what cannot be there is success, whatever the configuration; the reference's fails";

/// Why a step may differ as it does, if it may.
#[must_use]
pub fn reason(name: &str, command: &str, ours: &Value, reference: &Value) -> Option<&'static str> {
    if let Some((_, why)) = NAMED.iter().find(|(beginning, _)| name.starts_with(beginning)) {
        return Some(why);
    }
    // As if the answers were the same: what is left must be.
    let mut alike = reference.clone();
    for field in ["success", "answer"] {
        alike[field] = ours[field].clone();
    }
    if difference(ours, &alike).is_some() || reference["success"] == true {
        return None;
    }
    if ours["success"] == false {
        return reference["answer"]["code"].is_null().then_some(CODE);
    }
    (command == "DEL").then_some(GONE)
}

/// Those of the declared differences that none of the steps `seen` had.
pub fn unseen<'a>(seen: &'a [String]) -> impl Iterator<Item = &'static str> + use<'a> {
    NAMED.iter().map(|(beginning, _)| *beginning).filter(|b| !seen.iter().any(|name| name.starts_with(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_may_say_more_and_a_removal_less_if_what_is_left_is_the_same() {
        let side = |success: bool, code: Value, links: Value| {
            let answer = if success { Value::Null } else { json!({"code": code}) };
            json!({"success": success, "answer": answer, "Pod": {"links": links}})
        };
        let none = Value::Null;
        let rows = [
            ("ADD", side(false, json!(7), none.clone()), side(false, none.clone(), none.clone()), Some(CODE)),
            ("ADD", side(false, none.clone(), none.clone()), side(false, json!(7), none.clone()), None),
            ("ADD", side(true, none.clone(), none.clone()), side(false, none.clone(), none.clone()), None),
            (
                "DEL",
                side(true, none.clone(), none.clone()),
                side(false, none.clone(), none.clone()),
                Some(GONE),
            ),
            ("DEL", side(true, none.clone(), json!(["x"])), side(false, none.clone(), none.clone()), None),
            ("DEL", side(false, json!(7), none.clone()), side(true, none.clone(), none.clone()), None),
        ];
        for (command, ours, reference, expected) in rows {
            assert_eq!(reason("x", command, &ours, &reference), expected, "{command} {ours} {reference}");
        }
    }
}

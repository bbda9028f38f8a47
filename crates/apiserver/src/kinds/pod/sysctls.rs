//! What a Pod's kernel settings may not be. Which of them a node allows is the node's affair.

use crate::kinds::fields::{items, text};
use crate::kinds::{Cause, Causes};
use serde_json::Value;
use std::collections::BTreeSet;

/// The longest name.
const LONGEST: usize = 253;
/// What the parts of a name are, between dots or slashes.
const FORM: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
/// Names of the IPC namespace besides `fs.mqueue.*` (upstream's list; two are prefixes there that nobody writes any more).
const IPC: [&str; 10] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

/// Checks the settings of a Pod's spec.
pub fn all(spec: &Value, path: &str, causes: &mut Causes) {
    let mut seen = BTreeSet::new();
    for (i, sysctl) in items(&spec["securityContext"], "sysctls").iter().enumerate() {
        let field = format!("{path}.securityContext.sysctls[{i}].name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            causes.add(Cause::required(&field, ""));
        } else if !well_formed(name) {
            let detail = format!("must have at most {LONGEST} characters and match regex {FORM}");
            causes.add(Cause::invalid(&field, name, &detail));
        } else if !seen.insert(name) {
            causes.add(Cause::duplicate(&field, name));
        }
        let dotted = name.replace('/', ".");
        if spec["hostNetwork"] == true && dotted.starts_with("net.") {
            causes.add(Cause::invalid(&field, name, "may not be specified when 'hostNetwork' is true"));
        }
        let ipc = IPC.contains(&dotted.as_str()) || dotted.starts_with("fs.mqueue.");
        if spec["hostIPC"] == true && ipc {
            causes.add(Cause::invalid(&field, name, "may not be specified when 'hostIPC' is true"));
        }
    }
}

fn well_formed(name: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    name.len() <= LONGEST
        && name.split(['.', '/']).all(|part| {
            edge(part.chars().next()) && edge(part.chars().next_back()) && part.chars().all(inner)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_have_a_form_and_shared_namespaces_are_not_set() {
        let rows = [
            (json!({}), "kernel.shmmax", ""),
            (json!({}), "safe-and-unsafe", ""),
            (json!({}), "net/ipv4/tcp_syncookies", ""),
            (
                json!({}),
                "foo-",
                "s.securityContext.sysctls[0].name: Invalid value: \"foo-\": must have at most 253",
            ),
            (json!({}), "bar..", "s.securityContext.sysctls[0].name: Invalid value: \"bar..\""),
            (json!({}), "", "s.securityContext.sysctls[0].name: Required value"),
            (json!({"hostNetwork": true}), "net.ipv4.x", "may not be specified when 'hostNetwork' is true"),
            (json!({"hostIPC": true}), "net.ipv4.x", ""),
            (json!({"hostIPC": true}), "kernel.sem", "may not be specified when 'hostIPC' is true"),
        ];
        for (mut spec, name, expected) in rows {
            spec["securityContext"] = json!({"sysctls": [{"name": name, "value": "1"}]});
            let mut causes = Causes::default();
            all(&spec, "s", &mut causes);
            let said: Vec<String> = causes.0.iter().map(ToString::to_string).collect();
            match expected {
                "" => assert!(said.is_empty(), "{name}: {said:?}"),
                text => assert!(said.len() == 1 && said[0].contains(text), "{name}: {said:?}"),
            }
        }
        let mut causes = Causes::default();
        all(&json!({"securityContext": {"sysctls": [{"name": "a"}, {"name": "a"}]}}), "s", &mut causes);
        assert_eq!(causes.0[0].to_string(), "s.securityContext.sysctls[1].name: Duplicate value: \"a\"");
    }
}

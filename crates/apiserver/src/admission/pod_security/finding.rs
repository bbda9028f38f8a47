//! What a policy has against a Pod, and whom it concerns.

use serde_json::Value;

use crate::registry::text;

/// One thing against a Pod: a reason, with details.
#[derive(Debug)]
pub struct Finding {
    /// In a few words.
    pub reason: &'static str,
    /// Who, what, and what instead.
    pub detail: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.reason, self.detail)
    }
}

/// Looks for one thing in a Pod.
pub type Check = fn(&Value) -> Option<Finding>;

/// All containers of a Pod, in the order in which policies name them.
pub fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    lists.into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
}

/// The names of the containers for which something holds.
pub fn those(pod: &Value, holds: impl Fn(&Value) -> bool) -> Vec<String> {
    containers(pod).filter(|c| holds(c)).map(|c| text(&c["name"]).to_owned()).collect()
}

/// `"a", "b"`.
pub fn quoted(names: &[String]) -> String {
    names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ")
}

/// `container "a"`, `containers "a", "b"`.
pub fn named(word: &str, names: &[String]) -> String {
    format!("{} {}", plural(word, names.len()), quoted(names))
}

/// The word for so many.
pub fn plural(word: &str, count: usize) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// Who set something: the Pod, containers, or both; `None` if nobody did.
pub fn setters(pod_did: bool, containers: &[String]) -> Option<String> {
    let mut who = Vec::new();
    if pod_did {
        who.push("pod".to_owned());
    }
    if !containers.is_empty() {
        who.push(named("container", containers));
    }
    (!who.is_empty()).then(|| who.join(" and "))
}

/// Sorted, each once.
pub fn distinct(mut list: Vec<String>) -> Vec<String> {
    list.sort();
    list.dedup();
    list
}

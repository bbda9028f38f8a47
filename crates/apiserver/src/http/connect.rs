//! Before somebody connects to what an object stands for: those who are configured to decide see what is asked for.

use http::Uri;
use serde_json::{Value, json};

use crate::admission::act;
use crate::admission::attempt::Operation;
use crate::asked::{Asked, doing};
use crate::registry::Registry;
use crate::request::{Query, Target, decode};
use crate::status::ApiError;

/// Parameters that are yes or no.
const FLAGS: [&str; 4] = ["stdin", "stdout", "stderr", "tty"];

/// Asks about a command, an attachment, a forwarded port or a proxied request; gives the warnings. Logs are only read.
///
/// # Errors
/// The first refusal.
pub(super) async fn admit(registry: &Registry, target: &Target, uri: &Uri) -> Result<Vec<String>, ApiError> {
    let part = target.subresource.as_deref().unwrap_or_default();
    if part == "log" {
        return Ok(Vec::new());
    }
    let query = uri.query().unwrap_or_default();
    let mut options = options(target, part, query);
    // Ports and schemes stand beside the name.
    let name = target.name.as_deref().unwrap_or_default();
    let place = (part, target.namespace.as_str(), name);
    let asking = act(registry, Operation::Connect, place, (&mut options, None), false);
    let (admitted, warnings) = doing(Asked::of(target, &Query::parse(query)), asking).await;
    admitted.map(|()| warnings)
}

/// The parameters as the object that they stand for: `PodExecOptions` and its like.
fn options(target: &Target, part: &str, query: &str) -> Value {
    let mut options = match target.resource.subresource(part) {
        Some(part) => json!({"kind": part.kind, "apiVersion": "v1"}),
        None => json!({}),
    };
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    for (key, value) in pairs.map(|(key, value)| (decode(key), decode(value))) {
        match key.as_str() {
            flag if FLAGS.contains(&flag) => {
                if matches!(value.as_str(), "true" | "1") {
                    options[flag] = true.into();
                }
            }
            known @ ("container" | "path") => options[known] = value.into(),
            "command" => {
                let mut words = options["command"].as_array().cloned().unwrap_or_default();
                words.push(value.into());
                options["command"] = words.into();
            }
            "ports" => {
                let mut ports = options["ports"].as_array().cloned().unwrap_or_default();
                ports.extend(value.split(',').filter_map(|p| p.parse::<u16>().ok()).map(Value::from));
                options["ports"] = ports.into();
            }
            _ => {}
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn parameters_become_the_object_that_they_stand_for() {
        let resource = Catalog::new().now().find("", "v1", "pods").unwrap().clone();
        let target =
            Target { resource, namespace: "d".to_owned(), name: Some("p".to_owned()), subresource: None };
        let read = options(&target, "exec", "command=ls&command=-l%20x&stdin=true&tty=false&container=c");
        assert_eq!(
            read,
            json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["ls", "-l x"], "stdin": true, "container": "c"})
        );
    }
}

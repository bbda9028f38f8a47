//! DELETE: at once, after a grace period, or when nothing holds the object any more.

use serde_json::{Value, json};
use trine_objects::time;
use trine_store::Expect;

use super::dependents::{Dependents, hold};
use super::update::{may_go, parse};
use crate::admission::{self, Change};
use crate::registry::{Registry, now_unix, text};
use crate::request::{Query, Target};
use crate::status::ApiError;

/// How often a delete is tried again after losing a race.
const RETRIES: usize = 8;
/// Kinds whose last state is the answer; the others give a Status. Upstream: `ReturnDeletedObject`.
const RETURNED: [&str; 4] = ["pods", "persistentvolumeclaims", "persistentvolumes", "serviceaccounts"];

/// What a client wants of a deletion.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Seconds; only Pods know them.
    pub grace: Option<i64>,
    /// What becomes of what the object owns.
    pub dependents: Option<Dependents>,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
}

impl Options {
    /// From the body (`DeleteOptions`) and the query, which may both be empty.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`].
    pub fn parse(query: &Query, body: &Value) -> Result<Self, ApiError> {
        let grace = query.get("gracePeriodSeconds").map(|v| {
            v.parse::<i64>()
                .map_err(|_| ApiError::BadRequest(format!("gracePeriodSeconds: {v:?} is not a number")))
        });
        let grace = grace.transpose()?;
        let given = |v: &Value| Some(text(v).to_owned()).filter(|t| !t.is_empty());
        let asked = body["dryRun"].as_array().is_some_and(|d| d.iter().any(|v| v == "All"));
        Ok(Self {
            // Less than nothing is the shortest time.
            grace: body["gracePeriodSeconds"].as_i64().or(grace).map(|g| if g < 0 { 1 } else { g }),
            dependents: Dependents::parse(query, body)?,
            uid: given(&body["preconditions"]["uid"]),
            resource_version: given(&body["preconditions"]["resourceVersion"]),
            dry_run: query.dry_run()? || asked,
        })
    }
}

impl Options {
    /// Whether nothing is to be deleted.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether the object is the one that is meant.
    ///
    /// # Errors
    /// [`ApiError::Conflict`].
    pub fn admit(&self, target: &Target, name: &str, object: &Value) -> Result<(), ApiError> {
        preconditions(target, name, object, self)
    }
}

/// Deletes one object; gives the answer for the client.
///
/// # Errors
/// [`ApiError`].
pub async fn delete(registry: &Registry, target: &Target, options: &Options) -> Result<Value, ApiError> {
    let resource = &target.resource;
    let name = target.name.as_deref().unwrap_or_default();
    for attempt in 0.. {
        let current = registry.get(resource, &target.namespace, name)?;
        let old = parse(current.json())?;
        preconditions(target, name, &old, options)?;
        let subresource = target.subresource.as_deref().unwrap_or_default();
        let change = Change { resource, subresource, old: Some(&old), dry_run: options.dry_run };
        admission::validate(registry, &change, None, &mut Vec::new()).await?;
        let object = {
            let mut held = old.clone();
            resource.hooks().before_delete(&mut held);
            if resource.plural != "events" {
                hold(&mut held, options.dependents, resource.hooks().orphans_by_default());
            }
            marked(&resource.plural, &held, options.grace)
        };
        if options.dry_run {
            return Ok(object);
        }
        let gone = may_go(&object);
        let done = if gone {
            registry.remove(resource, &object, current.revision).await
        } else if object == old {
            Ok(object)
        } else {
            registry.put(resource, object, Expect::At(current.revision)).await.map(|stored| stored.object)
        };
        match done {
            Err(ApiError::Conflict { .. }) if attempt < RETRIES => {}
            Err(error) => return Err(error),
            Ok(object) => {
                if gone {
                    let mut cx = registry.cx();
                    resource.hooks().after_delete(&object, &mut cx);
                    cx.commit();
                }
                return Ok(if gone && !RETURNED.contains(&&*resource.plural) {
                    success(target, &object)
                } else {
                    object
                });
            }
        }
    }
    Err(ApiError::Internal("no end of retries".to_owned()))
}

fn preconditions(target: &Target, name: &str, object: &Value, options: &Options) -> Result<(), ApiError> {
    let meta = &object["metadata"];
    let differs = |wanted: &Option<String>, have: &Value| wanted.as_ref().is_some_and(|w| w != text(have));
    let why = if differs(&options.uid, &meta["uid"]) {
        format!(
            "Precondition failed: UID in precondition: {}, UID in object meta: {}",
            options.uid.clone().unwrap_or_default(),
            text(&meta["uid"])
        )
    } else if differs(&options.resource_version, &meta["resourceVersion"]) {
        format!(
            "Precondition failed: ResourceVersion in precondition: {}, ResourceVersion in object meta: {}",
            options.resource_version.clone().unwrap_or_default(),
            text(&meta["resourceVersion"])
        )
    } else {
        return Ok(());
    };
    Err(ApiError::Conflict { resource: target.resource.qualified(), name: name.to_owned(), why })
}

/// The object as being deleted. A grace period that runs already can only become shorter.
fn marked(plural: &str, old: &Value, asked: Option<i64>) -> Value {
    let mut object = old.clone();
    let grace = if plural == "pods" { pod_grace(old, asked) } else { 0 };
    let running = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let deleting = !old["metadata"]["deletionTimestamp"].is_null();
    if deleting && running.is_some_and(|r| r <= grace) {
        return object;
    }
    let meta = &mut object["metadata"];
    meta["deletionTimestamp"] = time::format(now_unix() + grace).into();
    meta["deletionGracePeriodSeconds"] = grace.into();
    if !deleting && let Some(generation) = meta["generation"].as_i64() {
        meta["generation"] = (generation + 1).into();
    }
    if plural == "namespaces" {
        object["status"]["phase"] = "Terminating".into();
    }
    object
}

/// A Pod that nobody runs, or that has ended, needs no grace.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let unplaced = text(&pod["spec"]["nodeName"]).is_empty();
    let ended = matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed");
    if unplaced || ended {
        return 0;
    }
    asked.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30)
}

fn success(target: &Target, object: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": {
        "name": object["metadata"]["name"], "group": target.resource.group, "kind": target.resource.plural,
        "uid": object["metadata"]["uid"]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_runs_for_placed_pods_and_only_becomes_shorter() {
        let pod = json!({"metadata": {}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 7}});
        let grace = |o: &Value| o["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let first = marked("pods", &pod, None);
        assert_eq!(grace(&first), Some(7));
        assert_eq!(grace(&marked("pods", &first, Some(60))), Some(7));
        assert_eq!(grace(&marked("pods", &first, Some(0))), Some(0));
        assert!(may_go(&marked("pods", &first, Some(0))));
        assert_eq!(grace(&marked("pods", &json!({"metadata": {}, "spec": {}}), None)), Some(0));
        let mut held = pod;
        held["metadata"]["finalizers"] = json!(["x"]);
        assert!(!may_go(&marked("pods", &held, Some(0))));
    }
}

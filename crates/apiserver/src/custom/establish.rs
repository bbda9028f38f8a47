//! From a definition to what is served: accepts its names, publishes it, and cleans up after it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trine_objects::{conditions, time};
use trine_store::Expect;
use trine_store::cache::Part;

use super::Definition;
use super::definition::is_terminating;
use super::hooks::CLEANUP;
use crate::catalog::{Catalog, Served};
use crate::changes::Changes;
use crate::registry::{Registry, now_unix, prefix, revision, scope, text};
use crate::request::Target;
use crate::status::ApiError;
use crate::verbs::{delete, update};

/// How often it is looked whether the objects of a deleted definition are gone.
const CLEANUP_PERIOD: Duration = Duration::from_millis(300);

/// What a definition's state is to become.
#[derive(Debug, Clone, PartialEq)]
struct Verdict {
    /// The definition with its new status.
    object: Value,
    /// Whether it is served.
    served: bool,
    /// Whether its objects are to be removed.
    cleanup: bool,
}

/// Follows the definitions until `stop`: publishes what they define, and says so in their status. What is defined already
/// is published when this returns for the first time, before the server answers anybody.
///
/// # Errors
/// [`ApiError`] if definitions are not served.
pub async fn establish(
    registry: &Arc<Registry>,
    background: &TaskTracker,
    stop: CancellationToken,
) -> Result<(), ApiError> {
    let definitions = registry.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")?;
    let mut published = Published::default();
    let mut changes = Changes::of(registry, [Arc::clone(&definitions)]);
    let mut pending = round(registry, &definitions, &mut published).await;
    let registry = Arc::clone(registry);
    background.spawn(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CLEANUP_PERIOD), if pending => {}
                () = changes.next() => {}
            }
            pending = round(&registry, &definitions, &mut published).await;
        }
    });
    Ok(())
}

/// What is served, each definition beside what it was read from: reading one compiles its rules.
#[derive(Default)]
struct Published(Vec<(Value, Definition)>);

impl Published {
    /// Serves exactly what these verdicts say; what has not changed is not read again.
    fn update(&mut self, catalog: &Catalog, verdicts: &[Verdict]) {
        let served = verdicts.iter().filter(|v| v.served).map(|v| {
            let object = &v.object;
            let read = json!([
                object["metadata"]["name"],
                object["spec"],
                object["status"]["acceptedNames"],
                is_terminating(object),
            ]);
            let known = self.0.iter().find(|(from, _)| *from == read);
            let definition = known.map_or_else(|| Definition::read(object), |(_, known)| known.clone());
            (read, definition)
        });
        let served: Vec<(Value, Definition)> = served.collect();
        let same = served.iter().map(|(from, _)| from).eq(self.0.iter().map(|(from, _)| from));
        if !same {
            catalog.define(served.iter().map(|(_, definition)| definition));
            self.0 = served;
        }
    }
}

/// Brings everything to the state of the moment; says whether objects remain to be removed.
async fn round(registry: &Arc<Registry>, definitions: &Arc<Served>, published: &mut Published) -> bool {
    let listed = registry.prefix(definitions).list(&Part::all(&prefix(definitions)));
    let objects: Vec<Value> =
        listed.objects.iter().filter_map(|o| serde_json::from_slice(o.json()).ok()).collect();
    let verdicts = plan(&objects, &time::format(now_unix()));
    published.update(registry.catalog(), &verdicts);
    let mut pending = false;
    for (verdict, old) in verdicts.iter().zip(&objects) {
        let done = if verdict.cleanup {
            cleanup(registry, definitions, verdict).await.map(|gone| pending |= !gone)
        } else if verdict.object != *old {
            let at = Expect::At(revision(old));
            registry.put(definitions, verdict.object.clone(), at).await.map(drop)
        } else {
            Ok(())
        };
        if let Err(error) = done {
            // Who changed it meanwhile causes the next round.
            tracing::debug!(definition = text(&old["metadata"]["name"]), %error, "definition not updated");
            pending = true;
        }
    }
    pending
}

/// What becomes of each definition. Names are given to who has them, then to who came first.
fn plan(objects: &[Value], now: &str) -> Vec<Verdict> {
    let mut order: Vec<usize> = (0..objects.len()).collect();
    order.sort_by_key(|i| {
        let object = &objects[*i];
        let meta = &object["metadata"];
        let accepted = !text(&object["status"]["acceptedNames"]["kind"]).is_empty();
        (!accepted, text(&meta["creationTimestamp"]).to_owned(), text(&meta["name"]).to_owned())
    });
    let mut taken: Vec<(String, String, String)> = Vec::new();
    let mut verdicts: Vec<Option<Verdict>> = vec![None; objects.len()];
    for i in order {
        let mut object = objects[i].clone();
        let names = object["spec"]["names"].clone();
        let group = text(&object["spec"]["group"]).to_owned();
        let wanted = wanted(&names);
        let in_use = wanted
            .iter()
            .find(|(role, name)| taken.iter().any(|(g, r, n)| *g == group && r == role && n == name));
        match in_use {
            None => {
                object["status"]["acceptedNames"] = names;
                conditions::set(&mut object, "NamesAccepted", true, "NoConflicts", "no conflicts found", now);
                let message = "the initial names have been accepted";
                conditions::set(&mut object, "Established", true, "InitialNamesAccepted", message, now);
                taken.extend(
                    wanted.iter().map(|(role, name)| (group.clone(), (*role).to_owned(), name.clone())),
                );
            }
            Some((role, name)) => {
                let reason = format!("{}Conflict", reason_of(role));
                let message = format!("{name:?} is already in use");
                conditions::set(&mut object, "NamesAccepted", false, &reason, &message, now);
                if !conditions::is_true(&object, "Established") {
                    let message = "not all names are accepted";
                    conditions::set(&mut object, "Established", false, "NotAccepted", message, now);
                }
            }
        }
        let held = object["metadata"]["finalizers"].as_array().is_some_and(|f| f.contains(&CLEANUP.into()));
        let cleanup = held && !object["metadata"]["deletionTimestamp"].is_null();
        let served = conditions::is_true(&object, "Established");
        verdicts[i] = Some(Verdict { object, served, cleanup });
    }
    verdicts.into_iter().flatten().collect()
}

/// The names that a definition asks for, by what they are: plurals, singulars and short names share one space.
fn wanted(names: &Value) -> Vec<(&'static str, String)> {
    let mut wanted = vec![("plural", text(&names["plural"]).to_owned())];
    let mut add = |role, name: &str| {
        if !name.is_empty() && !wanted.iter().any(|(r, n)| *r == role && n == name) {
            wanted.push((role, name.to_owned()));
        }
    };
    add("plural", text(&names["singular"]));
    names["shortNames"].as_array().into_iter().flatten().for_each(|n| add("plural", text(n)));
    add("kind", text(&names["kind"]));
    add("kind", text(&names["listKind"]));
    wanted
}

fn reason_of(role: &str) -> &'static str {
    if role == "kind" { "Kind" } else { "Plural" }
}

/// Removes the objects of a definition that is deleted, and with the last of them what holds it. Says whether it is gone.
async fn cleanup(
    registry: &Arc<Registry>,
    definitions: &Arc<Served>,
    verdict: &Verdict,
) -> Result<bool, ApiError> {
    let spec = &verdict.object["spec"];
    let resources = registry.catalog().now();
    if let Some(stored) = resources.stored(text(&spec["group"]), text(&spec["names"]["plural"])) {
        let all = registry.prefix(stored).list(&Part::all(&scope(stored, "")));
        for object in &all.objects {
            let object = update::parse(object.json())?;
            let target = Target {
                resource: Arc::clone(stored),
                namespace: text(&object["metadata"]["namespace"]).to_owned(),
                name: Some(text(&object["metadata"]["name"]).to_owned()),
                subresource: None,
            };
            match delete::delete(registry, &target, &delete::Options::default()).await {
                Ok(_) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if registry.prefix(stored).any(&scope(stored, "")) {
            return Ok(false);
        }
    }
    let mut object = verdict.object.clone();
    if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|f| f != CLEANUP);
    }
    let message = "removed all instances";
    let now = time::format(now_unix());
    conditions::set(&mut object, "Terminating", false, "InstanceDeletionCompleted", message, &now);
    let at = revision(&object);
    if update::may_go(&object) {
        registry.remove(definitions, &object, at).await?;
    } else {
        registry.put(definitions, object, Expect::At(at)).await?;
    }
    Ok(true)
}

/// What is shown before anything was decided.
#[must_use]
pub(super) fn nothing_accepted() -> Value {
    json!({"plural": "", "kind": ""})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, kind: &str, created: &str) -> Value {
        json!({"metadata": {"name": format!("{name}.x.io"), "creationTimestamp": created},
            "spec": {"group": "x.io", "names": {"plural": name, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List")}},
            "status": {"acceptedNames": nothing_accepted()}})
    }

    #[test]
    fn who_came_first_has_the_name() {
        let early = definition("as", "A", "2026-01-01T00:00:00Z");
        let late = definition("others", "A", "2026-01-02T00:00:00Z");
        let verdicts = plan(&[late, early], "now");
        assert!(!verdicts[0].served && verdicts[1].served);
        let condition = conditions::find(&verdicts[0].object, "NamesAccepted").unwrap();
        assert_eq!(
            (text(&condition["reason"]), text(&condition["message"])),
            ("PluralConflict", "\"a\" is already in use")
        );
        assert_eq!(verdicts[1].object["status"]["acceptedNames"]["plural"], "as");
    }

    #[test]
    fn what_is_established_stays_so_and_changes_nothing() {
        let first = plan(&[definition("as", "A", "t")], "now").remove(0).object;
        let again = plan(std::slice::from_ref(&first), "later").remove(0);
        assert_eq!(again, Verdict { object: first, served: true, cleanup: false });
    }

    #[test]
    fn what_has_not_changed_is_neither_read_nor_published_again() {
        let (catalog, mut published) = (Catalog::new(), Published::default());
        let mut object = definition("as", "A", "t");
        object["spec"]["versions"] = json!([{"name": "v1", "served": true, "storage": true}]);
        published.update(&catalog, &plan(std::slice::from_ref(&object), "now"));
        let first = catalog.now();
        let served = first.find("x.io", "v1", "as").unwrap();
        object["metadata"]["labels"] = json!({"a": "b"});
        published.update(&catalog, &plan(std::slice::from_ref(&object), "now"));
        assert!(std::sync::Arc::ptr_eq(&first, &catalog.now()));
        let other = definition("others", "Other", "t");
        published.update(&catalog, &plan(&[object, other], "now"));
        let now = catalog.now();
        let kept = now.find("x.io", "v1", "as").unwrap();
        assert!(std::sync::Arc::ptr_eq(served.custom().unwrap(), kept.custom().unwrap()));
        published.update(&catalog, &[]);
        assert!(catalog.now().find("x.io", "v1", "as").is_none());
    }

    #[test]
    fn a_deleted_definition_is_cleaned_up_while_it_is_held() {
        let mut object = definition("as", "A", "t");
        object["metadata"]["deletionTimestamp"] = "t".into();
        assert!(!plan(std::slice::from_ref(&object), "now")[0].cleanup);
        object["metadata"]["finalizers"] = json!([CLEANUP]);
        assert!(plan(&[object], "now")[0].cleanup);
    }
}

//! Keeps an APIService for each group and version that this server serves: those that are built in are made at the start,
//! those of definitions follow them. Source: `kube-aggregator` controllers/autoregister, `crdregistration`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trine_store::Expect;

use super::order::{Rank, rank};
use super::{GROUP, PLURAL};
use crate::catalog::{Resources, Served};
use crate::changes::Changes;
use crate::kinds::Objects;
use crate::registry::{Registry, revision, text};
use crate::status::ApiError;
use crate::verbs::create;
use crate::verbs::options::WriteOptions;

/// Says how the server keeps an APIService.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const AT_START: &str = "onstart";
const ALWAYS: &str = "true";

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
enum Action {
    Create(Value),
    /// The object as it is to be.
    Update(Value),
    Delete(Value),
}

/// What this server serves, by the names of the APIServices: their ranks, and whether they follow definitions.
fn wanted(resources: &Resources) -> BTreeMap<String, (String, String, Rank, bool)> {
    let own = resources.iter().filter(|r| r.group != GROUP);
    own.map(|r| {
        let (group, version) = (r.group.to_string(), r.version.to_string());
        (format!("{version}.{group}"), (group, version, rank(r), r.custom().is_some()))
    })
    .collect()
}

/// What is to be done about the APIServices. Those that say nothing of being managed are somebody's own.
fn plan(resources: &Resources, current: &[Value], starting: bool) -> Vec<Action> {
    let wanted = wanted(resources);
    let mut actions = Vec::new();
    for (name, (group, version, rank, follows)) in &wanted {
        let spec = json!({"group": group, "version": version, "groupPriorityMinimum": rank.group,
            "versionPriority": rank.version});
        let managed = if *follows { ALWAYS } else { AT_START };
        match current.iter().find(|c| text(&c["metadata"]["name"]) == name) {
            None if *follows || starting => {
                let metadata = json!({"name": name, "labels": {MANAGED: managed}});
                actions.push(Action::Create(json!({"metadata": metadata, "spec": spec})));
            }
            None => {}
            Some(there) => {
                let kept = match text(&there["metadata"]["labels"][MANAGED]) {
                    ALWAYS => true,
                    AT_START => starting,
                    _ => false,
                };
                if kept && there["spec"] != spec {
                    let mut object = there.clone();
                    object["spec"] = spec;
                    actions.push(Action::Update(object));
                }
            }
        }
    }
    let unwanted = current.iter().filter(|c| !wanted.contains_key(text(&c["metadata"]["name"])));
    actions.extend(unwanted.filter_map(|c| match text(&c["metadata"]["labels"][MANAGED]) {
        ALWAYS => Some(Action::Delete(c.clone())),
        AT_START if starting => Some(Action::Delete(c.clone())),
        _ => None,
    }));
    actions
}

/// Makes what is missing, then keeps the APIServices until `stop` in the future that is given.
///
/// # Errors
/// [`ApiError`] if APIServices are not served.
pub async fn register(
    registry: Arc<Registry>,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + Send, ApiError> {
    let services = registry.resource(GROUP, "v1", PLURAL)?;
    let mut served = registry.catalog().changes();
    served.borrow_and_update();
    let mut changes = Changes::of(&registry, [Arc::clone(&services)]);
    round(&registry, &services, true).await;
    Ok(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = served.changed() => {}
                () = changes.next() => {}
            }
            round(&registry, &services, false).await;
        }
    })
}

/// Brings the APIServices to the state of the moment, all at once, so that the disk is waited for once.
async fn round(registry: &Registry, services: &Arc<Served>, starting: bool) {
    let current = Objects::list(registry, GROUP, PLURAL);
    let actions = plan(&registry.catalog().now(), &current, starting);
    let all = actions.into_iter().map(|action| act(registry, services, action));
    for error in futures::future::join_all(all).await.into_iter().filter_map(Result::err) {
        // Who changed it meanwhile causes the next round.
        tracing::debug!(%error, "an APIService is not kept");
    }
}

async fn act(registry: &Registry, services: &Arc<Served>, action: Action) -> Result<(), ApiError> {
    match action {
        Action::Create(object) => {
            let made = create::create(registry, services, "", object, &WriteOptions::of_server()).await;
            match made {
                Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        }
        Action::Update(object) => {
            let at = Expect::At(revision(&object));
            registry.put(services, object, at).await.map(drop)
        }
        Action::Delete(object) => registry.remove(services, &object, revision(&object)).await.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::custom::Definition;

    fn catalog(versions: &[&str]) -> Catalog {
        let versions = versions.iter().enumerate();
        let versions = versions.map(|(i, v)| json!({"name": v, "served": true, "storage": i == 0}));
        let definition = json!({"metadata": {"name": "as.x.io"}, "spec": {"group": "x.io", "names": {"plural": "as", "kind": "A"},
            "versions": versions.collect::<Vec<_>>()}});
        let catalog = Catalog::new();
        catalog.define([&Definition::read(&definition)]);
        catalog
    }

    fn done(actions: &[Action], current: &mut Vec<Value>) {
        for action in actions {
            match action {
                Action::Create(object) => current.push(object.clone()),
                Action::Update(object) => {
                    let name = &object["metadata"]["name"];
                    current.retain(|c| c["metadata"]["name"] != *name);
                    current.push(object.clone());
                }
                Action::Delete(object) => current.retain(|c| c != object),
            }
        }
    }

    #[test]
    fn what_is_served_is_made_and_then_nothing_is_left_to_do() {
        let resources = catalog(&["v1", "v2"]).now();
        let mut current = Vec::new();
        done(&plan(&resources, &current, true), &mut current);
        assert_eq!(plan(&resources, &current, false), []);
        assert_eq!(plan(&resources, &current, true), []);
        let of = |name: &str| current.iter().find(|c| c["metadata"]["name"] == name).cloned();
        assert_eq!(of("v1.").unwrap()["spec"]["groupPriorityMinimum"], 18_000);
        assert_eq!(of("v2.x.io").unwrap()["metadata"]["labels"][MANAGED], ALWAYS);
        assert_eq!(of(&format!("v1.{GROUP}")), None);
        // A version that is not served any more takes its APIService with it; a changed one is set right.
        let changed = |c: &mut Value| c["spec"]["versionPriority"] = 1.into();
        current.iter_mut().filter(|c| c["metadata"]["name"] == "v1.x.io").for_each(changed);
        let actions = plan(&catalog(&["v1"]).now(), &current, false);
        assert!(
            matches!(&actions[..], [Action::Update(a), Action::Delete(b)]
            if a["metadata"]["name"] == "v1.x.io" && b["metadata"]["name"] == "v2.x.io"),
            "{actions:?}"
        );
    }

    #[test]
    fn what_is_built_in_is_looked_after_at_the_start_and_what_is_somebodys_own_never() {
        let resources = Catalog::new().now();
        let mut current = Vec::new();
        done(&plan(&resources, &current, true), &mut current);
        current.retain(|c| c["metadata"]["name"] != "v1.apps");
        assert_eq!(plan(&resources, &current, false), []);
        assert_eq!(plan(&resources, &current, true).len(), 1);
        let own = json!({"metadata": {"name": "v1.x.io"}, "spec": {"group": "x.io", "version": "v1", "service": {}}});
        current.push(own);
        let actions = plan(&catalog(&["v1"]).now(), &current, false);
        assert_eq!(actions, []);
    }
}

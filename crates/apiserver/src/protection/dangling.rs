//! Says in a FlowSchema's status whether the level that it names is there. Source: apiserver `flowcontrol/apf_controller.go`.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use trine_objects::{conditions, time};
use trine_store::Expect;

use super::config::{GROUP, SOURCES};
use crate::changes::Changes;
use crate::kinds::Objects;
use crate::registry::{Registry, now_unix, revision, text};
use crate::status::ApiError;

/// The schemas whose status is to be another.
fn plan(schemas: &[Value], levels: &[Value], now: &str) -> Vec<Value> {
    let stale = |schema: &Value| {
        let level = text(&schema["spec"]["priorityLevelConfiguration"]["name"]);
        let there = levels.iter().any(|l| text(&l["metadata"]["name"]) == level);
        let (reason, end) =
            if there { ("Found", "and it exists") } else { ("NotFound", "but there is no such object") };
        let message =
            format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}");
        let mut object = schema.clone();
        conditions::set(&mut object, "Dangling", !there, reason, &message, now).then_some(object)
    };
    schemas.iter().filter_map(stale).collect()
}

async fn round(registry: &Registry) -> Result<(), ApiError> {
    let [schemas, levels] = SOURCES.map(|plural| Objects::list(registry, GROUP, plural));
    let resource = registry.resource(GROUP, "v1", SOURCES[0])?;
    let changed = plan(&schemas, &levels, &time::format(now_unix()));
    // Together, so that the disk is waited for once.
    let all = changed.into_iter().map(|object| {
        let at = Expect::At(revision(&object));
        registry.put(&resource, object, at)
    });
    for error in futures::future::join_all(all).await.into_iter().filter_map(Result::err) {
        // Who changed it meanwhile causes the next round.
        tracing::debug!(%error, "a FlowSchema's status is not written");
    }
    Ok(())
}

/// Says so of all, then keeps it true until `stop` in the future that is given.
///
/// # Errors
/// [`ApiError`] if a kind is not served that this is about.
pub async fn follow(
    registry: Arc<Registry>,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + Send, ApiError> {
    let mut kinds = Vec::new();
    for plural in SOURCES {
        kinds.push(registry.resource(GROUP, "v1", plural)?);
    }
    let mut changes = Changes::of(&registry, kinds);
    round(&registry).await?;
    Ok(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = changes.next() => {}
            }
            if let Err(error) = round(&registry).await {
                tracing::debug!(%error, "FlowSchemas are not looked at");
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_dangles_while_its_level_is_missing() {
        let schema =
            json!({"metadata": {"name": "s"}, "spec": {"priorityLevelConfiguration": {"name": "l"}}});
        let dangling = plan(std::slice::from_ref(&schema), &[], "t").remove(0);
        let condition = conditions::find(&dangling, "Dangling").unwrap();
        assert_eq!((text(&condition["status"]), text(&condition["reason"])), ("True", "NotFound"));
        let level = json!({"metadata": {"name": "l"}});
        let found = plan(&[dangling], std::slice::from_ref(&level), "t").remove(0);
        let condition = conditions::find(&found, "Dangling").unwrap();
        let message =
            "This FlowSchema references the PriorityLevelConfiguration object named \"l\" and it exists";
        assert_eq!((text(&condition["status"]), text(&condition["message"])), ("False", message));
        assert_eq!(plan(&[found], &[level], "later"), Vec::<Value>::new());
    }
}

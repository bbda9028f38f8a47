//! A namespace that is being deleted is emptied, its Pods before all else (KEP-5080), then released by taking `kubernetes` from its
//! finalizers. Its conditions say what holds it up.

mod act;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::Namespace;
use trine_typed::mirror::Mirror;

use act::Kinds;

use crate::frame::{Cx, log};

const PERIOD: Duration = Duration::from_secs(300);
/// How many namespaces are emptied beside each other.
const BESIDE: usize = 4;

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let changed = Arc::new(Notify::new());
    let namespaces: Mirror<Namespace> = cx.mirror(&changed);
    namespaces.ready().await;
    loop {
        let mut leaving = namespaces.all();
        leaving.retain(|namespace| namespace.metadata.deletion_timestamp.is_some());
        let again = visit_all(&cx, leaving).await;
        if !cx.turn(&changed, again).await {
            return;
        }
    }
}

/// Visits these; when to visit them again.
async fn visit_all(cx: &Cx, leaving: Vec<Arc<Namespace>>) -> Duration {
    if leaving.is_empty() {
        return PERIOD;
    }
    let kinds = match Kinds::discover(cx).await {
        Ok(kinds) => kinds,
        Err(error) => {
            log("namespace", &error);
            return leaving.iter().map(|namespace| pause(namespace)).fold(PERIOD, Duration::min);
        }
    };
    futures::stream::iter(leaving)
        .map(|namespace| {
            let kinds = &kinds;
            async move { visit(cx, &namespace, kinds).await }
        })
        .buffer_unordered(BESIDE)
        .filter_map(std::future::ready)
        .fold(PERIOD, |soonest, pause| std::future::ready(soonest.min(pause)))
        .await
}

/// Empties a namespace as far as it goes; when it is to be looked at again, if it is.
async fn visit(cx: &Cx, namespace: &Namespace, kinds: &Kinds) -> Option<Duration> {
    match act::empty(cx, namespace, kinds).await {
        Ok(true) => return None,
        Ok(false) => {}
        Err(error) => log("namespace", &error),
    }
    Some(pause(namespace))
}

fn pause(namespace: &Namespace) -> Duration {
    let deleted = namespace.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let since = deleted.map(|deleted| trine_clock::now().duration_since(deleted));
    plan::pause(since.and_then(|since| since.try_into().ok()).unwrap_or_default())
}

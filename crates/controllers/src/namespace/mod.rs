//! A namespace that is being deleted is emptied, its Pods before all else (KEP-5080), then released by taking `kubernetes` from its
//! finalizers. Its conditions say what holds it up.

mod act;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;
use trine_typed::k8s_openapi::api::core::v1::Namespace;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::mirror::Mirror;

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
        let leaving = namespaces.all().into_iter().filter(|n| n.metadata.deletion_timestamp.is_some());
        let again = futures::stream::iter(leaving)
            .map(|namespace| {
                let cx = &cx;
                async move { visit(cx, &namespace).await }
            })
            .buffer_unordered(BESIDE)
            .filter_map(std::future::ready)
            .fold(PERIOD, |soonest, pause| std::future::ready(soonest.min(pause)))
            .await;
        if !cx.turn(&changed, again).await {
            return;
        }
    }
}

/// Empties a namespace as far as it goes; when it is to be looked at again, if it is.
async fn visit(cx: &Cx, namespace: &Namespace) -> Option<Duration> {
    match act::empty(cx, namespace).await {
        Ok(true) => return None,
        Ok(false) => {}
        Err(error) => log("namespace", &error),
    }
    let deleted = namespace.metadata.deletion_timestamp.as_ref()?.0;
    let since = Timestamp::now().duration_since(deleted);
    Some(plan::pause(since.try_into().unwrap_or_default()))
}

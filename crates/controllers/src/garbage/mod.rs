//! Objects whose owners are gone are deleted; owners that are deleted wait for what they own, or leave it behind.
//!
//! - [`graph`] who owns whom, from the metadata of all objects
//! - [`plan`] what follows for one object
//! - `watch` keeps the graph, for all kinds that discovery names
//! - `act` looks owners up and does what the plan says

mod act;
pub mod graph;
pub mod plan;
mod watch;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;

use crate::frame::{Cx, log};

/// How often discovery is asked for kinds that are new. Upstream: 30 s.
const DISCOVERY: Duration = Duration::from_secs(30);
/// Pause before what failed, or waits for a new kind, is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Objects that are looked at at a time.
const AT_A_TIME: usize = 16;

/// Runs until the context ends.
pub async fn run(cx: Cx) {
    let mut watched = watch::Watched::new(cx.client.clone(), cx.stop.clone());
    let mut again: BTreeSet<String> = BTreeSet::new();
    loop {
        if let Err(error) = watched.discover(DISCOVERY).await {
            log("garbage-collector", &error);
        }
        // Until all is known, nobody can say that an object owns nothing.
        let mut todo = if watched.is_complete() { watched.graph().take_changed() } else { BTreeSet::new() };
        todo.append(&mut again);
        let results = futures::stream::iter(todo)
            .map(|uid| {
                let watched = &watched;
                async move { act::reconcile(watched, &uid).await.map_err(|error| (uid, error)) }
            })
            .buffer_unordered(AT_A_TIME)
            .filter_map(|done| async { done.err() })
            .collect::<Vec<_>>()
            .await;
        for (uid, error) in results {
            log("garbage-collector", &error);
            again.insert(uid);
        }
        let period = if again.is_empty() && watched.is_complete() { DISCOVERY } else { AGAIN };
        if !cx.turn(watched.changed(), period).await {
            return;
        }
    }
}

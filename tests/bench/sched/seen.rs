//! When a watch has seen Pods made, bound, running and gone. Times are those of this process's clock: what a client sees.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde::Deserialize;
use trine_typed::k8s_openapi::api::core::v1::Pod as Whole;
use trine_typed::kube::api::{ApiResource, Object};
use trine_typed::kube::runtime::watcher::{self, Event};
use trine_typed::kube::{Api, Client, ResourceExt};

const POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

/// One Pod.
#[derive(Debug, Clone, Copy)]
struct Times {
    made: Instant,
    bound: Option<Instant>,
    running: Option<Instant>,
}

/// The Pods of a namespace.
#[derive(Clone, Default)]
pub struct Seen {
    pods: Arc<Mutex<HashMap<String, Times>>>,
}

impl Seen {
    /// Watches a namespace from now on.
    pub fn start(client: &Client, namespace: &str) -> Self {
        let seen = Self::default();
        let writer = seen.clone();
        let resource = ApiResource::erase::<Whole>(&());
        let api: Api<Object<Spec, Status>> = Api::namespaced_with(client.clone(), namespace, &resource);
        tokio::spawn(async move {
            let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(pod) | Event::InitApply(pod)) => writer.note(&pod),
                    Ok(Event::Delete(pod)) => drop(writer.lock().remove(&pod.name_any())),
                    Ok(_) => {}
                    Err(error) => eprintln!("the watch was interrupted: {error}"),
                }
            }
        });
        seen
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Times>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, pod: &Object<Spec, Status>) {
        let now = Instant::now();
        let mut pods = self.lock();
        let times = pods.entry(pod.name_any()).or_insert(Times { made: now, bound: None, running: None });
        if !pod.spec.node_name.is_empty() {
            times.bound.get_or_insert(now);
        }
        if pod.status.as_ref().is_some_and(|status| status.phase == "Running") {
            times.running.get_or_insert(now);
        }
    }

    /// How many Pods there are, how many of them bound, how many running.
    pub fn counts(&self) -> (usize, usize, usize) {
        let pods = self.lock();
        let of = |which: fn(&Times) -> bool| pods.values().filter(|times| which(times)).count();
        (pods.len(), of(|t| t.bound.is_some()), of(|t| t.running.is_some()))
    }

    /// Waits until the counts are right.
    pub async fn until(
        &self,
        what: &str,
        deadline: Duration,
        right: impl Fn((usize, usize, usize)) -> bool,
    ) -> anyhow::Result<()> {
        let since = Instant::now();
        while !right(self.counts()) {
            let counts = self.counts();
            anyhow::ensure!(
                since.elapsed() < deadline,
                "{what}: {counts:?} (made, bound, running) after {deadline:?}"
            );
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// From the first binding to the last.
    pub fn binding(&self) -> Duration {
        let pods = self.lock();
        let bound = || pods.values().filter_map(|times| times.bound);
        let (first, last) = (bound().min(), bound().max());
        first.zip(last).map(|(first, last)| last - first).unwrap_or_default()
    }

    /// From the first binding to when a share (in hundredths) of all was bound.
    pub fn share_bound(&self, share: usize) -> Duration {
        let pods = self.lock();
        let mut bound: Vec<Instant> = pods.values().filter_map(|times| times.bound).collect();
        bound.sort();
        let at = |n: usize| bound.get(n.min(bound.len().saturating_sub(1))).copied();
        at(0).zip(at(bound.len() * share / 100)).map(|(first, then)| then - first).unwrap_or_default()
    }

    /// How long each waited for its node, the shortest first.
    pub fn waits(&self) -> Vec<Duration> {
        let pods = self.lock();
        let mut waits: Vec<Duration> = pods.values().filter_map(|t| Some(t.bound? - t.made)).collect();
        waits.sort();
        waits
    }
}

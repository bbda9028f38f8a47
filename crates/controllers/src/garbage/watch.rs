//! Watches the metadata of all objects that can be owned and deleted.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trine_typed::kube::api::{DynamicObject, PartialObjectMeta};
use trine_typed::kube::core::discovery::Scope;
use trine_typed::kube::discovery::{ApiResource, Discovery, verbs};
use trine_typed::kube::runtime::WatchStreamExt;
use trine_typed::kube::runtime::watcher::{self, Event, watcher};
use trine_typed::kube::{Api, Client, ResourceExt};

use super::graph::{Graph, Node, Owner};
use crate::frame::ControllerError;

/// A kind that is served.
#[derive(Clone)]
pub struct Served {
    /// Its names.
    pub api: ApiResource,
    /// Whether its objects lie in namespaces.
    pub namespaced: bool,
    /// Its number, if its objects are watched.
    number: Option<usize>,
}

/// All objects that are watched.
pub struct Watched {
    client: Client,
    stop: CancellationToken,
    graph: Arc<Mutex<Graph>>,
    changed: Arc<Notify>,
    /// By API version and kind.
    kinds: HashMap<(String, String), Served>,
    watches: Vec<Watch>,
    asked: Option<Instant>,
}

struct Watch {
    api: ApiResource,
    namespaced: bool,
    listed: Arc<Mutex<bool>>,
    stop: CancellationToken,
}

impl Watched {
    /// Nothing yet.
    pub fn new(client: Client, stop: CancellationToken) -> Self {
        Self {
            client,
            stop,
            graph: Arc::default(),
            changed: Arc::default(),
            kinds: HashMap::new(),
            watches: Vec::new(),
            asked: None,
        }
    }

    /// The graph as it is now.
    pub fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Told after every change.
    pub fn changed(&self) -> &Notify {
        &self.changed
    }

    /// The way to the API server.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether all kinds were listed.
    pub fn is_complete(&self) -> bool {
        !self.watches.is_empty() && self.watches.iter().all(|w| *lock(&w.listed) || w.stop.is_cancelled())
    }

    /// The resource of a node.
    pub fn resource_of(&self, node: &Node) -> Option<(ApiResource, bool)> {
        self.watches.get(node.resource).map(|w| (w.api.clone(), w.namespaced))
    }

    /// The resource of a kind.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&Served> {
        self.kinds.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// Asks which kinds there are, unless that was done within `period`, and watches the new ones.
    pub async fn discover(&mut self, period: Duration) -> Result<(), ControllerError> {
        if self.asked.is_some_and(|at| at.elapsed() < period) {
            return Ok(());
        }
        // By one document: a group whose server is away has no kinds in it, and holds up nobody.
        let found = Discovery::new(self.client.clone())
            .run_aggregated()
            .await
            .map_err(ControllerError::of("discover", "all resources"))?;
        self.asked = Some(Instant::now());
        let mut kinds = HashMap::new();
        for group in found.groups() {
            // Objects are watched in one of their versions, and known as owners by all.
            let preferred = group.recommended_resources();
            for version in group.versions() {
                for (api, capabilities) in group.versioned_resources(version) {
                    let watched = preferred.iter().any(|(p, _)| *p == api);
                    let deletable = [verbs::DELETE, verbs::LIST, verbs::WATCH]
                        .iter()
                        .all(|v| capabilities.supports_operation(v));
                    let namespaced = capabilities.scope == Scope::Namespaced;
                    let number =
                        (watched && deletable && api.kind != "Event").then(|| self.watch(&api, namespaced));
                    let key = (api.api_version.clone(), api.kind.clone());
                    kinds.insert(key, Served { api, namespaced, number });
                }
            }
        }
        let numbers: BTreeSet<usize> = kinds.values().filter_map(|k| k.number).collect();
        for (number, watch) in self.watches.iter().enumerate() {
            if !numbers.contains(&number) && !watch.stop.is_cancelled() {
                // The kind is served no more; its objects are gone with it.
                watch.stop.cancel();
                self.graph().retain(number, &BTreeSet::new());
            }
        }
        if kinds.keys().any(|kind| !self.kinds.contains_key(kind)) {
            // An owner of a new kind can be asked for now.
            self.graph().mark_owned();
        }
        self.kinds = kinds;
        Ok(())
    }

    /// Watches a resource, unless it is watched; gives its number.
    fn watch(&mut self, api: &ApiResource, namespaced: bool) -> usize {
        let known = self.watches.iter().position(|w| w.api == *api && !w.stop.is_cancelled());
        if let Some(number) = known {
            return number;
        }
        let number = self.watches.len();
        let watch =
            Watch { api: api.clone(), namespaced, listed: Arc::default(), stop: self.stop.child_token() };
        let objects: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(self.client.clone(), api);
        let follow = Follow {
            number,
            graph: Arc::clone(&self.graph),
            changed: Arc::clone(&self.changed),
            listed: Arc::clone(&watch.listed),
            stop: watch.stop.clone(),
        };
        tokio::spawn(follow.run(objects, api.kind.clone()));
        self.watches.push(watch);
        number
    }
}

fn lock(flag: &Mutex<bool>) -> MutexGuard<'_, bool> {
    flag.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Follow {
    number: usize,
    graph: Arc<Mutex<Graph>>,
    changed: Arc<Notify>,
    listed: Arc<Mutex<bool>>,
    stop: CancellationToken,
}

impl Follow {
    async fn run(self, objects: Api<PartialObjectMeta<DynamicObject>>, kind: String) {
        let stream = watcher(objects, watcher::Config::default()).default_backoff();
        let mut stream = std::pin::pin!(stream);
        let mut seen = BTreeSet::new();
        loop {
            let event = tokio::select! {
                () = self.stop.cancelled() => return,
                event = stream.next() => event,
            };
            let event = match event {
                None => return,
                Some(Err(error)) => {
                    tracing::debug!(kind, %error, "watch interrupted");
                    continue;
                }
                Some(Ok(event)) => event,
            };
            self.take(event, &mut seen);
            self.changed.notify_one();
        }
    }

    fn take(&self, event: Event<PartialObjectMeta<DynamicObject>>, seen: &mut BTreeSet<String>) {
        let mut graph = self.graph.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => seen.clear(),
            Event::InitApply(object) => {
                let node = node(&object, self.number);
                seen.insert(node.uid.clone());
                graph.set(node);
            }
            Event::InitDone => {
                graph.retain(self.number, seen);
                *lock(&self.listed) = true;
            }
            Event::Apply(object) => graph.set(node(&object, self.number)),
            Event::Delete(object) => graph.remove(&object.uid().unwrap_or_default()),
        }
    }
}

fn node(object: &PartialObjectMeta<DynamicObject>, resource: usize) -> Node {
    let owners = object.owner_references().iter().map(|o| Owner {
        uid: o.uid.clone(),
        api_version: o.api_version.clone(),
        kind: o.kind.clone(),
        name: o.name.clone(),
        blocks: o.block_owner_deletion == Some(true),
    });
    Node {
        uid: object.uid().unwrap_or_default(),
        resource,
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        owners: owners.collect(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        finalizers: object.finalizers().to_vec(),
    }
}

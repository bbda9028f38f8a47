//! Who holds which Service address and node port, when several servers write to one store.
//!
//! Each server hands out addresses from a pool in memory. What it takes becomes a key of its own before the Service is
//! written, so that of two servers that take the same one fails and takes another. A claim whose Service does not hold it
//! any more, or never came, is taken over by the next who wants it: a server that ends in between leaks nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trine_store::cache::{Event, Interest, Part, Past};
use trine_store::{Cache, Expect, Op, Store, StoreError, Write};

use crate::kinds::{Held, holdings};
use crate::registry::{Registry, now_unix, text};

/// A claim without its Service is another server's that is about to write it, for so long.
const IN_FLIGHT: Duration = Duration::from_secs(60);
/// How long a lost race waits to see what was in its way.
const SHOW_DEADLINE: Duration = Duration::from_secs(3);
const SERVICES: &str = "/core/services/";
const ADDRESSES: &str = "/trine/addresses/";
const PORTS: &str = "/trine/ports/";

/// Why something could not be claimed.
pub enum ClaimError {
    /// Another Service has it.
    Held(String),
    /// The store failed.
    Store(StoreError),
}

/// The claims of a store.
pub struct Claims<'a> {
    /// Where they are written.
    pub store: &'a dyn Store,
    /// Where they are read.
    pub cache: &'a Cache,
}

fn parts(held: &Held) -> (&'static str, String) {
    match held {
        Held::Address(address) => (ADDRESSES, address.to_string()),
        Held::Port(port) => (PORTS, port.to_string()),
    }
}

fn owner(service: &Value) -> String {
    let meta = &service["metadata"];
    format!("{}/{}/{}", text(&meta["namespace"]), text(&meta["name"]), text(&meta["uid"]))
}

impl Claims<'_> {
    /// Claims all that a Service holds, before it is written. On an error nothing is claimed newly.
    pub async fn take(&self, service: &Value) -> Result<Vec<Held>, ClaimError> {
        let mut taken = Vec::new();
        for held in holdings(service) {
            match self.take_one(&held, service).await {
                Ok(true) => taken.push(held),
                Ok(false) => {}
                Err(error) => {
                    self.release(&taken, service).await;
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    /// Whether the claim is new.
    async fn take_one(&self, held: &Held, service: &Value) -> Result<bool, ClaimError> {
        let (prefix, name) = parts(held);
        let (key, owner) = (format!("{prefix}{name}"), owner(service));
        let claim = json!({"metadata": {"name": name}, "owner": owner, "at": now_unix()});
        let value = Bytes::from(claim.to_string());
        let mut expect = Expect::Absent;
        loop {
            let op = Op::Put { value: value.clone(), ttl: None };
            let newest = match self.store.write(Write { key: key.as_str().into(), expect, op }).await {
                Ok(_) => return Ok(true),
                Err(StoreError::Conflict { newest, .. }) => newest,
                Err(error) => return Err(ClaimError::Store(error)),
            };
            self.cache.shown(newest, SHOW_DEADLINE).await;
            let Some(found) = self.cache.prefix(prefix).get(&key) else {
                expect = Expect::Absent;
                continue;
            };
            let claim: Value = serde_json::from_slice(found.json()).unwrap_or_default();
            if text(&claim["owner"]) == owner {
                return Ok(false);
            }
            if self.stands(&claim, held) {
                return Err(ClaimError::Held(name));
            }
            expect = Expect::At(found.revision);
        }
    }

    /// Whether a claim's Service holds it, or may be about to.
    fn stands(&self, claim: &Value, held: &Held) -> bool {
        let mut owned = text(&claim["owner"]).rsplitn(2, '/');
        let (uid, key) = (owned.next().unwrap_or_default(), owned.next().unwrap_or_default());
        let found = self.cache.prefix(SERVICES).get(&format!("{SERVICES}{key}"));
        let service: Option<Value> = found.and_then(|o| serde_json::from_slice(o.json()).ok());
        let holds =
            service.is_some_and(|s| text(&s["metadata"]["uid"]) == uid && holdings(&s).contains(held));
        let age = now_unix().saturating_sub(claim["at"].as_i64().unwrap_or(0));
        holds || age < i64::try_from(IN_FLIGHT.as_secs()).unwrap_or(i64::MAX)
    }

    /// Gives up claims of a Service. What fails is taken over by the next who wants it.
    pub async fn release(&self, held: &[Held], service: &Value) {
        for one in held {
            let (prefix, name) = parts(one);
            let key = format!("{prefix}{name}");
            let Some(found) = self.cache.prefix(prefix).get(&key) else { continue };
            let claim: Value = serde_json::from_slice(found.json()).unwrap_or_default();
            if text(&claim["owner"]) == owner(service) {
                let op = Op::Delete { last: None };
                let write = Write { key: key.into(), expect: Expect::At(found.revision), op };
                if let Err(error) = self.store.write(write).await {
                    tracing::debug!(%error, "a claim stays until somebody wants it");
                }
            }
        }
    }
}

/// Keeps this server's pools in line with the Services that others write, until `stop`.
pub async fn follow(registry: Arc<Registry>, stop: CancellationToken) {
    let services = registry.cache().prefix(SERVICES);
    loop {
        let all = Interest::new(SERVICES, Box::new(|_| true));
        let (listed, mut watch) = services.list_and_watch(&Part::all(SERVICES), all);
        let parsed: Vec<Value> =
            listed.objects.iter().filter_map(|o| serde_json::from_slice(o.json()).ok()).collect();
        registry.allocators().adopt(&parsed);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = watch.next() => event,
            };
            match event {
                Some(event) => learn(&registry, &event),
                None if registry.cache().alive() => break,
                None => return,
            }
        }
    }
}

fn learn(registry: &Registry, event: &Event) {
    let parse = |json: &Bytes| serde_json::from_slice::<Value>(json).unwrap_or_default();
    let now = if event.deleted { Value::Null } else { parse(event.object.json()) };
    registry.allocators().adopt([&now]);
    let before = match &event.past {
        Past::Was(object) => holdings(&parse(object.json())),
        Past::Absent | Past::Unknown => Vec::new(),
    };
    let kept = holdings(&now);
    let given_up: Vec<Held> = before.into_iter().filter(|h| !kept.contains(h)).collect();
    if given_up.is_empty() {
        return;
    }
    let listed = registry.cache().prefix(SERVICES).list(&Part::all(SERVICES));
    let held: Vec<Held> = listed.objects.iter().flat_map(|o| holdings(&parse(o.json()))).collect();
    let free: Vec<Held> = given_up.into_iter().filter(|h| !held.contains(h)).collect();
    registry.allocators().release(&free);
}

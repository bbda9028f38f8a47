//! Objects in the store: keys, canonical bytes, compare-and-swap; and what the kinds may read of one another.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use trine_objects::outline::{outline, with_revision};
use trine_objects::resources::Resource;
use trine_store::cache::{Decoded, Part};
use trine_store::{Cache, Expect, Object, Op, Prefix, Snapshot, Store, StoreError, Write};

use crate::access::Authorizer;
use crate::access::token::Tokens;
use crate::admission::dynamic::Dynamic;
use crate::catalog::{Catalog, Served};
use crate::claims::{ClaimError, Claims};
use crate::kinds::{Allocators, Cx, Held, Objects, holdings, metadata_fields};
use crate::runtime_config::RuntimeConfig;
use crate::status::ApiError;

/// How long Events are kept. Upstream: `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_secs(3600);
/// How long an answer waits until the cache shows its write. It is a moment: the writer feeds the cache.
const SHOW_DEADLINE: Duration = Duration::from_secs(3);

/// What was claimed for a Service that is about to be written, and what it will not hold any more.
#[derive(Default)]
struct Claimed {
    new: Vec<Held>,
    given_up: Vec<Held>,
}

/// An object that was written.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The object as it is now.
    pub object: Value,
    /// Its canonical bytes, if they are still at hand.
    pub json: Option<Bytes>,
}

/// All objects.
pub struct Registry {
    store: Arc<dyn Store>,
    cache: Cache,
    allocators: Allocators,
    catalog: Arc<Catalog>,
    authorizer: Arc<Authorizer>,
    dynamic: Dynamic,
    issuing: Option<Issuing>,
}

/// What is needed to make tokens that are kept in Secrets.
pub struct Issuing {
    /// Makes them.
    pub tokens: Arc<Tokens>,
    /// The cluster's authority, PEM.
    pub ca_pem: String,
    /// The front proxy's authority, PEM.
    pub front_proxy_pem: String,
}

impl Registry {
    /// Loads the cache.
    ///
    /// # Errors
    /// What the store says.
    pub async fn start(
        store: Arc<dyn Store>,
        allocators: Allocators,
        chosen: RuntimeConfig,
    ) -> Result<Self, StoreError> {
        let catalog = Arc::new(Catalog::of(chosen));
        let known = Arc::clone(&catalog);
        let decode = move |key: &str, revision, value: &Bytes| decode(&known, key, revision, value);
        let cache = Cache::start(&*store, Box::new(decode)).await?;
        let authorizer = Arc::new(Authorizer::start(&cache));
        let dynamic = Dynamic::start(&cache);
        let registry = Self { store, cache, allocators, catalog, authorizer, dynamic, issuing: None };
        registry.allocators.adopt(&Objects::list(&registry, "", "services"));
        Ok(registry)
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// What is served.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// A resource that is served now.
    ///
    /// # Errors
    /// [`ApiError::NoResource`].
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Result<Arc<Served>, ApiError> {
        self.catalog.now().find(group, version, plural).cloned().ok_or(ApiError::NoResource)
    }

    /// What the cache keeps of a stored object, as of another revision.
    #[must_use]
    pub fn decode(&self, key: &str, revision: u64, value: &Bytes) -> Option<Decoded> {
        decode(&self.catalog, key, revision, value)
    }

    /// Addresses and ports that are given away.
    #[must_use]
    pub fn allocators(&self) -> &Allocators {
        &self.allocators
    }

    /// The same, which makes tokens.
    #[must_use]
    pub fn with_tokens(self, issuing: Issuing) -> Self {
        Self { issuing: Some(issuing), ..self }
    }

    /// Makes tokens, if it was told how.
    #[must_use]
    pub fn issuing(&self) -> Option<&Issuing> {
        self.issuing.as_ref()
    }

    /// Who decides about requests.
    #[must_use]
    pub fn authorizer(&self) -> &Arc<Authorizer> {
        &self.authorizer
    }

    /// Who is configured to decide about writes.
    #[must_use]
    pub fn dynamic(&self) -> &Dynamic {
        &self.dynamic
    }

    /// The surroundings of one attempt to write.
    #[must_use]
    pub fn cx(&self) -> Cx<'_> {
        Cx::new(self, &self.allocators, now_unix())
    }

    /// The objects of a resource.
    #[must_use]
    pub fn prefix(&self, resource: &Resource) -> Arc<Prefix> {
        self.cache.prefix(&prefix(resource))
    }

    /// Everything in the store, at one revision.
    ///
    /// # Errors
    /// What the store says.
    pub async fn everything(&self) -> Result<Snapshot, ApiError> {
        Ok(self.store.snapshot("").await?)
    }

    /// Whether other servers write to the same store.
    #[must_use]
    pub fn shared(&self) -> bool {
        self.store.shared()
    }

    /// The newest revision of the store.
    ///
    /// # Errors
    /// What the store says.
    pub async fn newest(&self) -> Result<u64, ApiError> {
        Ok(self.store.revision().await?)
    }

    /// Returns when the cache shows everything that anybody has been told was written. That is at once, unless others write
    /// to the same store.
    ///
    /// # Errors
    /// What the store says, and [`ApiError::Unavailable`] if its changes come too late.
    pub async fn consistent(&self) -> Result<(), ApiError> {
        if !self.store.shared() {
            return Ok(());
        }
        let newest = self.newest().await?;
        if self.cache.shown(newest, SHOW_DEADLINE).await {
            return Ok(());
        }
        Err(ApiError::Unavailable("the store's changes come too late".to_owned()))
    }

    /// An object and its revision.
    ///
    /// # Errors
    /// [`ApiError::NotFound`].
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        let found = self.prefix(resource).get(&key(resource, namespace, name));
        found.ok_or_else(|| ApiError::not_found(resource, name))
    }

    /// Writes an object at the expected revision.
    ///
    /// # Errors
    /// [`ApiError::AlreadyExists`] or [`ApiError::Conflict`] if the expectation does not hold.
    pub async fn put(
        &self,
        resource: &Resource,
        mut object: Value,
        expect: Expect,
    ) -> Result<Stored, ApiError> {
        let claimed = self.claim(resource, &object, expect).await?;
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let ttl =
            (resource.plural == "events").then(|| u32::try_from(EVENT_TTL.as_secs()).unwrap_or(u32::MAX));
        let value = Bytes::from(serde_json::to_vec(&object).map_err(|e| ApiError::Internal(e.to_string()))?);
        let key: Arc<str> = key(resource, namespace, name).into();
        let write = Write { key: Arc::clone(&key), expect, op: Op::Put { value, ttl } };
        let revision = match self.write(resource, name, write).await {
            Ok(revision) => revision,
            Err(error) => {
                self.claims().release(&claimed.new, &object).await;
                return Err(error);
            }
        };
        self.claims().release(&claimed.given_up, &object).await;
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        // By now somebody else may have written, too.
        let shown = self.prefix(resource).get(&key).filter(|o| o.revision == revision);
        Ok(Stored { object, json: shown.map(|o| o.json().clone()) })
    }

    /// Removes an object at its revision. Its last state, `object`, is what watchers are told.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] if it changed.
    pub async fn remove(&self, resource: &Resource, object: &Value, at: u64) -> Result<Value, ApiError> {
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let last = Some(Bytes::from(object.to_string()));
        let key = key(resource, namespace, name).into();
        let revision = self
            .write(resource, name, Write { key, expect: Expect::At(at), op: Op::Delete { last } })
            .await?;
        let mut gone = object.clone();
        gone["metadata"]["resourceVersion"] = revision.to_string().into();
        if self.claims_for(resource) {
            self.claims().release(&holdings(&gone), &gone).await;
        }
        Ok(gone)
    }

    /// Whether claims are made for it: where another server could give away the same.
    #[must_use]
    pub fn claims_for(&self, resource: &Resource) -> bool {
        self.store.shared() && resource.group.is_empty() && resource.plural == "services"
    }

    fn claims(&self) -> Claims<'_> {
        Claims { store: &*self.store, cache: &self.cache }
    }

    async fn claim(&self, resource: &Resource, object: &Value, expect: Expect) -> Result<Claimed, ApiError> {
        if !self.claims_for(resource) {
            return Ok(Claimed::default());
        }
        let (namespace, name) = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let current = self.get(resource, namespace, name);
        if expect == Expect::Absent && current.is_ok() {
            return Err(ApiError::AlreadyExists { resource: resource.qualified(), name: name.to_owned() });
        }
        let old = current.ok().and_then(|o| serde_json::from_slice::<Value>(o.json()).ok());
        let new = match self.claims().take(object).await {
            Ok(new) => new,
            Err(ClaimError::Held(what)) if expect == Expect::Absent => return Err(ApiError::Claimed(what)),
            // Whoever tries again finds another address free.
            Err(ClaimError::Held(_)) => return Err(ApiError::modified(resource, name)),
            Err(ClaimError::Store(error)) => return Err(error.into()),
        };
        let kept = holdings(object);
        let given_up = old.iter().flat_map(holdings).filter(|h| !kept.contains(h)).collect();
        Ok(Claimed { new, given_up })
    }

    async fn write(&self, resource: &Resource, name: &str, write: Write) -> Result<u64, ApiError> {
        let created = write.expect == Expect::Absent;
        let revision = match self.store.write(write).await {
            Ok(revision) => revision,
            Err(StoreError::Conflict { newest, .. }) => {
                // Who tries again has to find what was in its way.
                self.cache.shown(newest, SHOW_DEADLINE).await;
                return Err(if created {
                    ApiError::AlreadyExists { resource: resource.qualified(), name: name.to_owned() }
                } else {
                    ApiError::modified(resource, name)
                });
            }
            Err(other) => return Err(other.into()),
        };
        // Whoever is answered may read at once, and has to find what it wrote.
        self.cache.shown(revision, SHOW_DEADLINE).await;
        Ok(revision)
    }
}

impl Objects for Registry {
    fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.catalog.now().stored(group, resource)?.clone();
        let object = self.prefix(&resource).get(&key(&resource, namespace, name))?;
        serde_json::from_slice(object.json()).ok()
    }

    fn list(&self, group: &str, resource: &str) -> Vec<Value> {
        self.list_in(group, resource, "")
    }

    fn list_in(&self, group: &str, resource: &str, namespace: &str) -> Vec<Value> {
        let Some(resource) = self.catalog.now().stored(group, resource).cloned() else { return Vec::new() };
        let listed = self.prefix(&resource).list(&Part::all(&scope(&resource, namespace)));
        listed.objects.iter().filter_map(|o| serde_json::from_slice(o.json()).ok()).collect()
    }
}

/// `/group/resource/`, where all objects of a resource are.
#[must_use]
pub fn prefix(resource: &Resource) -> String {
    let group = if resource.storage_group().is_empty() { "core" } else { resource.storage_group() };
    format!("/{group}/{}/", resource.plural)
}

/// Where the objects of a namespace are; all of them if it is empty.
#[must_use]
pub fn scope(resource: &Resource, namespace: &str) -> String {
    let mut scope = prefix(resource);
    if resource.namespaced && !namespace.is_empty() {
        scope.push_str(namespace);
        scope.push('/');
    }
    scope
}

/// Where one object is.
#[must_use]
pub fn key(resource: &Resource, namespace: &str, name: &str) -> String {
    scope(resource, namespace) + name
}

/// The text of a JSON string, empty for anything else.
#[must_use]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The revision that an object says it has; 0, at which nothing was ever written, if it says none.
#[must_use]
pub fn revision(object: &Value) -> u64 {
    text(&object["metadata"]["resourceVersion"]).parse().unwrap_or_default()
}

/// Seconds since 1970.
#[must_use]
pub fn now_unix() -> i64 {
    trine_clock::now().as_second()
}

/// Makes what the cache keeps out of what the store keeps: the revision is put in, and what selectors look at is read out.
fn decode(catalog: &Catalog, key: &str, revision: u64, value: &Bytes) -> Option<Decoded> {
    let object = outline(value).ok()?;
    let json = match with_revision(value, revision) {
        Some(json) => json,
        // Nothing that this server wrote.
        None => {
            let mut object: Value = serde_json::from_slice(value).ok().filter(Value::is_object)?;
            object["metadata"]["resourceVersion"] = revision.to_string().into();
            serde_json::to_vec(&object).ok()?
        }
    };
    let mut parts = key.split('/').skip(1);
    let group = parts.next()?;
    let group = if group == "core" { "" } else { group };
    let resource = catalog.now().stored(group, parts.next()?).cloned();
    let fields = match resource {
        Some(resource) => resource.hooks().fields(&object),
        None => metadata_fields(&object),
    };
    let labels = object["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten().map(|(k, v)| (k.clone(), text(v).to_owned())).collect();
    Some(Decoded { json: json.into(), labels, fields })
}

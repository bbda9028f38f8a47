//! A live copy of one kind, kept by a watch: what reconcilers read. It wakes them on every change, or tells them what has
//! changed, and it is told at once what its own side wrote ([`Mirror::learn`], [`Mirror::forget`]), so that nobody acts twice
//! because the watch lags behind.

mod left_out;
mod shared;
mod table;

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub use shared::Mirrors;
use table::{Change, Table};
pub use table::{Key, controller_of};

/// How long [`Mirror::ready`] waits for the first list before it says so in the log, and goes on waiting.
const SLOW_LIST: Duration = Duration::from_secs(10);

/// What can be copied.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static> Kind for K {}

type Told<K> = Arc<dyn Fn(Option<&Arc<K>>, Option<&Arc<K>>) + Send + Sync>;

/// A live copy of the objects of one kind.
pub struct Mirror<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Mirror<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<K> {
    table: RwLock<Table<K>>,
    listeners: Mutex<Listeners<K>>,
    listed: watch::Sender<bool>,
}

struct Listeners<K> {
    next: u64,
    told: Vec<(u64, Told<K>)>,
    woken: Vec<Weak<Notify>>,
}

impl<K> Shared<K> {
    /// Held while the copy changes and while listeners hear of it, so that each hears of all changes in their order.
    fn listeners(&self) -> MutexGuard<'_, Listeners<K>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends what [`Mirror::subscribe`] began when it is dropped.
#[must_use]
pub struct Subscription {
    end: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

impl<K: Kind> Mirror<K> {
    /// Starts the copy of what `api` lists under `config`. `changed` is notified after every change, as long as somebody
    /// else holds it. What the server notes of field managers is left out.
    #[must_use]
    pub fn start(
        api: Api<K>,
        config: watcher::Config,
        changed: Arc<Notify>,
        stop: CancellationToken,
    ) -> Self {
        Self::begin(api, config, changed, stop, |_| {})
    }

    /// The same, of objects that `leave_out` has seen.
    fn begin(
        api: Api<K>,
        config: watcher::Config,
        changed: Arc<Notify>,
        stop: CancellationToken,
        leave_out: fn(&mut K),
    ) -> Self {
        let mirror = Self::empty(leave_out);
        mirror.wake(&changed);
        let writer = mirror.clone();
        tokio::spawn(async move {
            let mut stream = std::pin::pin!(watcher(api, config).default_backoff());
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    event = stream.next() => match event {
                        Some(Ok(event)) => writer.watched(event),
                        Some(Err(error)) => tracing::debug!(kind = %K::kind(&()), %error, "watch interrupted"),
                        None => return,
                    }
                }
            }
        });
        mirror
    }

    fn empty(leave_out: fn(&mut K)) -> Self {
        let listeners = Listeners { next: 0, told: Vec::new(), woken: Vec::new() };
        let shared = Shared {
            table: RwLock::new(Table::new(leave_out)),
            listeners: Mutex::new(listeners),
            listed: watch::Sender::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Waits until the first list has arrived.
    pub async fn ready(&self) {
        let mut listed = self.shared.listed.subscribe();
        loop {
            match tokio::time::timeout(SLOW_LIST, listed.wait_for(|listed| *listed)).await {
                Ok(_) => return,
                Err(_) => tracing::warn!(kind = %K::kind(&()), "still waiting for the first list"),
            }
        }
    }

    /// Notifies `changed` after every change from now on, as long as somebody else holds it.
    pub fn wake(&self, changed: &Arc<Notify>) {
        self.shared.listeners().woken.push(Arc::downgrade(changed));
    }

    /// Calls `told` with what was and what is (none: it was made, or is gone) for all that is there and for every change from
    /// now on, in order, until the subscription is dropped. `told` has to be quick and must not use what it is subscribed
    /// with.
    pub fn subscribe(
        &self,
        told: impl Fn(Option<&Arc<K>>, Option<&Arc<K>>) + Send + Sync + 'static,
    ) -> Subscription {
        let mut listeners = self.shared.listeners();
        for object in self.all() {
            told(None, Some(&object));
        }
        let id = listeners.next;
        listeners.next += 1;
        listeners.told.push((id, Arc::new(told)));
        let shared = Arc::downgrade(&self.shared);
        let end = move || {
            if let Some(shared) = shared.upgrade() {
                shared.listeners().told.retain(|(other, _)| *other != id);
            }
        };
        Subscription { end: Some(Box::new(end)) }
    }

    /// All objects, in the order of namespace and name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read(|table| table.all().cloned().collect())
    }

    /// The object `name` in `namespace` (empty for kinds without one).
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read(|table| table.get(&Key::new(namespace, name)).cloned())
    }

    /// The objects of a namespace, in the order of their names.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.read(|table| table.in_namespace(namespace).cloned().collect())
    }

    /// The objects whose controller has this UID.
    #[must_use]
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        self.read(|table| table.controlled_by(uid).cloned().collect())
    }

    /// The objects of a namespace that have no controller.
    #[must_use]
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<K>> {
        self.read(|table| table.orphans(namespace).cloned().collect())
    }

    /// Takes over what a write of this side answered, unless the watch has told of it or of later things already.
    pub fn learn(&self, object: &K) {
        self.change(|table| table.learn(object.clone()));
    }

    /// Takes over that a deletion of this side has removed the object of this UID.
    pub fn forget(&self, key: &Key, uid: &str) {
        self.change(|table| table.forget(key, uid));
    }

    /// From now on the copy may lack what a write of this side did to what the controller of this UID controls: its answer was
    /// lost. Until [`Mirror::trust`] nothing that is counted there can be relied on.
    pub fn doubt(&self, controller: &str) {
        self.write(|table| table.doubt(controller));
    }

    /// Whether that is so.
    #[must_use]
    pub fn is_doubted(&self, controller: &str) -> bool {
        self.read(|table| table.is_doubted(controller))
    }

    /// The server was asked for what the controller of this UID controls, and the copy has it.
    pub fn trust(&self, controller: &str) {
        self.write(|table| table.trust(controller));
    }

    fn write(&self, what: impl FnOnce(&mut Table<K>)) {
        what(&mut self.shared.table.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn read<T>(&self, what: impl FnOnce(&Table<K>) -> T) -> T {
        what(&self.shared.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn watched(&self, event: watcher::Event<K>) {
        let listed = matches!(event, watcher::Event::InitDone);
        self.change(|table| table.watched(event));
        if listed {
            self.shared.listed.send_replace(true);
            self.change(|_| Vec::new());
        }
    }

    /// Changes the copy, and tells of it.
    fn change(&self, how: impl FnOnce(&mut Table<K>) -> Vec<Change<K>>) {
        let mut listeners = self.shared.listeners();
        let changes = how(&mut self.shared.table.write().unwrap_or_else(PoisonError::into_inner));
        for change in &changes {
            for (_, told) in &listeners.told {
                let call = AssertUnwindSafe(|| told(change.old.as_ref(), change.new.as_ref()));
                if catch_unwind(call).is_err() {
                    tracing::error!(kind = %K::kind(&()), "a listener panicked");
                }
            }
        }
        listeners.woken.retain(|woken| {
            woken.upgrade().is_some_and(|changed| {
                changed.notify_one();
                true
            })
        });
    }
}

//! Something that is derived from objects, kept as fresh as the cache: whoever asks sees every change that was shown before.

use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::task::{Context, Poll};

use tokio::task::JoinHandle;
use trine_store::cache::{Interest, Part, Watch};
use trine_store::{Object, Prefix};

/// What is derived from the objects of several resources. `source` is the resource's place in the list given to
/// [`Follower::start`]; keys are without the resource's prefix, `namespace/name` or `name`.
pub trait Derive: Send + Sync + 'static {
    /// An object is there now, or changed.
    fn put(&mut self, source: usize, key: &str, object: &Object);

    /// An object is gone.
    fn remove(&mut self, source: usize, key: &str);

    /// All objects of a resource are forgotten; those that are there follow.
    fn clear(&mut self, source: usize);
}

struct Source {
    scope: String,
    prefix: Arc<Prefix>,
    watch: Watch,
}

struct Inner<T> {
    sources: Mutex<Vec<Source>>,
    state: RwLock<T>,
}

/// Keeps a [`Derive`] fresh.
pub struct Follower<T> {
    inner: Arc<Inner<T>>,
    task: JoinHandle<()>,
}

impl<T: Derive> Follower<T> {
    /// Derives from what is there, then follows. Each resource is its scope, `/group/plural/`, and its objects.
    #[must_use]
    pub fn start(resources: Vec<(String, Arc<Prefix>)>, mut state: T) -> Self {
        let begin = |(i, (scope, prefix)): (usize, (String, Arc<Prefix>))| {
            let watch = load(&mut state, i, &scope, &prefix);
            Source { scope, prefix, watch }
        };
        let sources = resources.into_iter().enumerate().map(begin).collect();
        let inner = Arc::new(Inner { sources: Mutex::new(sources), state: RwLock::new(state) });
        let weak = Arc::downgrade(&inner);
        let task = tokio::spawn(std::future::poll_fn(move |cx| follow(&weak, cx)));
        Self { inner, task }
    }

    /// Looks at what is derived, after all changes so far.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        self.inner.drain(None);
        look(&self.inner.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Drop for Follower<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes changes in even when nobody asks, so that the queue never fills.
fn follow<T: Derive>(inner: &Weak<Inner<T>>, cx: &mut Context<'_>) -> Poll<()> {
    let Some(inner) = inner.upgrade() else { return Poll::Ready(()) };
    inner.drain(Some(cx));
    Poll::Pending
}

impl<T: Derive> Inner<T> {
    fn drain(&self, mut cx: Option<&mut Context<'_>>) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, source) in sources.iter_mut().enumerate() {
            loop {
                let event = match &mut cx {
                    None => match source.watch.ready() {
                        Some(event) => event,
                        None => break,
                    },
                    Some(cx) => match source.watch.poll_next(cx) {
                        Poll::Ready(Some(event)) => event,
                        Poll::Pending => break,
                        // Too slow for once: begin again from what is there.
                        Poll::Ready(None) => {
                            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                            state.clear(i);
                            source.watch = load(&mut *state, i, &source.scope, &source.prefix);
                            continue;
                        }
                    },
                };
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                let key = short(&event.object, &source.scope);
                if event.deleted {
                    state.remove(i, key);
                } else {
                    state.put(i, key, &event.object);
                }
            }
        }
    }
}

fn load<T: Derive>(state: &mut T, i: usize, scope: &str, prefix: &Prefix) -> Watch {
    let (listed, watch) = prefix.list_and_watch(&Part::all(scope), Interest::new(scope, Box::new(|_| true)));
    for object in &listed.objects {
        state.put(i, short(object, scope), object);
    }
    watch
}

fn short<'a>(object: &'a Object, scope: &str) -> &'a str {
    object.key.strip_prefix(scope).unwrap_or(&object.key)
}

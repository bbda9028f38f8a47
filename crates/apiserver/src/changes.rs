//! Tells that something has changed among the objects of some resources, to who then looks at all of them anew.

use std::sync::Arc;
use std::task::{Context, Poll};

use trine_store::cache::{Interest, Part, Watch};

use crate::catalog::Served;
use crate::registry::{Registry, prefix};

/// The changes of all objects of some resources, from now on.
pub struct Changes {
    registry: Arc<Registry>,
    watched: Vec<(Arc<Served>, Watch)>,
}

impl Changes {
    /// Of these resources.
    #[must_use]
    pub fn of(registry: &Arc<Registry>, resources: impl IntoIterator<Item = Arc<Served>>) -> Self {
        let watched = resources.into_iter().map(|resource| {
            let watch = begin(registry, &resource);
            (resource, watch)
        });
        Self { watched: watched.collect(), registry: Arc::clone(registry) }
    }

    /// Returns after the next change, or after several that came together. Cancel-safe.
    pub async fn next(&mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
        for (_, watch) in &mut self.watched {
            while watch.ready().is_some() {}
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for (resource, watch) in &mut self.watched {
            match watch.poll_next(cx) {
                Poll::Pending => {}
                Poll::Ready(Some(_)) => return Poll::Ready(()),
                // A watch that fell behind is begun anew: whatever it missed has changed something.
                Poll::Ready(None) => {
                    *watch = begin(&self.registry, resource);
                    return Poll::Ready(());
                }
            }
        }
        Poll::Pending
    }
}

fn begin(registry: &Registry, resource: &Served) -> Watch {
    let scope = prefix(resource);
    let everything = Interest::new(&scope, Box::new(|_| true));
    registry.prefix(resource).list_and_watch(&Part::all(&scope), everything).1
}

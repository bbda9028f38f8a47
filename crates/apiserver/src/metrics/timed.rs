//! A store that takes the time of its calls.

use super::family::{Counters, Durations};
use super::text::Page;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;
use trine_store::store::Feed;
use trine_store::{Op, Snapshot, Store, StoreError, Write};

/// Upstream's buckets of a call to etcd, seconds.
const BUCKETS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// What is counted of the store's calls.
pub struct Calls {
    durations: Durations,
    errors: Counters,
}

impl Default for Calls {
    fn default() -> Self {
        Self { durations: Durations::new(BUCKETS), errors: Counters::default() }
    }
}

impl Calls {
    /// Writes the families.
    pub fn show(&self, page: &mut Page) {
        let help = "Time of calls to the store, in seconds. Upstream's name, whatever the store is.";
        self.durations.show(page, "etcd_request_duration_seconds", help);
        self.errors.show(
            page,
            "etcd_request_errors_total",
            "Calls to the store that failed; a lost race is none.",
        );
    }
}

/// The store behind it, with its calls timed.
pub struct Timed {
    /// The store.
    pub inner: Arc<dyn Store>,
    pub(super) calls: Arc<Calls>,
}

impl Timed {
    fn timed<'a, T: 'a>(
        &'a self,
        operation: &'static str,
        kind: String,
        call: BoxFuture<'a, Result<T, StoreError>>,
    ) -> BoxFuture<'a, Result<T, StoreError>> {
        let since = Instant::now();
        async move {
            let done = call.await;
            let labels = vec![("operation", operation.to_owned()), ("type", kind)];
            if let Err(StoreError::Engine { .. } | StoreError::Closed) = &done {
                self.calls.errors.add(labels.clone());
            }
            self.calls.durations.add(labels, since.elapsed());
            done
        }
        .boxed()
    }
}

/// `pods` of `/core/pods/default/web`, `leases.coordination.k8s.io` of a group's.
fn kind(key: &str) -> String {
    let mut parts = key.split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some("core"), Some(resource)) => resource.to_owned(),
        (Some(group), Some(resource)) => format!("{resource}.{group}"),
        _ => String::new(),
    }
}

impl Store for Timed {
    fn write(&self, write: Write) -> BoxFuture<'_, Result<u64, StoreError>> {
        let operation = match (&write.op, write.expect.revision()) {
            (Op::Put { .. }, 0) => "create",
            (Op::Put { .. }, _) => "update",
            (Op::Delete { .. }, _) => "delete",
        };
        let kind = kind(&write.key);
        self.timed(operation, kind, self.inner.write(write))
    }

    fn snapshot(&self, prefix: &str) -> BoxFuture<'_, Result<Snapshot, StoreError>> {
        self.timed("list", kind(prefix), self.inner.snapshot(prefix))
    }

    fn feed(&self, after: u64) -> BoxFuture<'_, Result<Feed, StoreError>> {
        self.inner.feed(after)
    }

    fn compact(&self, through: u64) -> BoxFuture<'_, Result<(), StoreError>> {
        self.timed("compact", String::new(), self.inner.compact(through))
    }

    fn revision(&self) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.inner.revision()
    }

    fn shared(&self) -> bool {
        self.inner.shared()
    }
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn keys_name_the_resource() {
        assert_eq!(kind("/core/pods/default/web"), "pods");
        assert_eq!(kind("/coordination.k8s.io/leases/a/b"), "leases.coordination.k8s.io");
        assert_eq!(kind("/"), "");
    }
}

//! All of it.

use super::process;
use super::requests::{Pending, Requests};
use super::text::Page;
use super::timed::{Calls, Timed};
use crate::registry::Registry;
use crate::request::{Query, Target};
use http::Method;
use std::sync::Arc;
use trine_store::Store;

/// What the server counts about itself.
#[derive(Default)]
pub struct Metrics {
    requests: Arc<Requests>,
    calls: Arc<Calls>,
}

impl Metrics {
    /// The store, with its calls timed.
    #[must_use]
    pub fn timed(&self, inner: Arc<dyn Store>) -> Timed {
        Timed { inner, calls: Arc::clone(&self.calls) }
    }

    /// A request for objects arrives.
    #[must_use]
    pub fn request(&self, target: &Target, method: &Method, query: &Query) -> Pending {
        self.requests.begin(target, method, query)
    }

    /// The page of `/metrics`; `more` adds what others count.
    pub async fn page(&self, registry: &Registry, more: impl FnOnce(&mut Page)) -> String {
        let mut page = Page::default();
        self.requests.show(&mut page);
        more(&mut page);
        registry.dynamic().decisions().show(&mut page);
        self.calls.show(&mut page);
        objects(&mut page, registry);
        let shown = registry.cache().revision();
        let newest = registry.newest().await.unwrap_or(shown);
        let lag = newest.saturating_sub(shown) as f64;
        page.single("trine_store_revision", "gauge", "The newest revision of the store.", newest as f64);
        page.single(
            "trine_store_lag_revisions",
            "gauge",
            "How far the watch cache is behind the store.",
            lag,
        );
        process::show(&mut page);
        page.finish()
    }
}

fn objects(page: &mut Page, registry: &Registry) {
    let mut counts = registry.cache().counts();
    counts.sort();
    let split = |prefix: &str| {
        let (group, resource) = prefix.trim_matches('/').split_once('/')?;
        Some((if group == "core" { String::new() } else { group.to_owned() }, resource.to_owned()))
    };
    let counts: Vec<_> = counts
        .iter()
        .filter_map(|c| split(&c.prefix).map(|(group, resource)| (group, resource, c)))
        .collect();
    page.family("apiserver_storage_objects", "gauge", "Stored objects by resource.");
    for (group, resource, count) in &counts {
        let name = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
        page.value("apiserver_storage_objects", &[("resource", &name)], count.objects as f64);
    }
    let families = [
        ("apiserver_resource_objects", "Stored objects by group and resource."),
        ("apiserver_registered_watchers", "Open watches by group and resource."),
        ("apiserver_watch_cache_resource_version", "Revision of the newest event in the watch cache."),
        ("watch_cache_capacity", "Events that the watch cache keeps."),
    ];
    for (family, help) in families {
        page.family(family, "gauge", help);
        for (group, resource, count) in &counts {
            let value = match family {
                "apiserver_resource_objects" => count.objects as u64,
                "apiserver_registered_watchers" => count.watchers as u64,
                "apiserver_watch_cache_resource_version" => count.newest,
                _ => count.events as u64,
            };
            page.value(family, &[("group", group), ("resource", resource)], value as f64);
        }
    }
}

//! Keeps the zone true to the cluster.

use tokio_util::sync::CancellationToken;
use trine_typed::feed::{Change, Feed};
use trine_typed::k8s_openapi::api::core::v1::{Namespace, Service};
use trine_typed::k8s_openapi::api::discovery::v1::EndpointSlice;
use trine_typed::kube::{Client, ResourceExt};

use crate::error::DnsError;
use crate::resolver::Resolver;
use crate::zone::{self, Key, Slice, Zone};

/// Watches until told to stop.
///
/// # Errors
/// [`DnsError::WatchEnded`] if a watch ends by itself.
pub async fn watch(client: Client, resolver: &Resolver, stop: &CancellationToken) -> Result<(), DnsError> {
    let mut namespaces = Feed::<Namespace>::all(client.clone());
    let mut services = Feed::<Service>::all(client.clone());
    let mut slices = Feed::<EndpointSlice>::all(client);
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            change = namespaces.next() => {
                let change = change.ok_or(DnsError::WatchEnded { kind: "namespaces" })?;
                resolver.change(|zone| namespace(zone, change));
            }
            change = services.next() => {
                let change = change.ok_or(DnsError::WatchEnded { kind: "Services" })?;
                resolver.change(|zone| service(zone, change));
            }
            change = slices.next() => {
                let change = change.ok_or(DnsError::WatchEnded { kind: "EndpointSlices" })?;
                resolver.change(|zone| slice(zone, change));
            }
        }
        if namespaces.listed() && services.listed() && slices.listed() {
            resolver.whole();
        }
    }
}

fn namespace(zone: &mut Zone, change: Change<Namespace>) {
    match change {
        Change::Is(namespace) => zone.set_namespace(&namespace.name_any()),
        Change::Gone((_, name)) => zone.forget_namespace(&name),
        Change::Only(listed) => {
            zone.keep_namespaces(|name| listed.contains(&(String::new(), name.to_owned())))
        }
    }
}

fn key_of(object: &impl ResourceExt) -> Key {
    Key::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

fn is_listed(listed: &std::collections::BTreeSet<(String, String)>, key: &Key) -> bool {
    listed.contains(&(key.namespace.to_string(), key.name.to_string()))
}

fn service(zone: &mut Zone, change: Change<Service>) {
    match change {
        Change::Is(service) => zone.set_service(&key_of(&*service), zone::Service::from_api(&service)),
        Change::Gone((namespace, name)) => zone.set_service(&Key::new(&namespace, &name), None),
        Change::Only(listed) => zone.keep_services(|key| is_listed(&listed, key)),
    }
}

fn slice(zone: &mut Zone, change: Change<EndpointSlice>) {
    match change {
        Change::Is(slice) => zone.set_slice(&key_of(&*slice), Slice::from_api(&slice)),
        Change::Gone((namespace, name)) => zone.set_slice(&Key::new(&namespace, &name), None),
        Change::Only(listed) => zone.keep_slices(|key| is_listed(&listed, key)),
    }
}

//! IPAddresses: an object for each address that a Service has, which names the Service. Source: KEP-1880.
//!
//! What Services hold is decided when they are written (`kinds`, [`crate::claims`]); these objects show it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trine_store::Object;

use crate::access::follow::{Derive, Follower};
use crate::catalog::Served;
use crate::changes::Changes;
use crate::registry::{Registry, prefix, text};
use crate::status::ApiError;
use crate::verbs::create;
use crate::verbs::options::WriteOptions;
use crate::verbs::update::parse;

/// Who keeps an object.
const MANAGED: &str = "ipaddress.kubernetes.io/managed-by";
const OURS: &str = "ipallocator.k8s.io";
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
/// When it is tried again to write what could not be written.
const RETRY: Duration = Duration::from_secs(1);
/// How many are written at once.
const TOGETHER: usize = 256;

/// Namespace and name of a Service.
type Parent = (String, String);

/// Which Service has an address, and which objects say so.
#[derive(Default)]
struct Addresses {
    services: BTreeMap<String, Vec<String>>,
    parents: BTreeMap<String, Parent>,
    /// The parent that an object names; `None` if it is somebody's own.
    objects: BTreeMap<String, Option<Parent>>,
    /// Addresses about which something has changed.
    dirty: Mutex<BTreeSet<String>>,
}

/// What is to be done about an address.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Create(String, Parent),
    Delete(String),
}

impl Addresses {
    fn touch(&self, address: &str) {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner).insert(address.to_owned());
    }

    fn forget_service(&mut self, key: &str) {
        for address in self.services.remove(key).unwrap_or_default() {
            let own = |(namespace, name): &Parent| format!("{namespace}/{name}") == key;
            if self.parents.get(&address).is_some_and(own) {
                self.parents.remove(&address);
            }
            self.touch(&address);
        }
    }

    /// What is to be done, once: an object of another Service goes first, and its end makes the address dirty again.
    fn take(&self) -> Vec<Action> {
        let dirty = std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner));
        dirty.into_iter().filter_map(|address| self.action(address)).collect()
    }

    fn action(&self, address: String) -> Option<Action> {
        match (self.parents.get(&address), self.objects.get(&address)) {
            (Some(parent), None) => Some(Action::Create(address, parent.clone())),
            (Some(parent), Some(Some(said))) if parent != said => Some(Action::Delete(address)),
            (None, Some(Some(_))) => Some(Action::Delete(address)),
            _ => None,
        }
    }
}

impl Derive for Addresses {
    fn put(&mut self, source: usize, key: &str, object: &Object) {
        let object: Value = serde_json::from_slice(object.json()).unwrap_or_default();
        let meta = &object["metadata"];
        if source == 0 {
            self.forget_service(key);
            let given = object["spec"]["clusterIPs"].as_array().into_iter().flatten();
            let held: Vec<String> =
                given.filter_map(|a| text(a).parse::<IpAddr>().ok()).map(|ip| ip.to_string()).collect();
            let parent = (text(&meta["namespace"]).to_owned(), text(&meta["name"]).to_owned());
            for address in &held {
                self.parents.insert(address.clone(), parent.clone());
                self.touch(address);
            }
            self.services.insert(key.to_owned(), held);
        } else {
            let parent = &object["spec"]["parentRef"];
            let said = || (text(&parent["namespace"]).to_owned(), text(&parent["name"]).to_owned());
            let ours = meta["labels"][MANAGED] == OURS;
            self.objects.insert(key.to_owned(), ours.then(said));
            self.touch(key);
        }
    }

    fn remove(&mut self, source: usize, key: &str) {
        if source == 0 {
            self.forget_service(key);
        } else {
            self.objects.remove(key);
            self.touch(key);
        }
    }

    fn clear(&mut self, source: usize) {
        let keys: Vec<String> = if source == 0 {
            self.services.keys().cloned().collect()
        } else {
            self.objects.keys().cloned().collect()
        };
        keys.iter().for_each(|key| self.remove(source, key));
    }
}

fn object(address: &str, (namespace, name): &Parent) -> Value {
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    let parent = json!({"group": "", "resource": "services", "namespace": namespace, "name": name});
    json!({"metadata": {"name": address, "labels": {MANAGED: OURS, FAMILY: family}}, "spec": {"parentRef": parent}})
}

async fn act(registry: &Registry, resource: &Arc<Served>, action: &Action) -> Result<(), ApiError> {
    match action {
        Action::Create(address, parent) => {
            let object = object(address, parent);
            match create::create(registry, resource, "", object, &WriteOptions::of_server()).await {
                Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        }
        Action::Delete(address) => match registry.get(resource, "", address) {
            Ok(current) => {
                registry.remove(resource, &parse(current.json())?, current.revision).await.map(drop)
            }
            Err(_) => Ok(()),
        },
    }
}

/// Brings the objects to the state of the moment; says whether all could be written.
async fn round(registry: &Registry, resource: &Arc<Served>, addresses: &Follower<Addresses>) -> bool {
    let actions = addresses.with(Addresses::take);
    let mut done = true;
    // Together, so that the disk is waited for once.
    for part in actions.chunks(TOGETHER) {
        let results =
            futures::future::join_all(part.iter().map(|action| act(registry, resource, action))).await;
        for (action, result) in part.iter().zip(results) {
            if let Err(error) = result {
                tracing::debug!(?action, %error, "an IPAddress is not kept");
                let (Action::Create(address, _) | Action::Delete(address)) = action;
                addresses.with(|a| a.touch(address));
                done = false;
            }
        }
    }
    done
}

/// Makes what is missing, then keeps the objects until `stop` in the future that is given.
///
/// # Errors
/// [`ApiError`] if a kind is not served that this is about.
pub async fn follow(
    registry: Arc<Registry>,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + Send, ApiError> {
    let services = registry.resource("", "v1", "services")?;
    let resource = registry.resource("networking.k8s.io", "v1", "ipaddresses")?;
    let sources = [&services, &resource].map(|r| (prefix(r), registry.prefix(r)));
    let addresses = Follower::start(sources.into(), Addresses::default());
    let mut changes = Changes::of(&registry, [services, Arc::clone(&resource)]);
    let mut done = round(&registry, &resource, &addresses).await;
    Ok(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = changes.next() => {}
                () = tokio::time::sleep(RETRY), if !done => {}
            }
            done = round(&registry, &resource, &addresses).await;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use trine_store::cache::Decoded;

    fn stored(value: &Value) -> Object {
        let decoded =
            Decoded { json: Bytes::from(value.to_string()), labels: Vec::new(), fields: Vec::new() };
        Object { key: "k".into(), revision: 1, decoded }
    }

    fn service(name: &str, addresses: &[&str]) -> Object {
        stored(&json!({"metadata": {"namespace": "n", "name": name}, "spec": {"clusterIPs": addresses}}))
    }

    #[test]
    fn each_address_has_an_object_that_names_its_service() {
        let mut addresses = Addresses::default();
        let parent = |name: &str| ("n".to_owned(), name.to_owned());
        addresses.put(0, "n/a", &service("a", &["10.0.0.1", "fd00::1"]));
        addresses.put(0, "n/headless", &service("headless", &["None"]));
        let wanted = ["10.0.0.1", "fd00::1"].map(|a| Action::Create(a.to_owned(), parent("a")));
        assert_eq!(addresses.take(), wanted);
        assert_eq!(addresses.take(), []);
        for address in ["10.0.0.1", "fd00::1"] {
            addresses.put(1, address, &stored(&object(address, &parent("a"))));
        }
        assert_eq!(addresses.take(), []);
        // The address goes to another Service: the old object first.
        addresses.remove(0, "n/a");
        addresses.put(0, "n/b", &service("b", &["10.0.0.1"]));
        let gone = ["10.0.0.1", "fd00::1"].map(|a| Action::Delete(a.to_owned()));
        assert_eq!(addresses.take(), gone);
        addresses.remove(1, "10.0.0.1");
        addresses.remove(1, "fd00::1");
        assert_eq!(addresses.take(), [Action::Create("10.0.0.1".to_owned(), parent("b"))]);
    }

    #[test]
    fn what_is_somebodys_own_is_left_alone() {
        let mut addresses = Addresses::default();
        let own = json!({"metadata": {"name": "10.0.0.9"}, "spec": {"parentRef": {"resource": "things", "name": "x"}}});
        addresses.put(1, "10.0.0.9", &stored(&own));
        assert_eq!(addresses.take(), []);
    }
}

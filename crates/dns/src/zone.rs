//! Services, EndpointSlices and namespaces, reduced to what names need.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1 as core;
use trine_typed::k8s_openapi::api::discovery::v1 as discovery;

/// The label of a slice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Namespace and name, as they stand in the API: lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Key {
    /// A key.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// A named port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name; empty if it has none, and then no SRV record.
    pub name: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    /// Its number.
    pub number: u16,
}

/// What a Service's name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// To virtual addresses.
    Virtual {
        /// One a family.
        addresses: Vec<IpAddr>,
        /// Its ports.
        ports: Vec<Port>,
    },
    /// To its endpoints.
    Headless,
    /// To another name.
    External {
        /// Which.
        name: String,
    },
}

impl Service {
    /// What a Service of the API means; nothing until it has an address.
    #[must_use]
    pub fn from_api(service: &core::Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        if spec.type_.as_deref() == Some("ExternalName") {
            return Some(Self::External { name: spec.external_name.clone()? });
        }
        let texts: Vec<&str> = match spec.cluster_ips.as_deref() {
            Some([]) | None => spec.cluster_ip.as_deref().into_iter().collect(),
            Some(all) => all.iter().map(String::as_str).collect(),
        };
        if texts.first() == Some(&"None") {
            return Some(Self::Headless);
        }
        let addresses: Vec<IpAddr> = texts.iter().filter_map(|text| text.parse().ok()).collect();
        if addresses.is_empty() {
            return None;
        }
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            let protocol = port.protocol.as_deref();
            Port::new(port.name.as_deref(), protocol, port.port)
        });
        Some(Self::Virtual { addresses, ports: ports.collect() })
    }
}

impl Port {
    fn new(name: Option<&str>, protocol: Option<&str>, number: i32) -> Option<Self> {
        Some(Self {
            name: name.unwrap_or_default().to_owned(),
            protocol: protocol.unwrap_or("TCP").to_lowercase(),
            number: u16::try_from(number).ok()?,
        })
    }
}

/// One endpoint of a slice that can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name under the Service's: the Pod's hostname, or the address with dashes.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
}

/// The endpoints of a Service, or some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Whose.
    pub service: Key,
    /// Their ports.
    pub ports: Vec<Port>,
    /// Those that are ready.
    pub endpoints: Vec<Endpoint>,
}

impl Slice {
    /// What a slice of the API says; nothing if it names no Service or holds names instead of addresses.
    #[must_use]
    pub fn from_api(slice: &discovery::EndpointSlice) -> Option<Self> {
        let namespace = slice.metadata.namespace.as_deref()?;
        let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
        let ports = slice
            .ports
            .iter()
            .flatten()
            .filter_map(|port| Port::new(port.name.as_deref(), port.protocol.as_deref(), port.port?));
        let ready = slice
            .endpoints
            .iter()
            .flatten()
            .filter(|endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true));
        let endpoints = ready.flat_map(|endpoint| {
            let hostname = endpoint.hostname.as_deref().filter(|name| !name.is_empty());
            endpoint.addresses.iter().filter_map(move |text| {
                let address: IpAddr = text.parse().ok()?;
                let name = hostname.map_or_else(|| dashed(address), str::to_lowercase);
                Some(Endpoint { name, address })
            })
        });
        Some(Self {
            service: Key::new(namespace, service),
            ports: ports.collect(),
            endpoints: endpoints.collect(),
        })
    }
}

/// An address as a label: `10-0-0-1`; of IPv6 with dashes for colons, and a zero where a dash would end it or begin it.
#[must_use]
pub fn dashed(address: IpAddr) -> String {
    let text = address.to_string().replace(['.', ':'], "-");
    let first = if text.starts_with('-') { "0" } else { "" };
    let last = if text.ends_with('-') { "0" } else { "" };
    format!("{first}{text}{last}")
}

/// The address that a label says, if it says one.
#[must_use]
pub fn undashed(label: &str) -> Option<IpAddr> {
    if let Ok(address) = label.replace('-', ".").parse() {
        return Some(IpAddr::V4(address));
    }
    label.replace('-', ":").parse().ok().map(IpAddr::V6)
}

/// Whose an address is, for the way back from addresses to names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A Service's virtual address.
    Service(Key),
    /// An endpoint of a Service, and its label.
    Endpoint(Key, String),
}

/// All names of the cluster.
#[derive(Debug, Default)]
pub struct Zone {
    namespaces: HashSet<Arc<str>>,
    services: HashMap<Key, Service>,
    slices: HashMap<Key, Slice>,
    by_service: HashMap<Key, BTreeSet<Key>>,
    /// Each address with who has it, once for each slice that says so.
    reverse: HashMap<IpAddr, Vec<Owner>>,
}

impl Zone {
    /// A namespace is there.
    pub fn set_namespace(&mut self, name: &str) {
        self.namespaces.insert(name.into());
    }

    /// A namespace is gone.
    pub fn forget_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Only these namespaces are there.
    pub fn keep_namespaces(&mut self, keep: impl Fn(&str) -> bool) {
        self.namespaces.retain(|name| keep(name));
    }

    /// A Service is there in this form, or is gone.
    pub fn set_service(&mut self, key: &Key, service: Option<Service>) {
        if let Some(Service::Virtual { addresses, .. }) = self.services.remove(key) {
            addresses.iter().for_each(|address| self.disown(*address, &Owner::Service(key.clone())));
        }
        if let Some(service) = service {
            if let Service::Virtual { addresses, .. } = &service {
                for address in addresses {
                    self.reverse.entry(*address).or_default().push(Owner::Service(key.clone()));
                }
            }
            self.services.insert(key.clone(), service);
        }
    }

    /// Only these Services are there.
    pub fn keep_services(&mut self, keep: impl Fn(&Key) -> bool) {
        let gone: Vec<Key> = self.services.keys().filter(|key| !keep(key)).cloned().collect();
        gone.iter().for_each(|key| self.set_service(key, None));
    }

    /// A slice is there in this form, or is gone.
    pub fn set_slice(&mut self, key: &Key, slice: Option<Slice>) {
        if let Some(old) = self.slices.remove(key) {
            for endpoint in &old.endpoints {
                self.disown(endpoint.address, &Owner::Endpoint(old.service.clone(), endpoint.name.clone()));
            }
            if let Some(slices) = self.by_service.get_mut(&old.service) {
                slices.remove(key);
                if slices.is_empty() {
                    self.by_service.remove(&old.service);
                }
            }
        }
        if let Some(slice) = slice {
            for endpoint in &slice.endpoints {
                let owner = Owner::Endpoint(slice.service.clone(), endpoint.name.clone());
                self.reverse.entry(endpoint.address).or_default().push(owner);
            }
            self.by_service.entry(slice.service.clone()).or_default().insert(key.clone());
            self.slices.insert(key.clone(), slice);
        }
    }

    /// Only these slices are there.
    pub fn keep_slices(&mut self, keep: impl Fn(&Key) -> bool) {
        let gone: Vec<Key> = self.slices.keys().filter(|key| !keep(key)).cloned().collect();
        gone.iter().for_each(|key| self.set_slice(key, None));
    }

    fn disown(&mut self, address: IpAddr, owner: &Owner) {
        let Some(owners) = self.reverse.get_mut(&address) else { return };
        if let Some(at) = owners.iter().position(|o| o == owner) {
            owners.swap_remove(at);
        }
        if owners.is_empty() {
            self.reverse.remove(&address);
        }
    }

    /// Whether a namespace is there.
    #[must_use]
    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.contains(name)
    }

    /// What a Service's name leads to.
    #[must_use]
    pub fn service(&self, key: &Key) -> Option<&Service> {
        self.services.get(key)
    }

    /// The slices of a Service, in the order of their names.
    pub fn slices(&self, service: &Key) -> impl Iterator<Item = &Slice> {
        self.by_service.get(service).into_iter().flatten().filter_map(|key| self.slices.get(key))
    }

    /// Who has an address, each once.
    #[must_use]
    pub fn owners(&self, address: IpAddr) -> Vec<&Owner> {
        let mut found: Vec<&Owner> = Vec::new();
        for owner in self.reverse.get(&address).into_iter().flatten() {
            let known = matches!(owner, Owner::Service(key) | Owner::Endpoint(key, _) if self.services.contains_key(key));
            if known && !found.contains(&owner) {
                found.push(owner);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_as_a_label_can_be_read_back() {
        for (address, label) in [
            ("10.0.0.1", "10-0-0-1"),
            ("2001:db8::1", "2001-db8--1"),
            ("2001:db8::", "2001-db8--0"),
            ("::1", "0--1"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(dashed(address), label);
            assert_eq!(undashed(label), Some(address));
        }
        assert_eq!(undashed("web-0"), None);
    }

    #[test]
    fn what_is_gone_leaves_nothing_behind() {
        let mut zone = Zone::default();
        let (key, slice) = (Key::new("a", "web"), Key::new("a", "web-x"));
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let endpoints = vec![Endpoint { name: "w".to_owned(), address }];
        zone.set_service(&key, Some(Service::Headless));
        for _ in 0..2 {
            let slice_is = Slice { service: key.clone(), ports: Vec::new(), endpoints: endpoints.clone() };
            zone.set_slice(&slice, Some(slice_is));
        }
        assert_eq!(zone.owners(address).len(), 1);
        zone.keep_slices(|_| false);
        assert!(zone.owners(address).is_empty() && zone.reverse.is_empty() && zone.by_service.is_empty());
    }
}

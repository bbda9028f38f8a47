//! Services and EndpointSlices, reduced to what the node needs of them. Pure.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use trine_typed::k8s_openapi::api::core::v1 as core;
use trine_typed::k8s_openapi::api::core::v1::Service;
use trine_typed::k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

/// A Service with this label is another proxy's.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// How long a client stays with its endpoint if the Service does not say, seconds.
const DEFAULT_AFFINITY: u32 = 10_800;
/// Names the Service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Namespace and name of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ServiceKey {
    /// A key from its parts.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A protocol that is balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Proto {
    /// TCP.
    Tcp = 6,
    /// UDP.
    Udp = 17,
    /// SCTP.
    Sctp = 132,
}

impl Proto {
    /// From the API's spelling; absent is TCP.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name, empty if it has none; the slices' ports carry the same.
    pub name: String,
    /// Its protocol.
    pub proto: Proto,
    /// Where clients connect to.
    pub port: u16,
    /// The port on every node, if any.
    pub node_port: Option<u16>,
}

/// A Service that has virtual addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Its cluster addresses.
    pub cluster_ips: Vec<IpAddr>,
    /// Its other virtual addresses: external ones and those of load balancers.
    pub external_ips: Vec<IpAddr>,
    /// Traffic from outside goes to endpoints on this node only.
    pub external_local: bool,
    /// Traffic from inside goes to endpoints on this node only.
    pub internal_local: bool,
    /// A client stays with its endpoint until it has been away for so long, seconds.
    pub affinity: Option<u32>,
}

/// One endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSpec {
    /// Its address.
    pub address: IpAddr,
    /// It takes new connections.
    pub ready: bool,
    /// It answers, though it may be terminating.
    pub serving: bool,
    /// It is on its way out.
    pub terminating: bool,
    /// Its node, if known.
    pub node: Option<Arc<str>>,
    /// Namespace/name of its Pod, if known.
    pub pod: Option<Arc<str>>,
}

/// A slice of a Service's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceSpec {
    /// Whose.
    pub service: ServiceKey,
    /// Port name, protocol, number.
    pub ports: Vec<(String, Proto, u16)>,
    /// The endpoints.
    pub endpoints: Vec<EndpointSpec>,
}

fn port_number(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port > 0)
}

fn addresses<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = texts.into_iter().filter_map(|text| text.parse().ok()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// How long a Service keeps a client with its endpoint, seconds; upstream's default is three hours.
fn affinity(spec: &core::ServiceSpec) -> Option<u32> {
    let asked = spec.session_affinity.as_deref() == Some("ClientIP");
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|config| config.timeout_seconds).and_then(|s| u32::try_from(s).ok());
    asked.then(|| seconds.filter(|s| *s > 0).unwrap_or(DEFAULT_AFFINITY))
}

impl ServiceSpec {
    /// What a Service asks of the node; nothing if it is headless, external by name, or another proxy's.
    #[must_use]
    pub fn from_api(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let labels = service.metadata.labels.as_ref();
        if labels.is_some_and(|labels| labels.contains_key(OTHER_PROXY))
            || spec.type_.as_deref() == Some("ExternalName")
        {
            return None;
        }
        let cluster_ips = addresses(spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip));
        if cluster_ips.is_empty() {
            return None;
        }
        let balancers = service.status.as_ref().and_then(|s| s.load_balancer.as_ref());
        let ingress = balancers.and_then(|b| b.ingress.as_ref()).into_iter().flatten();
        let balanced =
            ingress.filter(|i| i.ip_mode.as_deref() != Some("Proxy")).filter_map(|i| i.ip.as_ref());
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            Some(ServicePort {
                name: port.name.clone().unwrap_or_default(),
                proto: Proto::parse(port.protocol.as_deref())?,
                port: port_number(port.port)?,
                node_port: port.node_port.and_then(port_number),
            })
        });
        Some(Self {
            ports: ports.collect(),
            cluster_ips,
            external_ips: addresses(spec.external_ips.iter().flatten().chain(balanced)),
            external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            affinity: affinity(spec),
        })
    }
}

impl EndpointSpec {
    fn from_api(endpoint: &Endpoint, namespace: &str) -> Option<Self> {
        let conditions = endpoint.conditions.as_ref();
        let ready = conditions.and_then(|c| c.ready).unwrap_or(true);
        let target = endpoint.target_ref.as_ref().filter(|t| t.kind.as_deref() == Some("Pod"));
        let pod = target.and_then(|t| {
            let namespace = t.namespace.as_deref().unwrap_or(namespace);
            Some(format!("{namespace}/{}", t.name.as_deref()?).into())
        });
        Some(Self {
            address: endpoint.addresses.first()?.parse().ok()?,
            ready,
            serving: conditions.and_then(|c| c.serving).unwrap_or(ready),
            terminating: conditions.and_then(|c| c.terminating).unwrap_or(false),
            node: endpoint.node_name.as_deref().map(Into::into),
            pod,
        })
    }
}

impl SliceSpec {
    /// What a slice says; nothing if it names no Service.
    #[must_use]
    pub fn from_api(slice: &EndpointSlice) -> Option<Self> {
        let namespace = slice.metadata.namespace.as_deref()?;
        let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
        let ports = slice.ports.iter().flatten().filter_map(|port| {
            let name = port.name.clone().unwrap_or_default();
            Some((name, Proto::parse(port.protocol.as_deref())?, port.port.and_then(port_number)?))
        });
        let endpoints = slice.endpoints.iter().flatten();
        Some(Self {
            service: ServiceKey::new(namespace, service),
            ports: ports.collect(),
            endpoints: endpoints.filter_map(|e| EndpointSpec::from_api(e, namespace)).collect(),
        })
    }
}

/// What is known of the cluster, and which Services changed since it was last asked.
#[derive(Debug, Default)]
pub struct Model {
    services: HashMap<ServiceKey, ServiceSpec>,
    slices: HashMap<ServiceKey, SliceSpec>,
    by_service: HashMap<ServiceKey, BTreeSet<ServiceKey>>,
    dirty: BTreeSet<ServiceKey>,
}

impl Model {
    /// A Service is there, in this form.
    pub fn set_service(&mut self, key: ServiceKey, spec: Option<ServiceSpec>) {
        if self.services.get(&key) != spec.as_ref() {
            self.dirty.insert(key.clone());
            match spec {
                Some(spec) => self.services.insert(key, spec),
                None => self.services.remove(&key),
            };
        }
    }

    /// A slice (by namespace and its own name) is there in this form, or is gone.
    pub fn set_slice(&mut self, key: ServiceKey, spec: Option<SliceSpec>) {
        if self.slices.get(&key) == spec.as_ref() {
            return;
        }
        if let Some(old) = self.slices.remove(&key)
            && let Some(names) = self.by_service.get_mut(&old.service)
        {
            names.remove(&key);
            if names.is_empty() {
                self.by_service.remove(&old.service);
            }
            self.dirty.insert(old.service);
        }
        if let Some(new) = spec {
            self.dirty.insert(new.service.clone());
            self.by_service.entry(new.service.clone()).or_default().insert(key.clone());
            self.slices.insert(key, new);
        }
    }

    /// The Services whose name is not among these are gone.
    pub fn keep_services(&mut self, listed: &BTreeSet<ServiceKey>) {
        let gone: Vec<_> = self.services.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.into_iter().for_each(|key| self.set_service(key, None));
    }

    /// The slices whose name is not among these are gone.
    pub fn keep_slices(&mut self, listed: &BTreeSet<ServiceKey>) {
        let gone: Vec<_> = self.slices.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        gone.into_iter().for_each(|key| self.set_slice(key, None));
    }

    /// The Services that changed since [`Model::take_dirty`].
    #[must_use]
    pub fn dirty(&self) -> &BTreeSet<ServiceKey> {
        &self.dirty
    }

    /// The Services that changed since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<ServiceKey> {
        std::mem::take(&mut self.dirty)
    }

    /// A Service with all its slices, in a stable order.
    #[must_use]
    pub fn service(&self, key: &ServiceKey) -> Option<(&ServiceSpec, Vec<&SliceSpec>)> {
        let names = self.by_service.get(key).into_iter().flatten();
        Some((self.services.get(key)?, names.filter_map(|name| self.slices.get(name)).collect()))
    }
}

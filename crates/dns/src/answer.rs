//! What a name means in the cluster, by the Kubernetes DNS specification 1.1 and, where that is silent, as CoreDNS answers:
//! who asks for what a name has not gets no data, who asks for a name that is not gets no name.

use std::net::IpAddr;

use hickory_proto::rr::rdata::{A, AAAA, NS, PTR, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use crate::zone::{Endpoint, Key, Owner, Port, Service, Slice, Zone, undashed};

/// How long an answer may be kept, seconds. CoreDNS: 5.
pub const TTL: u32 = 5;
/// The version of the specification that is answered by.
const VERSION: &str = "1.1.0";
/// The weights of a port's SRV records sum up to about this.
const WEIGHT: usize = 100;

/// What is to be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// These records, and further ones that spare the next question.
    Records {
        /// The answers.
        answers: Vec<Record>,
        /// Addresses of the answers' targets.
        additionals: Vec<Record>,
    },
    /// The name is another one, which has to be looked up.
    Alias(Name),
    /// The name exists, without such records.
    NoData,
    /// The name does not exist.
    NoName,
    /// Not for this zone to say.
    Elsewhere,
}

/// The cluster's domain.
#[derive(Clone, Debug)]
pub struct Domain {
    /// As a name: `cluster.local.`.
    pub name: Name,
    labels: Vec<String>,
}

impl Domain {
    /// A domain; nothing if the text is none.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let mut name = Name::from_ascii(text.trim_end_matches('.')).ok()?;
        name.set_fqdn(true);
        (!name.is_root()).then(|| Self { labels: labels(&name), name })
    }

    /// The labels of `name` before the domain, from left to right; nothing if it is not below.
    fn strip(&self, name: &Name) -> Option<Vec<String>> {
        let mut all = labels(name);
        all.ends_with(&self.labels).then(|| {
            all.truncate(all.len() - self.labels.len());
            all
        })
    }

    /// The name of a Service.
    fn service(&self, key: &Key) -> Option<Name> {
        Name::from_labels([key.name.as_bytes(), key.namespace.as_bytes(), b"svc"])
            .and_then(|name| name.append_domain(&self.name))
            .ok()
    }

    /// The name of an endpoint of a Service.
    fn endpoint(&self, key: &Key, label: &str) -> Option<Name> {
        self.service(key)?.prepend_label(label).ok()
    }

    /// Whether a name lies in the domain.
    #[must_use]
    pub fn holds(&self, name: &Name) -> bool {
        self.strip(name).is_some()
    }

    /// The name of the server, for the zone's own records.
    #[must_use]
    pub fn server(&self) -> Name {
        Name::from_labels(["ns", "dns"])
            .and_then(|name| name.append_domain(&self.name))
            .unwrap_or_else(|_| self.name.clone())
    }
}

fn labels(name: &Name) -> Vec<String> {
    name.iter().map(|label| String::from_utf8_lossy(label).to_lowercase()).collect()
}

/// What is to be said to a question about `name`.
#[must_use]
pub fn answer(zone: &Zone, domain: &Domain, name: &Name, kind: RecordType) -> Answer {
    let asked = Asked { zone, domain, name, kind };
    let Some(labels) = domain.strip(name) else { return asked.address() };
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    match labels.as_slice() {
        [] => asked.apex(),
        ["dns-version"] => asked.text(VERSION),
        ["ns", "dns"] | ["svc" | "pod" | "dns"] => Answer::NoData,
        [rest @ .., namespace, "pod"] => asked.pod(namespace, rest),
        [rest @ .., namespace, "svc"] => asked.service(namespace, rest),
        _ => Answer::NoName,
    }
}

/// A question.
struct Asked<'a> {
    zone: &'a Zone,
    domain: &'a Domain,
    name: &'a Name,
    kind: RecordType,
}

impl Asked<'_> {
    fn record(&self, data: RData) -> Record {
        Record::from_rdata(self.name.clone(), TTL, data)
    }

    fn records(&self, data: Vec<RData>) -> Answer {
        if data.is_empty() {
            return Answer::NoData;
        }
        let answers = data.into_iter().map(|data| self.record(data)).collect();
        Answer::Records { answers, additionals: Vec::new() }
    }

    /// Those of the addresses that the question is about.
    fn addresses(&self, all: impl IntoIterator<Item = IpAddr>) -> Answer {
        let mut found: Vec<IpAddr> =
            all.into_iter().filter(|address| family(*address) == self.kind).collect();
        found.sort_unstable();
        found.dedup();
        self.records(found.into_iter().map(address).collect())
    }

    fn text(&self, text: &str) -> Answer {
        let data = (self.kind == RecordType::TXT).then(|| RData::TXT(TXT::new(vec![text.to_owned()])));
        self.records(data.into_iter().collect())
    }

    fn apex(&self) -> Answer {
        let server = self.domain.server();
        match self.kind {
            RecordType::NS => self.records(vec![RData::NS(NS(server))]),
            RecordType::SOA => Answer::Records {
                answers: vec![crate::reply::authority(self.domain)],
                additionals: Vec::new(),
            },
            _ => Answer::NoData,
        }
    }

    /// `a-b-c-d.NAMESPACE.pod`: the address that the name itself says.
    fn pod(&self, namespace: &str, rest: &[&str]) -> Answer {
        if !self.zone.has_namespace(namespace) {
            return Answer::NoName;
        }
        match rest {
            [] => Answer::NoData,
            [label] => match undashed(label) {
                Some(address) => self.addresses([address]),
                None => Answer::NoName,
            },
            _ => Answer::NoName,
        }
    }

    fn service(&self, namespace: &str, rest: &[&str]) -> Answer {
        if !self.zone.has_namespace(namespace) {
            return Answer::NoName;
        }
        let Some((service, rest)) = rest.split_last() else { return Answer::NoData };
        let key = Key::new(namespace, service);
        match (self.zone.service(&key), rest) {
            (None, _) => Answer::NoName,
            (Some(Service::External { name }), []) => self.external(name),
            (Some(Service::External { .. }), _) => Answer::NoName,
            (Some(Service::Virtual { addresses, ports }), []) => match self.kind {
                RecordType::SRV => self.ports_of_addresses(&key, addresses, ports.iter()),
                _ => self.addresses(addresses.iter().copied()),
            },
            (Some(Service::Virtual { addresses, ports }), [port, protocol])
                if let Some((name, protocol)) = named(port, protocol) =>
            {
                let ports: Vec<&Port> =
                    ports.iter().filter(|p| p.name == name && p.protocol == protocol).collect();
                if ports.is_empty() {
                    return Answer::NoName;
                }
                match self.kind {
                    RecordType::SRV => self.ports_of_addresses(&key, addresses, ports.into_iter()),
                    _ => self.addresses(addresses.iter().copied()),
                }
            }
            (Some(Service::Headless), []) => self.endpoints(&key, None, None),
            (Some(Service::Headless), [port, protocol]) if let Some(port) = named(port, protocol) => {
                self.endpoints(&key, None, Some(port))
            }
            (Some(_), [endpoint]) => self.endpoints(&key, Some(endpoint), None),
            (Some(_), _) => Answer::NoName,
        }
    }

    fn external(&self, target: &str) -> Answer {
        let mut name = match Name::from_utf8(target.trim_end_matches('.')) {
            Ok(name) if self.kind != RecordType::SRV => name,
            _ => return Answer::NoData,
        };
        name.set_fqdn(true);
        Answer::Alias(name)
    }

    /// SRV records of a Service with virtual addresses: its own name and its own port.
    fn ports_of_addresses<'p>(
        &self,
        key: &Key,
        addresses: &[IpAddr],
        ports: impl Iterator<Item = &'p Port>,
    ) -> Answer {
        let Some(target) = self.domain.service(key) else { return Answer::NoData };
        let found: Vec<(u16, Name)> =
            ports.filter(|p| !p.name.is_empty()).map(|p| (p.number, target.clone())).collect();
        let additionals =
            addresses.iter().map(|a| Record::from_rdata(target.clone(), TTL, address(*a))).collect();
        self.services(found, additionals)
    }

    /// The endpoints of a Service, or those of one name, or those that have a port.
    fn endpoints(&self, key: &Key, label: Option<&str>, port: Option<(&str, &str)>) -> Answer {
        let wanted = |p: &Port| port.is_none_or(|(name, protocol)| p.name == name && p.protocol == protocol);
        let slices = self.zone.slices(key).filter(|slice| port.is_none() || slice.ports.iter().any(wanted));
        let found: Vec<(&Slice, &Endpoint)> = slices
            .flat_map(|slice| slice.endpoints.iter().map(move |endpoint| (slice, endpoint)))
            .filter(|(_, endpoint)| label.is_none_or(|label| endpoint.name == label))
            .collect();
        if found.is_empty() {
            return Answer::NoName;
        }
        if self.kind != RecordType::SRV {
            return self.addresses(found.iter().map(|(_, endpoint)| endpoint.address));
        }
        let (mut services, mut additionals) = (Vec::new(), Vec::new());
        for (slice, endpoint) in found {
            let Some(target) = self.domain.endpoint(key, &endpoint.name) else { continue };
            let ports = slice.ports.iter().filter(|p| !p.name.is_empty() && wanted(p));
            services.extend(ports.map(|p| (p.number, target.clone())));
            additionals.push(Record::from_rdata(target, TTL, address(endpoint.address)));
        }
        self.services(services, additionals)
    }

    fn services(&self, mut found: Vec<(u16, Name)>, mut additionals: Vec<Record>) -> Answer {
        found.sort();
        found.dedup();
        additionals.dedup();
        let weight = u16::try_from((WEIGHT / found.len().max(1)).max(1)).unwrap_or(1);
        let data = found.into_iter().map(|(port, target)| RData::SRV(SRV::new(0, weight, port, target)));
        match self.records(data.collect()) {
            Answer::Records { answers, .. } => Answer::Records { answers, additionals },
            other => other,
        }
    }

    /// The names of an address, if it is one of the cluster's.
    fn address(&self) -> Answer {
        let Ok(net) = self.name.parse_arpa_name() else { return Answer::Elsewhere };
        if net.prefix_len() != net.max_prefix_len() {
            return Answer::Elsewhere;
        }
        let names = self.zone.owners(net.addr()).into_iter().filter_map(|owner| match owner {
            Owner::Service(key) => self.domain.service(key),
            Owner::Endpoint(key, label) => self.domain.endpoint(key, label),
        });
        let names: Vec<Name> = names.collect();
        match (names.is_empty(), self.kind) {
            (true, _) => Answer::Elsewhere,
            (false, RecordType::PTR) => {
                self.records(names.into_iter().map(|name| RData::PTR(PTR(name))).collect())
            }
            (false, _) => Answer::NoData,
        }
    }
}

/// `_port` and `_protocol` without their underscores.
fn named<'a>(port: &'a str, protocol: &'a str) -> Option<(&'a str, &'a str)> {
    Some((port.strip_prefix('_')?, protocol.strip_prefix('_')?))
}

fn family(address: IpAddr) -> RecordType {
    match address {
        IpAddr::V4(_) => RecordType::A,
        IpAddr::V6(_) => RecordType::AAAA,
    }
}

fn address(address: IpAddr) -> RData {
    match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    }
}

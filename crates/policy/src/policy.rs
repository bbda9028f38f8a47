//! One NetworkPolicy, reduced to what it allows. Pure.

use trine_kernel::netlink::Cidr;
use trine_typed::k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use trine_typed::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::lookup::{Namespaces, Query};
use crate::ranges::{Range, merged, without};

/// Who began the connection, seen from the Pod that is isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Another did.
    Ingress,
    /// The Pod did.
    Egress,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// The API's word, in small letters.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// A protocol that has ports.
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

/// Which ports of the one who is connected to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// All of a protocol.
    All(Proto),
    /// From the first to the last.
    Numbers(Proto, u16, u16),
    /// Those that Pods call so.
    Named(Proto, String),
}

impl Port {
    /// What cannot be understood allows nothing.
    fn from_api(port: &NetworkPolicyPort) -> Option<Self> {
        let proto = Proto::parse(port.protocol.as_deref())?;
        Some(match &port.port {
            None => Self::All(proto),
            Some(IntOrString::String(name)) => Self::Named(proto, name.clone()),
            Some(IntOrString::Int(first)) => {
                let first = u16::try_from(*first).ok()?;
                let last = port.end_port.map_or(Some(first), |last| u16::try_from(last).ok())?;
                Self::Numbers(proto, first, last)
            }
        })
    }
}

/// Who may be at the other end.
#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    /// These Pods.
    Pods(Query),
    /// These addresses.
    Block(Vec<Range>),
}

impl Peer {
    fn from_api(peer: &NetworkPolicyPeer, namespace: &str) -> Option<Self> {
        if let Some(block) = &peer.ip_block {
            let except: Vec<Cidr> =
                block.except.iter().flatten().map(|text| text.parse()).collect::<Result<_, _>>().ok()?;
            return Some(Self::Block(merged(without(block.cidr.parse().ok()?, &except))));
        }
        if peer.pod_selector.is_none() && peer.namespace_selector.is_none() {
            return None;
        }
        let namespaces = match &peer.namespace_selector {
            None => Namespaces::One(namespace.to_owned()),
            Some(selector) => Namespaces::Matching(selector.clone()),
        };
        Some(Self::Pods(Query::Pods { namespaces, pods: peer.pod_selector.clone().unwrap_or_default() }))
    }
}

/// What one rule allows: any of its peers at any of its ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// None is everybody.
    pub peers: Option<Vec<Peer>>,
    /// None is every port and protocol.
    pub ports: Option<Vec<Port>>,
}

impl Rule {
    fn from_api(
        peers: Option<&Vec<NetworkPolicyPeer>>,
        ports: Option<&Vec<NetworkPolicyPort>>,
        namespace: &str,
    ) -> Self {
        let peers = peers.filter(|peers| !peers.is_empty());
        let ports = ports.filter(|ports| !ports.is_empty());
        Self {
            peers: peers.map(|peers| peers.iter().filter_map(|p| Peer::from_api(p, namespace)).collect()),
            ports: ports.map(|ports| ports.iter().filter_map(Port::from_api).collect()),
        }
    }
}

/// What a policy says of the Pods that it selects.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Which Pods of its namespace.
    pub selector: LabelSelector,
    /// What may come in; none if the policy does not judge that.
    pub ingress: Option<Vec<Rule>>,
    /// What may go out; none if the policy does not judge that.
    pub egress: Option<Vec<Rule>>,
}

impl Policy {
    /// What a policy says; nothing if it has no spec.
    #[must_use]
    pub fn from_api(policy: &NetworkPolicy) -> Option<Self> {
        let spec = policy.spec.as_ref()?;
        let namespace = policy.metadata.namespace.as_deref()?;
        let ingress = spec.ingress.iter().flatten();
        let ingress = ingress.map(|r| Rule::from_api(r.from.as_ref(), r.ports.as_ref(), namespace));
        let egress = spec.egress.iter().flatten();
        let egress = egress.map(|r| Rule::from_api(r.to.as_ref(), r.ports.as_ref(), namespace));
        Some(Self {
            selector: spec.pod_selector.clone().unwrap_or_default(),
            ingress: judges(spec, Direction::Ingress).then(|| ingress.collect()),
            egress: judges(spec, Direction::Egress).then(|| egress.collect()),
        })
    }

    /// What it allows in a direction, if it judges that.
    #[must_use]
    pub fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }
}

/// Without types a policy judges what comes in, and what goes out if it has rules for that.
fn judges(spec: &NetworkPolicySpec, direction: Direction) -> bool {
    let types = spec.policy_types.as_deref().unwrap_or_default();
    match direction {
        _ if !types.is_empty() => types.iter().any(|kind| kind.eq_ignore_ascii_case(direction.word())),
        Direction::Ingress => true,
        Direction::Egress => spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
    }
}

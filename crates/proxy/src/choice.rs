//! Which endpoints take the traffic of a Service's port. Pure.

use std::net::IpAddr;

use crate::model::{EndpointSpec, ServicePort, SliceSpec};

/// What is asked of a choice: the node it is for.
pub(crate) struct Place<'a> {
    pub(crate) node: &'a str,
    pub(crate) is_local_address: &'a dyn Fn(IpAddr) -> bool,
    pub(crate) v4: bool,
}

impl Place<'_> {
    /// An endpoint without a node counts as local if its address is one of this node's Pods.
    pub(crate) fn is_local(&self, endpoint: &EndpointSpec) -> bool {
        match &endpoint.node {
            Some(node) => **node == *self.node,
            None => (self.is_local_address)(endpoint.address),
        }
    }
}

/// The endpoints of one port.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// For traffic that may go anywhere.
    pub(crate) cluster: Vec<(IpAddr, u16)>,
    /// For traffic that must stay on the node.
    pub(crate) local: Vec<(IpAddr, u16)>,
    /// Every address on this node among them.
    pub(crate) own: Vec<IpAddr>,
}

/// Ready endpoints; if there is none, those that still serve while they terminate. The two lists fall back each
/// for itself.
pub(crate) fn choose(port: &ServicePort, slices: &[&SliceSpec], place: &Place<'_>) -> Choice {
    let mut all: Vec<(&EndpointSpec, u16)> = Vec::new();
    for slice in slices {
        let numbers =
            slice.ports.iter().filter(|(name, proto, _)| *name == port.name && *proto == port.proto);
        for (_, _, number) in numbers {
            let fitting = slice.endpoints.iter().filter(|e| e.address.is_ipv4() == place.v4);
            all.extend(fitting.map(|endpoint| (endpoint, *number)));
        }
    }
    let pick = |local: bool| {
        let within = |e: &EndpointSpec| !local || place.is_local(e);
        let take = |fit: &dyn Fn(&EndpointSpec) -> bool| {
            let fitting = all.iter().filter(|(e, _)| fit(e) && within(e));
            let mut found: Vec<_> = fitting.map(|(e, number)| (e.address, *number)).collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        let ready = take(&|e| e.ready);
        if ready.is_empty() { take(&|e| e.serving && e.terminating) } else { ready }
    };
    let (cluster, local) = (pick(false), pick(true));
    let on_node = |address: &IpAddr| all.iter().any(|(e, _)| e.address == *address && place.is_local(e));
    let mut own: Vec<_> = cluster.iter().chain(&local).map(|(address, _)| *address).filter(on_node).collect();
    own.sort_unstable();
    own.dedup();
    Choice { cluster, local, own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Proto, ServiceKey};

    const STATES: [(&str, bool, bool, bool); 4] = [
        ("ready", true, true, false),
        ("leaving", false, true, true),
        ("sick", false, false, false),
        ("gone", false, false, true),
    ];

    fn endpoint(last: u8, state: &str, node: &str) -> EndpointSpec {
        let (_, ready, serving, terminating) = *STATES.iter().find(|s| s.0 == state).unwrap();
        let node = (!node.is_empty()).then(|| node.into());
        EndpointSpec { address: [10, 244, 0, last].into(), ready, serving, terminating, node, pod: None }
    }

    #[test]
    fn ready_endpoints_come_first_then_those_that_still_serve() {
        type Row = (
            &'static str,
            &'static [(u8, &'static str, &'static str)],
            &'static [u8],
            &'static [u8],
            &'static [u8],
        );
        let rows: [Row; 6] = [
            ("all ready", &[(1, "ready", "n1"), (2, "ready", "n2")], &[1, 2], &[1], &[1]),
            ("one leaving", &[(1, "leaving", "n1"), (2, "ready", "n2")], &[2], &[1], &[1]),
            ("all leaving", &[(1, "leaving", "n1"), (2, "leaving", "n2")], &[1, 2], &[1], &[1]),
            ("sick ones never", &[(1, "sick", "n1"), (2, "gone", "n2")], &[], &[], &[]),
            ("no node, a Pod's address", &[(1, "ready", "")], &[1], &[1], &[1]),
            ("twice the same", &[(1, "ready", "n2"), (1, "ready", "n2")], &[1], &[], &[]),
        ];
        let port = ServicePort { name: "web".into(), proto: Proto::Tcp, port: 80, node_port: None };
        let place = Place { node: "n1", is_local_address: &|_| true, v4: true };
        for (name, endpoints, cluster, local, own) in rows {
            let slice = SliceSpec {
                service: ServiceKey::new("default", "web"),
                ports: vec![("web".into(), Proto::Tcp, 8080), ("other".into(), Proto::Tcp, 1)],
                endpoints: endpoints.iter().map(|(last, state, node)| endpoint(*last, state, node)).collect(),
            };
            let at = |lasts: &[u8]| {
                lasts.iter().map(|l| (IpAddr::from([10, 244, 0, *l]), 8080)).collect::<Vec<_>>()
            };
            let choice = choose(&port, &[&slice], &place);
            assert_eq!(choice.cluster, at(cluster), "{name}");
            assert_eq!(choice.local, at(local), "{name}");
            assert_eq!(choice.own, at(own).iter().map(|a| a.0).collect::<Vec<_>>(), "{name}");
        }
    }
}

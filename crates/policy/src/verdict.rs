//! What a node's chains mean for one connection: the same as the kernel finds, by hand. Pure.

use std::net::IpAddr;

use trine_kernel::nft::Flow;

use crate::plan::{Chain, Content, Desired, From, Pass, To};
use crate::policy::Direction;

/// A connection by its true ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Talk {
    /// 6 for TCP, 17 for UDP, 132 for SCTP.
    pub proto: u8,
    /// Who began it.
    pub source: IpAddr,
    /// With whom.
    pub destination: IpAddr,
    /// At which port.
    pub port: u16,
}

impl Talk {
    /// Of a connection that the kernel tracks: whoever answers is whom it was led to.
    #[must_use]
    pub fn of(flow: &Flow) -> Self {
        Self {
            proto: flow.proto,
            source: flow.original.source,
            destination: flow.reply.source,
            port: flow.reply.source_port,
        }
    }
}

impl Desired {
    /// Whether both ends' policies allow a connection, as far as the ends are Pods of this node.
    #[must_use]
    pub fn allows(&self, talk: &Talk) -> bool {
        talk.source == talk.destination
            || self.lets(Direction::Egress, talk.source, talk.destination, talk)
                && self.lets(Direction::Ingress, talk.destination, talk.source, talk)
    }

    fn lets(&self, direction: Direction, pod: IpAddr, other: IpAddr, talk: &Talk) -> bool {
        let Some(profile) = self.pods.get(&(direction, pod)) else { return true };
        let Some(Chain::Profile(policies)) = self.chains.get(profile) else { return false };
        let passes = policies.iter().filter_map(|name| match self.chains.get(name) {
            Some(Chain::Policy(_, passes)) => Some(passes),
            _ => None,
        });
        passes.flatten().any(|pass| self.fits(pass, other, talk))
    }

    fn fits(&self, pass: &Pass, other: IpAddr, talk: &Talk) -> bool {
        let from = match &pass.from {
            From::Anybody => true,
            From::Set(name) => match self.sets.get(name) {
                Some(Content::Pods(pods)) => pods.contains(&(other, 0)),
                Some(Content::Block(ranges)) => ranges.iter().any(|range| range.contains(other)),
                _ => false,
            },
        };
        let same = |proto: crate::policy::Proto| proto as u8 == talk.proto;
        from && match &pass.to {
            To::Any => true,
            To::All(proto) => same(*proto),
            To::Numbers(proto, first, last) => same(*proto) && (first..=last).contains(&&talk.port),
            To::Set(name) => match self.sets.get(name) {
                Some(Content::Ports(ports)) => {
                    ports.iter().any(|(proto, port)| same(*proto) && *port == talk.port)
                }
                _ => false,
            },
            To::Named(proto, name) => match self.sets.get(name) {
                Some(Content::Named(named)) => same(*proto) && named.contains(&(talk.destination, talk.port)),
                _ => false,
            },
        }
    }
}

//! What policies ask of all Pods of the cluster, and the answers, kept as Pods come and go. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use trine_typed::placement::labels_match;

use crate::model::PodFacts;
use crate::policy::Proto;

/// Which namespaces.
#[derive(Clone, Debug, PartialEq)]
pub enum Namespaces {
    /// This one.
    One(String),
    /// Those with such labels.
    Matching(LabelSelector),
}

/// A question about Pods. Several policies may ask the same.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// Which addresses do Pods with such labels have?
    Pods {
        /// In these namespaces.
        namespaces: Namespaces,
        /// With such labels.
        pods: LabelSelector,
    },
    /// Which address has a port of that name, and which?
    Named(Proto, String),
}

/// One answer: an address, and a port where ports are asked for (zero else).
pub type Member = (IpAddr, u16);

/// A short name for what is told by a text: the same for the same.
#[must_use]
pub fn short(prefix: &str, text: &str) -> String {
    format!("{prefix}-{}", &hex::encode(Sha256::digest(text))[..20])
}

impl Query {
    /// The name of its answers' set.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Pods { namespaces: Namespaces::One(name), pods } => {
                short("pods", &format!("in {name} {}", text(pods)))
            }
            Self::Pods { namespaces: Namespaces::Matching(selector), pods } => {
                short("pods", &format!("{} {}", text(selector), text(pods)))
            }
            Self::Named(proto, name) => short("named", &format!("{} {name}", *proto as u8)),
        }
    }

    /// The ports with which an owner of an address is in the answer.
    fn of(&self, pod: &PodFacts, namespace: (&str, Option<&BTreeMap<String, String>>)) -> Vec<u16> {
        match self {
            Self::Pods { namespaces, pods } => {
                let within = match namespaces {
                    Namespaces::One(name) => name == namespace.0,
                    // A namespace that is not known yet has no labels that anybody may rely on.
                    Namespaces::Matching(selector) => {
                        namespace.1.is_some() && labels_match(selector, namespace.1)
                    }
                };
                if within && labels_match(pods, Some(&pod.labels)) { vec![0] } else { Vec::new() }
            }
            Self::Named(proto, name) => {
                let fits = pod.ports.iter().filter(|port| port.0 == *name && port.1 == *proto);
                fits.map(|port| port.2).collect()
            }
        }
    }
}

fn text(selector: &LabelSelector) -> String {
    serde_json::to_string(selector).unwrap_or_default()
}

#[derive(Debug)]
struct Lookup {
    query: Query,
    members: Arc<BTreeSet<Member>>,
    used: bool,
}

/// The owner of an address: its facts, its namespace and that one's labels.
pub type Owner<'a> = (&'a PodFacts, &'a str, Option<&'a BTreeMap<String, String>>);

/// All questions that were asked, by name.
#[derive(Debug, Default)]
pub struct Lookups {
    known: BTreeMap<String, Lookup>,
}

impl Lookups {
    /// The answer to a question, counted from `everybody` if it was not asked before.
    pub fn ask<'a>(
        &mut self,
        query: &Query,
        everybody: impl Iterator<Item = (IpAddr, Owner<'a>)>,
    ) -> (String, Arc<BTreeSet<Member>>) {
        let name = query.name();
        let lookup = self.known.entry(name.clone()).or_insert_with(|| {
            let members = everybody.flat_map(|(address, (pod, name, labels))| {
                query.of(pod, (name, labels)).into_iter().map(move |port| (address, port))
            });
            Lookup { query: query.clone(), members: Arc::new(members.collect()), used: true }
        });
        lookup.used = true;
        (name, lookup.members.clone())
    }

    /// An address has this owner now.
    pub fn refresh(&mut self, address: IpAddr, owner: Option<Owner<'_>>) {
        for lookup in self.known.values_mut() {
            let now: BTreeSet<Member> = owner
                .map(|(pod, name, labels)| lookup.query.of(pod, (name, labels)))
                .unwrap_or_default()
                .into_iter()
                .map(|port| (address, port))
                .collect();
            let before = lookup.members.range((address, 0)..=(address, u16::MAX)).copied();
            let before: BTreeSet<Member> = before.collect();
            if before != now {
                let members = Arc::make_mut(&mut lookup.members);
                for member in &before {
                    members.remove(member);
                }
                members.extend(now);
            }
        }
    }

    /// What is not asked from now on until [`Lookups::drop_unused`] is forgotten by it.
    pub fn begin(&mut self) {
        self.known.values_mut().for_each(|lookup| lookup.used = false);
    }

    /// Forgets the questions that nobody has.
    pub fn drop_unused(&mut self) {
        self.known.retain(|_, lookup| lookup.used);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.known.clear();
    }
}

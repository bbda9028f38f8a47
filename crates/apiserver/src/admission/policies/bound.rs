//! Policies beside their bindings: a policy without one decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Binding, Policy};

/// Policies with their bindings, both in the order of their names.
pub type Pairs<E> = Arc<[(Arc<Policy<E>>, Vec<Arc<Binding>>)]>;

/// Policies and bindings as they come and go.
#[derive(Debug)]
pub struct Bound<E> {
    policies: BTreeMap<String, Arc<Policy<E>>>,
    bindings: BTreeMap<String, Arc<Binding>>,
    pairs: Pairs<E>,
}

impl<E> Default for Bound<E> {
    fn default() -> Self {
        Self { policies: BTreeMap::new(), bindings: BTreeMap::new(), pairs: Arc::new([]) }
    }
}

impl<E> Bound<E> {
    /// What is in force.
    #[must_use]
    pub fn pairs(&self) -> Pairs<E> {
        Arc::clone(&self.pairs)
    }

    /// A policy is there, or gone.
    pub fn set_policy(&mut self, name: &str, policy: Option<Policy<E>>) {
        match policy {
            Some(policy) => drop(self.policies.insert(name.to_owned(), Arc::new(policy))),
            None => drop(self.policies.remove(name)),
        }
        self.pair();
    }

    /// A binding is there, or gone.
    pub fn set_binding(&mut self, name: &str, binding: Option<Binding>) {
        match binding {
            Some(binding) => drop(self.bindings.insert(name.to_owned(), Arc::new(binding))),
            None => drop(self.bindings.remove(name)),
        }
        self.pair();
    }

    /// All policies are forgotten.
    pub fn clear_policies(&mut self) {
        self.policies.clear();
        self.pair();
    }

    /// All bindings are forgotten.
    pub fn clear_bindings(&mut self) {
        self.bindings.clear();
        self.pair();
    }

    fn pair(&mut self) {
        let of = |policy: &Arc<Policy<E>>| {
            let own = self.bindings.values().filter(|b| b.policy == policy.name).cloned();
            (Arc::clone(policy), own.collect::<Vec<_>>())
        };
        self.pairs = self.policies.values().map(of).filter(|(_, bindings)| !bindings.is_empty()).collect();
    }
}

//! What somebody is asked about: the objects of a request under the version that he wants.

use std::sync::Arc;

use serde_json::Value;

use super::attempt::Attempt;
use crate::catalog::Served;
use crate::cel::Asking;
use crate::registry::Registry;
use trine_cel::{Bindings, Run};

/// The objects of a request under a version.
#[derive(Debug)]
pub struct Wanted {
    /// The version.
    pub version: Arc<Served>,
    /// The object as it is to be.
    pub object: Option<Value>,
    /// The object as it is.
    pub old: Option<Value>,
}

impl Wanted {
    /// Expressions about the request. They know nothing of the namespace, as upstream's match conditions.
    #[must_use]
    pub fn run(&self, registry: &Registry, attempt: &Attempt) -> Run {
        let request = attempt.told(&self.version);
        Run::new(Bindings {
            object: self.object.as_ref(),
            old: self.old.as_ref(),
            request: Some(&request),
            more: Some(&asking(registry, attempt)),
            ..Bindings::default()
        })
    }
}

/// Who asks whom, in the expressions about a request.
#[must_use]
pub fn asking(registry: &Registry, attempt: &Attempt) -> Asking {
    Asking {
        authorizer: Arc::clone(registry.authorizer()),
        user: Arc::clone(&attempt.user),
        request: attempt.wanted(),
    }
}

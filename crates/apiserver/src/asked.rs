//! What a request asked for, for those who look at it from below the verbs: under which version and with which options.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use crate::catalog::Served;
use crate::request::{Query, Target};

/// What a request asked for.
#[derive(Debug)]
pub struct Asked {
    /// The resource under the version of the path; below the verbs it is the stored one.
    pub resource: Arc<Served>,
    options: Map<String, Value>,
    patch: bool,
    warnings: Mutex<Vec<String>>,
}

impl Asked {
    /// From the query, and the body where it is one of options.
    #[must_use]
    pub fn new(resource: &Arc<Served>, query: &Query, body: &Value) -> Self {
        let mut options = Map::new();
        for key in ["fieldManager", "fieldValidation", "propagationPolicy"] {
            if let Some(value) = query.get(key) {
                options.insert(key.to_owned(), value.into());
            }
        }
        if query.get("dryRun").is_some() {
            options.insert("dryRun".to_owned(), json!(["All"]));
        }
        if let Some(seconds) = query.number("gracePeriodSeconds").ok().flatten() {
            options.insert("gracePeriodSeconds".to_owned(), seconds.into());
        }
        let given = body.as_object().into_iter().flatten();
        options.extend(given.map(|(k, v)| (k.clone(), v.clone())));
        Self { resource: Arc::clone(resource), options, patch: false, warnings: Mutex::default() }
    }

    /// From a path and its query.
    #[must_use]
    pub fn of(target: &Target, query: &Query) -> Self {
        Self::new(&target.resource, query, &Value::Null)
    }

    /// The same by a patch.
    #[must_use]
    pub fn by_patch(self) -> Self {
        Self { patch: true, ..self }
    }

    /// Whether it came by a patch.
    #[must_use]
    pub fn is_patch(&self) -> bool {
        self.patch
    }

    /// The options as an object: `kind` is `CreateOptions` or another of these.
    #[must_use]
    pub fn options(&self, kind: &str) -> Value {
        let mut options = self.options.clone();
        options.insert("kind".to_owned(), kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        Value::Object(options)
    }

    /// Keeps warnings for the client, where the verb's answer has no place for them.
    pub fn warn(&self, warnings: Vec<String>) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings);
    }
}

tokio::task_local! {
    static ASKED: Arc<Asked>;
}

/// Does what was asked for; gives the warnings that were kept, too.
pub async fn doing<F: Future>(asked: Asked, work: F) -> (F::Output, Vec<String>) {
    let asked = Arc::new(asked);
    let done = ASKED.scope(Arc::clone(&asked), work).await;
    let warnings = std::mem::take(&mut *asked.warnings.lock().unwrap_or_else(PoisonError::into_inner));
    (done, warnings)
}

/// What the request asked for that this is done for; `None` for what the server does by itself, and for what only follows from
/// a request, as the deletion of an evicted Pod.
#[must_use]
pub fn asked() -> Option<Arc<Asked>> {
    ASKED.try_with(Arc::clone).ok()
}

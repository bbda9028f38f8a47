//! GET of many objects: newest, as of a revision, or in pages that all show the same moment.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use trine_store::{ListError, Object};

use crate::registry::{Registry, scope};
use crate::request::{Query, Selection, Target};
use crate::status::ApiError;

/// How long a list waits for a revision that has not been yet. Upstream: 3 s.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// One page.
#[derive(Debug, Default)]
pub struct Page {
    /// The objects.
    pub objects: Vec<Arc<Object>>,
    /// As of this revision.
    pub revision: u64,
    /// Where the next page begins.
    pub next: Option<String>,
    /// How many are left, when that can be said.
    pub remaining: Option<usize>,
}

#[derive(Serialize, Deserialize)]
struct Continue {
    rv: u64,
    start: String,
}

/// Lists.
///
/// # Errors
/// [`ApiError::Expired`] for a forgotten revision, [`ApiError::TooLargeRevision`] for one to come.
pub async fn list(registry: &Registry, target: &Target, query: &Query) -> Result<Page, ApiError> {
    let selection = Selection::parse(query, target)?;
    let scope = scope(&target.resource, &target.namespace);
    let prefix = registry.prefix(&target.resource);
    let limit = query.number("limit")?.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    let from = query.get("continue").map(token).transpose()?;
    let asked = revision(query)?;
    if from.is_some() && asked.is_some_and(|r| r > 0) {
        let why = "specifying resource version is not allowed when using continue";
        return Err(ApiError::BadRequest(why.to_owned()));
    }
    let exact = match query.get("resourceVersionMatch") {
        Some("Exact") => true,
        // Upstream's older rule: a page of a revision is of exactly that one.
        None => limit.is_some(),
        Some(_) => false,
    };
    let listed = match (&from, asked) {
        (Some(from), _) => prefix.list_at(&scope, from.rv),
        (None, Some(revision)) if exact && revision > 0 => {
            wait(registry, revision).await?;
            prefix.list_at(&scope, revision)
        }
        (None, Some(revision)) => {
            wait(registry, revision).await?;
            Ok(prefix.list(&scope))
        }
        (None, None) => Ok(prefix.list(&scope)),
    };
    let listed = listed.map_err(|ListError::Expired { .. }| match from {
        Some(_) => ApiError::Expired("continue parameter"),
        None => ApiError::Expired("resourceVersion"),
    })?;
    let begin = from.as_ref().map_or("", |f| f.start.as_str());
    let mut objects: Vec<Arc<Object>> = listed.objects;
    objects.retain(|o| &*o.key > begin && selection.wants(o));
    let mut page = Page { revision: listed.revision, ..Page::default() };
    if let Some(limit) = limit.filter(|limit| objects.len() > *limit) {
        let left = objects.len() - limit;
        objects.truncate(limit);
        let start = objects.last().map(|o| o.key.to_string()).unwrap_or_default();
        let token = Continue { rv: listed.revision, start };
        page.next = serde_json::to_vec(&token).ok().map(|t| URL_SAFE_NO_PAD.encode(t));
        page.remaining = selection.is_everything().then_some(left);
    }
    page.objects = objects;
    Ok(page)
}

fn token(text: &str) -> Result<Continue, ApiError> {
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
    let token = bytes.and_then(|b| serde_json::from_slice(&b).ok());
    token.ok_or_else(|| ApiError::BadRequest("continue key is not valid".to_owned()))
}

/// The revision that a query names.
///
/// # Errors
/// [`ApiError::BadRequest`] if it is no number.
pub fn revision(query: &Query) -> Result<Option<u64>, ApiError> {
    query.number("resourceVersion")
}

/// Waits a little for a revision to come.
///
/// # Errors
/// [`ApiError::TooLargeRevision`].
pub async fn wait(registry: &Registry, revision: u64) -> Result<(), ApiError> {
    if registry.cache().shown(revision, FUTURE_WAIT).await {
        return Ok(());
    }
    Err(ApiError::TooLargeRevision { asked: revision, current: registry.cache().revision() })
}

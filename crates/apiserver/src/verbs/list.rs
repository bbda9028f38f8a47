//! GET of many objects: newest, as of a revision, or in pages that all show the same moment.

use std::sync::Arc;
use std::time::Duration;

use trine_store::cache::Part;
use trine_store::{ListError, Object};

use super::read_options::{Options, Resume};
use crate::registry::{Registry, scope};
use crate::request::{Query, Selection, Target};
use crate::status::ApiError;

/// How long a list waits for a revision that has not been yet. Upstream: 3 s.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

const TOO_OLD: &str = "The resourceVersion for the provided list is too old.";
const CONTINUE_TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can \
    start a new list without the continue parameter, or use the continue token in this response to retrieve the \
    remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
    created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

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

/// Lists.
///
/// # Errors
/// [`ApiError::Expired`] for a forgotten revision, [`ApiError::TooLargeRevision`] for one to come, and what
/// [`Options::parse`] refuses.
pub async fn list(registry: &Registry, target: &Target, query: &Query) -> Result<Page, ApiError> {
    let options = Options::parse(query, false)?;
    let selection = Selection::parse(query, target)?;
    let scope = scope(&target.resource, &target.namespace);
    let prefix = registry.prefix(&target.resource);
    let asked = match &options.from {
        Some(from) => from.revision,
        None => options.revision,
    };
    match asked {
        Some(revision) => wait(registry, revision).await?,
        None => registry.consistent().await?,
    }
    let exact = match &options.from {
        Some(from) => from.revision,
        None => options.revision.filter(|_| options.exact()),
    };
    let start = options.from.as_ref().map(|from| format!("{scope}{}", from.start));
    let everything = selection.is_everything();
    let listed = {
        let part = Part {
            scope: &scope,
            start: start.as_deref(),
            // One more shows whether there is more.
            limit: options.limit.map(|limit| limit + 1),
            wanted: &|object| everything || selection.may_want(object),
        };
        match exact {
            Some(revision) => prefix.list_at(&part, revision),
            None => Ok(prefix.list(&part)),
        }
    };
    let listed = listed.map_err(|ListError::Expired { .. }| match &options.from {
        Some(from) => ApiError::Expired {
            message: CONTINUE_TOO_OLD.to_owned(),
            next: Some(Resume { revision: None, start: from.start.clone() }.encode()),
        },
        None => ApiError::expired(TOO_OLD),
    })?;
    let mut page = Page { revision: listed.revision, objects: listed.objects, ..Page::default() };
    if let Some(limit) = options.limit.filter(|limit| page.objects.len() > *limit) {
        page.objects.truncate(limit);
        // The smallest key behind the last one.
        let last = page.objects.last().and_then(|o| o.key.strip_prefix(scope.as_str()));
        let start = format!("{}\0", last.unwrap_or_default());
        page.next = Some(Resume { revision: Some(listed.revision), start }.encode());
        page.remaining = everything.then_some(listed.left + 1);
    }
    page.objects = shown(registry, target, &selection, page.objects).await?;
    Ok(page)
}

/// The wanted ones of objects that may be: as they are shown where that is what counts.
///
/// # Errors
/// [`ApiError::Failed`] if a webhook does not convert them.
pub async fn shown(
    registry: &Registry,
    target: &Target,
    selection: &Selection,
    objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, ApiError> {
    if !selection.is_of_converted() {
        return Ok(objects);
    }
    let mut objects = target.resource.show_all(registry, objects).await?;
    objects.retain(|object| selection.wants(object));
    Ok(objects)
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

//! Spans of the steps that a user sees in a Pod's timeline.

use tracing::Span;

use crate::error::ImageError;

/// Records a failure with all its causes in the step's span.
pub(crate) fn outcome<T>(span: &Span, result: Result<T, ImageError>) -> Result<T, ImageError> {
    if let Err(e) = &result {
        span.record("error", causes(e).as_str());
    }
    result
}

/// An error and what is behind it, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

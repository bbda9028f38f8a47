//! Spans of steps that a user sees in a Pod's timeline.

use tracing::{Instrument, Span};

use crate::error::KubeletError;

/// Runs `future` inside `span`, and records its error there. The span has the target `trine::step` and an empty
/// field `error`.
///
/// # Errors
/// The future's.
pub async fn traced<T>(
    span: Span,
    future: impl Future<Output = Result<T, KubeletError>>,
) -> Result<T, KubeletError> {
    let result = future.instrument(span.clone()).await;
    if let Err(error) = &result {
        span.record("error", error.chain());
    }
    result
}

//! From an async call to blocking work and back.

use std::sync::Arc;

use tonic::{Response, Status};
use tracing::Span;

use crate::driver::Driver;
use crate::error::{Cause, DriverError};

/// All services over one driver.
#[derive(Clone)]
pub struct Service {
    pub(super) driver: Arc<Driver>,
}

impl Service {
    /// Serves `driver`.
    #[must_use]
    pub fn new(driver: Arc<Driver>) -> Self {
        Self { driver }
    }

    /// Does `work` on a blocking thread inside `step`. It goes on when the caller gives up: the volume's lock is
    /// held till its end, so a repetition is told to wait.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        step: Span,
        call: &'static str,
        object: &str,
        work: impl FnOnce(&Driver) -> Result<T, Cause> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let driver = Arc::clone(&self.driver);
        let within = step.clone();
        let done = tokio::task::spawn_blocking(move || within.in_scope(|| work(&driver))).await;
        let result = done.unwrap_or_else(|error| Err(Cause::Broken(error.to_string())));
        result.map(Response::new).map_err(|cause| {
            let object = if object.is_empty() { "-" } else { object }.to_owned();
            let status = DriverError { call, object, cause }.status();
            step.record("error", status.message());
            tracing::debug!(code = ?status.code(), "{}", status.message());
            status
        })
    }
}

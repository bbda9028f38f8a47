//! A loop that outlives its panics: a fault in one controller is an error in the log, not the end of the others.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Pause before a controller that panicked is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Runs what `controller` makes until it returns; after a panic, anew.
pub async fn supervised<F, Fut>(name: &'static str, stop: &CancellationToken, controller: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    while !stop.is_cancelled() {
        match tokio::spawn(controller()).await {
            Ok(()) => return,
            Err(error) => {
                tracing::error!(controller = name, %error, "panicked; starting it again");
                tokio::time::sleep(RESTART_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_panics_runs_again() {
        let runs = Arc::new(AtomicU32::new(0));
        let controller = || {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            async move { assert!(run > 0, "the first run fails") }
        };
        supervised("test", &CancellationToken::new(), controller).await;
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }
}

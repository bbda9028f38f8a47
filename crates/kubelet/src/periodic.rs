//! What is done again and again, until the kubelet stops.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Takes a turn at once and then each `period`, one after the other; `stop` ends it, also in the middle of a turn.
pub async fn every<F: Future<Output = ()>>(period: Duration, stop: &CancellationToken, turn: impl Fn() -> F) {
    let turns = async {
        let mut ticks = tokio::time::interval(period);
        loop {
            ticks.tick().await;
            turn().await;
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = turns => {}
    }
}

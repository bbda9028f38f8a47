//! Waiting with a deadline.

use std::time::{Duration, Instant};

/// Longest wait of a test for one thing.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Asks `check` until it gives `Ok`; its last error is in the panic.
///
/// # Panics
/// After [`DEADLINE`].
pub fn until<T>(what: &str, mut check: impl FnMut() -> Result<T, String>) -> T {
    let since = Instant::now();
    loop {
        match check() {
            Ok(value) => return value,
            Err(last) if since.elapsed() > DEADLINE => panic!("{what}: not after {DEADLINE:?}; last: {last}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

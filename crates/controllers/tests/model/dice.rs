//! Chance that follows from a seed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A die that several hands throw.
#[derive(Clone)]
pub struct Dice {
    rng: Arc<Mutex<fastrand::Rng>>,
}

impl Dice {
    /// Of a seed.
    pub fn new(seed: u64) -> Self {
        Self { rng: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))) }
    }

    fn with<T>(&self, what: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        what(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True so often.
    pub fn chance(&self, often: f64) -> bool {
        self.with(|rng| rng.f64() < often)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&self, end: usize) -> usize {
        self.with(|rng| if end == 0 { 0 } else { rng.usize(..end) })
    }

    /// A number between two, both included.
    pub fn between(&self, least: i64, most: i64) -> i64 {
        self.with(|rng| rng.i64(least..=most))
    }

    /// One of several.
    pub fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| &from[self.below(from.len())])
    }

    /// A time up to `most`.
    pub fn time(&self, most: Duration) -> Duration {
        self.with(|rng| most.mul_f64(rng.f64()))
    }
}

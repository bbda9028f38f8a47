//! Trials of new tunnels, beside everything else: they take seconds where nobody answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::act::Synced;
use crate::checksums::{Checksums, Verdict, trial};
use crate::plan::Me;

/// How long after a trial that showed nothing the next one begins; twice as long after each.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// At most so long.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The trials of a node's tunnels. Each is tried once; again only while nobody answers.
pub(crate) struct Trials {
    wanted: bool,
    tried: Arc<Tried>,
}

/// The links that were tried, or are being.
#[derive(Default)]
struct Tried(Mutex<BTreeMap<u32, Trial>>);

/// The last trial of a link.
#[derive(Clone, Copy)]
struct Trial {
    /// When the next one is due, if one is.
    next: Option<Instant>,
    /// How long to wait after it.
    pause: Duration,
}

impl Tried {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Trial>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the caller is to try the link now.
    fn claim(&self, device: u32, now: Instant) -> bool {
        let mut all = self.lock();
        let trial = all.entry(device).or_insert(Trial { next: Some(now), pause: FIRST_PAUSE });
        trial.next.take_if(|next| *next <= now).is_some()
    }

    /// Nothing was shown.
    fn again(&self, device: u32, now: Instant) {
        if let Some(trial) = self.lock().get_mut(&device) {
            trial.next = Some(now + trial.pause);
            trial.pause = (trial.pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Trials {
    pub(crate) fn new(me: &Me) -> Self {
        Self { wanted: me.checksums == Checksums::Auto, tried: Arc::default() }
    }

    /// Begins those that are due.
    pub(crate) fn begin(&self, synced: &Synced) {
        let tunnels = synced.plan.tunnels.iter().filter(|_| self.wanted);
        for tunnel in tunnels {
            let ends = synced.plan.ends(tunnel);
            let device = synced.watched.tunnel(&tunnel.name);
            let Some(device) = device.filter(|_| !ends.is_empty()) else { continue };
            if !self.tried.claim(device, Instant::now()) {
                continue;
            }
            let (tried, name) = (Arc::clone(&self.tried), tunnel.name.clone());
            tokio::task::spawn_blocking(move || {
                let verdict = trial(&name, &ends);
                match &verdict {
                    Ok(Verdict::Good) => {
                        tracing::debug!(name, "a tunnel's checksums are left to the hardware")
                    }
                    Ok(Verdict::Bad) => {
                        tracing::warn!(
                            name,
                            "a tunnel computes its checksums itself: the hardware does it wrongly"
                        );
                    }
                    Ok(Verdict::Unknown) => tracing::debug!(name, "no other end of a tunnel answers yet"),
                    Err(error) => tracing::warn!(name, %error, "a tunnel could not be tried"),
                }
                if matches!(verdict, Ok(Verdict::Unknown)) {
                    tried.again(device, Instant::now());
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_is_tried_once_and_less_and_less_often_while_nobody_answers() {
        let (tried, begin) = (Tried::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert!(tried.claim(7, at(0)) && !tried.claim(7, at(1)), "one trial at a time");
        tried.again(7, at(2));
        assert!(!tried.claim(7, at(11)) && tried.claim(7, at(12)));
        tried.again(7, at(13));
        assert!(!tried.claim(7, at(32)) && tried.claim(7, at(33)));
        assert!(!tried.claim(7, at(90_000)), "it has shown something");
        assert!(tried.claim(8, at(0)), "a device that was made anew");
    }
}

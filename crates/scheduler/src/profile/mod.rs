//! How the Pods of a `schedulerName` are placed: which plugins have a say, with which weight, and how they are set.
//!
//! - [`file`](self::read) what is written, as upstream's `KubeSchedulerConfiguration`, and what is wrong with it
//! - [`plugins`] which plugins there are, at which points, and what a file makes of the default ones
//! - [`args`] how each is set

pub mod args;
mod file;
pub mod plugins;

use std::time::Duration;

pub use args::Args;
pub use file::{ConfigurationError, read};
pub use plugins::{Chosen, Plugin};

/// First back-off of a Pod; doubles with each attempt. Upstream: `podInitialBackoffSeconds`.
pub const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Longest back-off. Upstream: `podMaxBackoffSeconds`.
pub const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Settings of the scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Only Pods whose `schedulerName` is that of one of these are looked at; never empty.
    pub profiles: Vec<Profile>,
    /// How long a Pod rests that found no node.
    pub backoff: Backoff,
    /// Whether only one of several works. Default: no.
    pub elects: bool,
}

/// How long a Pod rests that found no node: from the first time on twice as long each time, up to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first. Default 1 s.
    pub first: Duration,
    /// The longest. Default 10 s.
    pub last: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: INITIAL_BACKOFF, last: MAX_BACKOFF }
    }
}

impl Backoff {
    /// After so many attempts before this one.
    #[must_use]
    pub fn after(&self, attempts: u32) -> Duration {
        self.first.saturating_mul(1 << attempts.min(30)).min(self.last)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::named("default-scheduler")
    }
}

impl Config {
    /// Upstream's default profile under a name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let profiles = vec![Profile { name: name.to_owned(), ..Profile::default() }];
        Self { profiles, backoff: Backoff::default(), elects: false }
    }

    /// The profile of that name.
    #[must_use]
    pub fn profile(&self, name: &str) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// The profile of a Pod.
    #[must_use]
    pub fn profile_of(&self, pod: &trine_typed::k8s_openapi::api::core::v1::Pod) -> Option<&Profile> {
        self.profile(scheduler_of(pod))
    }
}

/// The name of the scheduler that a Pod asks for.
#[must_use]
pub fn scheduler_of(pod: &trine_typed::k8s_openapi::api::core::v1::Pod) -> &str {
    let name = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
    name.filter(|name| !name.is_empty()).unwrap_or("default-scheduler")
}

/// How the Pods of one `schedulerName` are placed.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The `schedulerName`.
    pub name: String,
    /// Of how many nodes in a hundred the best is taken; 0: the fewer, the more nodes there are.
    pub percentage_of_nodes_to_score: usize,
    /// Who has a say.
    pub chosen: Chosen,
    /// How they are set.
    pub args: Args,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: "default-scheduler".to_owned(),
            percentage_of_nodes_to_score: 0,
            chosen: Chosen::default(),
            args: Args::default(),
        }
    }
}

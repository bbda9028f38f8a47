//! A file of settings: upstream's `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`, read strictly.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::args::PluginConfig;
use super::plugins::PluginSets;
use super::{Args, Backoff, Chosen, Config, Profile};

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";

/// Why a file is none of settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// It is no YAML.
    #[error("scheduler configuration: it cannot be read: {why}")]
    Text {
        /// What the reader says.
        why: String,
    },
    /// It is something else.
    #[error("scheduler configuration: it is {found}, not {KIND} of {API_VERSION}")]
    Kind {
        /// What it says it is.
        found: String,
    },
    /// A field does not exist, or has another form.
    #[error("scheduler configuration: a field is wrong")]
    Field(#[source] serde_json::Error),
    /// It says what cannot be.
    #[error("scheduler configuration: {}", wrong.join("; "))]
    Invalid {
        /// One line for each thing, with its place.
        wrong: Vec<String>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    percentage_of_nodes_to_score: Option<i64>,
    pod_initial_backoff_seconds: Option<i64>,
    pod_max_backoff_seconds: Option<i64>,
    #[serde(default)]
    profiles: Vec<FileProfile>,
    #[serde(default)]
    leader_election: LeaderElection,
    #[serde(default)]
    extenders: Vec<Value>,
    /// Decisions are made one after the other here.
    #[serde(rename = "parallelism")]
    _parallelism: Option<i64>,
    /// The command line says whose cluster it is.
    #[serde(rename = "clientConnection")]
    _client_connection: Option<Value>,
    #[serde(rename = "enableProfiling")]
    _enable_profiling: Option<bool>,
    #[serde(rename = "enableContentionProfiling")]
    _enable_contention_profiling: Option<bool>,
    #[serde(rename = "delayCacheUntilActive")]
    _delay_cache_until_active: Option<bool>,
}

/// Who leads is one Lease here, whose times are Trine's.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaderElection {
    leader_elect: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileProfile {
    scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<i64>,
    #[serde(default)]
    plugins: PluginSets,
    #[serde(default)]
    plugin_config: Vec<PluginConfig>,
}

/// Reads settings, YAML or JSON.
///
/// # Errors
/// What is wrong with them, all of it.
pub fn read(text: &str) -> Result<Config, ConfigurationError> {
    let value: Value =
        serde_saphyr::from_str(text).map_err(|error| ConfigurationError::Text { why: error.to_string() })?;
    if value["apiVersion"] != API_VERSION || value["kind"] != KIND {
        let word = |key: &str| value[key].as_str().unwrap_or("nothing").to_owned();
        return Err(ConfigurationError::Kind {
            found: format!("{} of {}", word("kind"), word("apiVersion")),
        });
    }
    let file: File = serde_json::from_value(value).map_err(ConfigurationError::Field)?;
    file.config().map_err(|wrong| ConfigurationError::Invalid { wrong })
}

impl File {
    fn config(self) -> Result<Config, Vec<String>> {
        let mut wrong = Vec::new();
        let first = self.pod_initial_backoff_seconds.unwrap_or(1);
        let last = self.pod_max_backoff_seconds.unwrap_or(10);
        if first <= 0 {
            wrong.push(format!("podInitialBackoffSeconds: Invalid value: {first}: must be greater than 0"));
        }
        if last < first {
            wrong.push(format!(
                "podMaxBackoffSeconds: Invalid value: {last}: must be greater than or equal to PodInitialBackoffSeconds"
            ));
        }
        if !self.extenders.is_empty() {
            wrong.push("extenders: Forbidden: there are none here".to_owned());
        }
        let percentage = share(self.percentage_of_nodes_to_score, "percentageOfNodesToScore", &mut wrong);
        let mut profiles: Vec<Profile> = Vec::new();
        for (at, profile) in self.profiles.into_iter().enumerate() {
            let path = format!("profiles[{at}]");
            let name = profile.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".to_owned());
            if name.is_empty() {
                wrong.push(format!("{path}.schedulerName: Required value"));
            }
            if profiles.iter().any(|other| other.name == name) {
                wrong.push(format!("{path}.schedulerName: Duplicate value: {name:?}"));
            }
            profiles.push(profile.of(name, percentage, &path, &mut wrong));
        }
        if profiles.is_empty() {
            profiles.push(Profile { percentage_of_nodes_to_score: percentage, ..Profile::default() });
        }
        let seconds = |number: i64| Duration::from_secs(u64::try_from(number).unwrap_or_default());
        let backoff = Backoff { first: seconds(first), last: seconds(last) };
        let elects = self.leader_election.leader_elect.unwrap_or_default();
        if wrong.is_empty() { Ok(Config { profiles, backoff, elects }) } else { Err(wrong) }
    }
}

impl FileProfile {
    fn of(self, name: String, percentage: usize, path: &str, wrong: &mut Vec<String>) -> Profile {
        let own = self.percentage_of_nodes_to_score;
        let field = format!("{path}.percentageOfNodesToScore");
        let percentage_of_nodes_to_score = if own.is_some() { share(own, &field, wrong) } else { percentage };
        let chosen = Chosen::of(&self.plugins, &format!("{path}.plugins"));
        let args = Args::of(&self.plugin_config, &format!("{path}.pluginConfig"));
        Profile {
            name,
            percentage_of_nodes_to_score,
            chosen: chosen.unwrap_or_else(|more| {
                wrong.extend(more);
                Chosen::default()
            }),
            args: args.unwrap_or_else(|more| {
                wrong.extend(more);
                Args::default()
            }),
        }
    }
}

fn share(given: Option<i64>, path: &str, wrong: &mut Vec<String>) -> usize {
    let given = given.unwrap_or_default();
    if !(0..=100).contains(&given) {
        wrong.push(format!("{path}: Invalid value: {given}: not in valid range [0-100]"));
    }
    usize::try_from(given).unwrap_or_default()
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;

//! `--runtime-config`: which versions are served beside those that are served anyway.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use trine_objects::resources::{Resource, resources};

/// All versions that are not stable. Source: kube-apiserver's `--runtime-config`.
const BETA: &str = "api/beta";

/// Versions that are off by default and were asked for, as `resource.k8s.io/v1beta1`. Default: none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeConfig(BTreeSet<String>);

/// Why words choose no versions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    /// There is no such version, or it is always served.
    #[error("{0:?} is no version that is off by default; there are {there}", there = all().into_iter().collect::<Vec<_>>().join(", "))]
    Unknown(String),
    /// Neither on nor off.
    #[error("{0:?} is neither true nor false")]
    Value(String),
}

impl RuntimeConfig {
    /// Whether a resource is served.
    #[must_use]
    pub fn serves(&self, resource: &Resource) -> bool {
        !resource.is_off_by_default() || self.0.contains(&resource.api_version())
    }
}

/// What can be asked for.
fn all() -> BTreeSet<String> {
    resources().iter().filter(|r| r.is_off_by_default()).map(Resource::api_version).collect()
}

impl FromStr for RuntimeConfig {
    type Err = RuntimeConfigError;

    /// `GROUP/VERSION=true`, several with commas between them, later ones counting; `api/beta` for all.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut chosen = BTreeSet::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, "true"));
            let named = if name == BETA { all() } else { BTreeSet::from([name.to_owned()]) };
            if !named.is_subset(&all()) {
                return Err(RuntimeConfigError::Unknown(name.to_owned()));
            }
            match value {
                "true" | "1" => chosen.extend(named),
                "false" | "0" => chosen.retain(|version| !named.contains(version)),
                other => return Err(RuntimeConfigError::Value(other.to_owned())),
            }
        }
        Ok(Self(chosen))
    }
}

impl fmt::Display for RuntimeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(|version| format!("{version}=true")).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_objects::resources::find;

    #[test]
    fn versions_that_are_not_stable_are_served_where_they_are_asked_for() {
        let slices = |version: &str| find("resource.k8s.io", version, "resourceslices").unwrap();
        for (words, served, shown) in [
            ("", "v1", ""),
            ("resource.k8s.io/v1beta1=true", "v1 v1beta1", "resource.k8s.io/v1beta1=true"),
            ("resource.k8s.io/v1beta2", "v1 v1beta2", "resource.k8s.io/v1beta2=true"),
            ("api/beta=true, resource.k8s.io/v1beta1=false", "v1 v1beta2", "resource.k8s.io/v1beta2=true"),
            ("api/beta=1", "v1 v1beta1 v1beta2", "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"),
        ] {
            let config: RuntimeConfig = words.parse().unwrap();
            let now: Vec<&str> =
                ["v1", "v1beta1", "v1beta2"].into_iter().filter(|v| config.serves(slices(v))).collect();
            assert_eq!((now.join(" "), config.to_string()), (served.to_owned(), shown.to_owned()), "{words}");
            assert_eq!(config.to_string().parse(), Ok(config), "{words}");
        }
    }

    #[test]
    fn a_wrong_word_is_refused_with_what_there_is() {
        let refused = |words: &str| words.parse::<RuntimeConfig>().unwrap_err().to_string();
        let there = "is no version that is off by default; there are resource.k8s.io/v1beta1, resource.k8s.io/v1beta2";
        assert_eq!(refused("apps/v1=false"), format!("\"apps/v1\" {there}"));
        assert_eq!(refused("resource.k8s.io/v1beta1=maybe"), "\"maybe\" is neither true nor false");
    }
}

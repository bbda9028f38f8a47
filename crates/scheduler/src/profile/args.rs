//! How each plugin is set: what a file says of it, what holds when it says nothing, and what it may not say. Pure. Limits, defaults
//! and the words of refusals are upstream's.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trine_typed::k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};

use super::plugins::Plugin;
use crate::plugins::allocation::{Point, Share, Strategy};
use crate::plugins::node_resources_fit::Ignored;

/// How the plugins of a profile are set.
#[derive(Debug, Clone, PartialEq)]
pub struct Args {
    /// NodeResourcesFit: what others look after.
    pub ignored: Ignored,
    /// Which nodes it likes.
    pub strategy: Strategy,
    /// By which resources. Default: processors and memory alike.
    pub shares: Vec<Share>,
    /// NodeResourcesBalancedAllocation: which resources are to be used alike.
    pub balanced: Vec<Share>,
    /// NodeAffinity: what every Pod asks for besides its own.
    pub added_affinity: Option<NodeAffinity>,
    /// PodTopologySpread: how Pods are spread that ask for nothing; without it as upstream's system does.
    pub spread: Option<Vec<TopologySpreadConstraint>>,
    /// InterPodAffinity: what a required affinity of a Pod that is there counts for one that comes. Default 1.
    pub hard_affinity_weight: i64,
    /// Whether what Pods prefer that are there counts for one that prefers nothing. Default: yes.
    pub heeds_existing: bool,
    /// DefaultPreemption: on how many nodes in a hundred room is looked for. Default 10.
    pub candidates_percentage: usize,
    /// And on how many at least. Default 100.
    pub candidates_absolute: usize,
    /// VolumeBinding: how long a Pod's volumes may take to be bound. Default 600 s.
    pub bind_timeout: Duration,
    /// How long devices may take to be ready. Default 600 s.
    pub devices_timeout: Duration,
}

impl Default for Args {
    fn default() -> Self {
        let both = vec![Share::of("cpu", 1), Share::of("memory", 1)];
        Self {
            ignored: Ignored::default(),
            strategy: Strategy::LeastAllocated,
            shares: both.clone(),
            balanced: both,
            added_affinity: None,
            spread: None,
            hard_affinity_weight: 1,
            heeds_existing: true,
            candidates_percentage: 10,
            candidates_absolute: 100,
            bind_timeout: Duration::from_secs(600),
            devices_timeout: Duration::from_secs(600),
        }
    }
}

/// What a file says of one plugin.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PluginConfig {
    name: String,
    #[serde(default)]
    args: Value,
}

/// Collects what is wrong, with its place.
struct Wrong<'a>(&'a mut Vec<String>);

impl Wrong<'_> {
    fn invalid(&mut self, path: &str, value: impl std::fmt::Display, why: &str) {
        self.0.push(format!("{path}: Invalid value: {value}: {why}"));
    }

    fn within(&mut self, path: &str, value: i64, least: i64, most: i64) {
        if value < least || value > most {
            self.invalid(path, value, &format!("not in valid range [{least}, {most}]"));
        }
    }
}

impl Args {
    /// What a profile says of its plugins; `path` is where it says it.
    ///
    /// # Errors
    /// One line for each thing that is wrong.
    pub(super) fn of(configs: &[PluginConfig], path: &str) -> Result<Self, Vec<String>> {
        let (mut args, mut wrong) = (Self::default(), Vec::new());
        let mut seen = BTreeSet::new();
        for (at, config) in configs.iter().enumerate() {
            let path = format!("{path}[{at}]");
            if !seen.insert(&config.name) {
                wrong.push(format!("{path}: Duplicate value: {:?}", config.name));
            }
            let set = Plugin::named(&config.name).map(|plugin| args.set(plugin, config, &path, &mut wrong));
            match set {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    wrong.push(format!("{path}: decoding args for plugin {}: {error}", config.name));
                }
                None => wrong.push(format!("{path}: there is no plugin {:?}", config.name)),
            }
        }
        if wrong.is_empty() { Ok(args) } else { Err(wrong) }
    }

    fn set(
        &mut self,
        plugin: Plugin,
        config: &PluginConfig,
        path: &str,
        wrong: &mut Vec<String>,
    ) -> Result<(), serde_json::Error> {
        let (path, mut wrong) = (format!("{path}.args"), Wrong(wrong));
        match plugin {
            Plugin::NodeResourcesFit => self.fit(config.read()?, &path, &mut wrong),
            Plugin::NodeResourcesBalancedAllocation => self.balance(config.read()?, &path, &mut wrong),
            Plugin::NodeAffinity => self.added_affinity = config.read::<NodeAffinityArgs>()?.added_affinity,
            Plugin::PodTopologySpread => self.spread_by(config.read()?, &path, &mut wrong),
            Plugin::InterPodAffinity => {
                let args: InterPodAffinityArgs = config.read()?;
                self.hard_affinity_weight = args.hard_pod_affinity_weight;
                self.heeds_existing = !args.ignore_preferred_terms_of_existing_pods;
                wrong.within(&format!("{path}.hardPodAffinityWeight"), self.hard_affinity_weight, 0, 100);
            }
            Plugin::DefaultPreemption => self.preempt(&config.read()?, &path, &mut wrong),
            Plugin::VolumeBinding => {
                let args: VolumeBindingArgs = config.read()?;
                self.bind_timeout = Duration::from_secs(args.bind_timeout_seconds);
            }
            Plugin::DynamicResources => {
                let args: DynamicResourcesArgs = config.read()?;
                let timeout = seconds(&args.binding_timeout);
                match timeout {
                    Some(timeout) if !timeout.is_zero() => self.devices_timeout = timeout,
                    _ => wrong.invalid(
                        &format!("{path}.bindingTimeout"),
                        format!("{:?}", args.binding_timeout),
                        "must be a duration of at least 1s",
                    ),
                }
            }
            other => wrong.0.push(format!("{path}: {} is not set in any way", other.name())),
        }
        Ok(())
    }

    fn fit(&mut self, args: FitArgs, path: &str, wrong: &mut Wrong<'_>) {
        for (at, group) in args.ignored_resource_groups.iter().enumerate() {
            if group.contains('/') {
                let path = format!("{path}.ignoredResourceGroups[{at}]");
                wrong.invalid(&path, format!("{group:?}"), "resource group name can't contain '/'");
            }
        }
        self.ignored = Ignored { names: args.ignored_resources, groups: args.ignored_resource_groups };
        let Some(strategy) = args.scoring_strategy else { return };
        let path = format!("{path}.scoringStrategy");
        if !strategy.resources.is_empty() {
            self.shares = shares(&strategy.resources);
            for (at, resource) in strategy.resources.iter().enumerate() {
                if !(1..=100).contains(&resource.weight) {
                    let why = format!("resource weight of {} not in valid range (0, 100]", resource.name);
                    wrong.invalid(&format!("{path}.resources[{at}].weight"), resource.weight, &why);
                }
            }
        }
        let ratio = format!("{path}.requestedToCapacityRatio");
        match (strategy.kind.as_str(), strategy.requested_to_capacity_ratio) {
            ("RequestedToCapacityRatio", Some(given)) => {
                self.strategy = Strategy::RequestedToCapacityRatio(line(
                    &given.shape,
                    &format!("{ratio}.shape"),
                    wrong,
                ));
            }
            ("RequestedToCapacityRatio", None) => {
                wrong.0.push(format!(
                    "{ratio}: Required value: must be specified when type is RequestedToCapacityRatio"
                ));
            }
            ("LeastAllocated" | "MostAllocated", Some(_)) => {
                wrong
                    .0
                    .push(format!("{ratio}: Forbidden: must be nil when type is not RequestedToCapacityRatio"));
            }
            ("LeastAllocated", None) => self.strategy = Strategy::LeastAllocated,
            ("MostAllocated", None) => self.strategy = Strategy::MostAllocated,
            (other, _) => wrong.0.push(format!(
                "{path}.type: Unsupported value: {other:?}: supported values: \"LeastAllocated\", \"MostAllocated\", \
                 \"RequestedToCapacityRatio\""
            )),
        }
    }

    fn balance(&mut self, args: BalancedArgs, path: &str, wrong: &mut Wrong<'_>) {
        let mut seen = BTreeSet::new();
        for (at, resource) in args.resources.iter().enumerate() {
            let path = format!("{path}.resources[{at}]");
            if !seen.insert(&resource.name) {
                wrong.0.push(format!("{path}.name: Duplicate value: {:?}", resource.name));
            }
            if resource.weight != 1 {
                wrong.invalid(&format!("{path}.weight"), resource.weight, "must be 1");
            }
        }
        if !args.resources.is_empty() {
            self.balanced = shares(&args.resources);
        }
    }

    fn spread_by(&mut self, args: SpreadArgs, path: &str, wrong: &mut Wrong<'_>) {
        let list = match (args.defaulting_type.as_deref(), args.default_constraints.is_empty()) {
            (Some("List"), _) => true,
            (Some("System") | None, true) => false,
            (None | Some("System"), false) => {
                wrong.invalid(
                    &format!("{path}.defaultingType"),
                    "\"System\"",
                    "when .defaultConstraints are not empty",
                );
                return;
            }
            (Some(other), _) => {
                wrong.0.push(format!(
                    "{path}.defaultingType: Unsupported value: {other:?}: supported values: \"System\", \"List\""
                ));
                return;
            }
        };
        let mut seen = BTreeSet::new();
        for (at, constraint) in args.default_constraints.iter().enumerate() {
            let path = format!("{path}.defaultConstraints[{at}]");
            if constraint.max_skew <= 0 {
                wrong.invalid(&format!("{path}.maxSkew"), constraint.max_skew, "not in valid range (0, inf)");
            }
            if constraint.topology_key.is_empty() {
                wrong.0.push(format!("{path}.topologyKey: Required value: can not be empty"));
            }
            match constraint.when_unsatisfiable.as_str() {
                "DoNotSchedule" | "ScheduleAnyway" => {}
                "" => wrong.0.push(format!("{path}.whenUnsatisfiable: Required value: can not be empty")),
                other => wrong.0.push(format!(
                    "{path}.whenUnsatisfiable: Unsupported value: {other:?}: supported values: \"DoNotSchedule\", \
                     \"ScheduleAnyway\""
                )),
            }
            if constraint.label_selector.is_some() {
                wrong.0.push(format!(
                    "{path}.labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod"
                ));
            }
            if !seen.insert((&constraint.topology_key, &constraint.when_unsatisfiable)) {
                wrong.0.push(format!(
                    "{path}: Duplicate value: \"{{{}, {}}}\"",
                    constraint.topology_key, constraint.when_unsatisfiable
                ));
            }
        }
        self.spread = list.then_some(args.default_constraints);
    }

    fn preempt(&mut self, args: &PreemptionArgs, path: &str, wrong: &mut Wrong<'_>) {
        let (percentage, absolute) =
            (format!("{path}.minCandidateNodesPercentage"), format!("{path}.minCandidateNodesAbsolute"));
        let (of_hundred, least) = (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute);
        wrong.within(&percentage, of_hundred, 0, 100);
        if least < 0 {
            wrong.invalid(&absolute, least, "not in valid range [0, inf)");
        }
        if of_hundred == 0 && least == 0 {
            wrong.invalid(&percentage, 0, "cannot be zero at the same time as minCandidateNodesAbsolute");
            wrong.invalid(&absolute, 0, "cannot be zero at the same time as minCandidateNodesPercentage");
        }
        self.candidates_percentage = usize::try_from(of_hundred).unwrap_or_default();
        self.candidates_absolute = usize::try_from(least).unwrap_or_default();
    }
}

impl PluginConfig {
    /// The args, whose `apiVersion` and `kind` need not be said.
    fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        let mut args = match &self.args {
            Value::Null => Value::Object(serde_json::Map::new()),
            args => args.clone(),
        };
        if let Some(fields) = args.as_object_mut() {
            let kind = fields.remove("kind");
            fields.remove("apiVersion");
            if kind.is_some_and(|kind| kind != format!("{}Args", self.name)) {
                return Err(serde::de::Error::custom(format!("they are not of type {}Args", self.name)));
            }
        }
        serde_json::from_value(args)
    }
}

/// The line through points whose scores go up to 10.
fn line(shape: &[ShapePoint], path: &str, wrong: &mut Wrong<'_>) -> Vec<Point> {
    if shape.is_empty() {
        wrong.0.push(format!("{path}: Required value: at least one point must be specified"));
    }
    if let Some(at) = (1..shape.len()).find(|at| shape[at - 1].utilization >= shape[*at].utilization) {
        let why = "values must be sorted in increasing order";
        wrong.invalid(&format!("{path}[{at}].utilization"), shape[at].utilization, why);
    }
    for (at, point) in shape.iter().enumerate() {
        wrong.within(&format!("{path}[{at}].utilization"), point.utilization, 0, 100);
        wrong.within(&format!("{path}[{at}].score"), point.score, 0, 10);
    }
    shape.iter().map(|point| (point.utilization, point.score * 10)).collect()
}

fn shares(resources: &[ResourceSpec]) -> Vec<Share> {
    resources.iter().map(|resource| Share::of(&resource.name, resource.weight)).collect()
}

fn one() -> i64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceSpec {
    name: String,
    #[serde(default = "one")]
    weight: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ShapePoint {
    utilization: i64,
    score: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[derive(Default)]
struct Ratio {
    shape: Vec<ShapePoint>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScoringStrategy {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    resources: Vec<ResourceSpec>,
    requested_to_capacity_ratio: Option<Ratio>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct FitArgs {
    ignored_resources: Vec<String>,
    ignored_resource_groups: Vec<String>,
    scoring_strategy: Option<ScoringStrategy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct BalancedArgs {
    resources: Vec<ResourceSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct NodeAffinityArgs {
    added_affinity: Option<NodeAffinity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct SpreadArgs {
    default_constraints: Vec<TopologySpreadConstraint>,
    defaulting_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct InterPodAffinityArgs {
    hard_pod_affinity_weight: i64,
    ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct PreemptionArgs {
    min_candidate_nodes_percentage: i64,
    min_candidate_nodes_absolute: i64,
}

impl Default for PreemptionArgs {
    fn default() -> Self {
        Self { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct DynamicResourcesArgs {
    /// Of no effect: what is tried is counted, not timed.
    #[serde(rename = "filterTimeout")]
    _filter_timeout: Option<String>,
    binding_timeout: String,
}

impl Default for DynamicResourcesArgs {
    fn default() -> Self {
        Self { _filter_timeout: None, binding_timeout: "600s".to_owned() }
    }
}

/// A duration as Go writes it: `1h30m`, `600s`.
fn seconds(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let (unit, after) = rest[digits..]
            .split_at(rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits));
        sum += match unit {
            "h" => Duration::from_secs(number * 3600),
            "m" => Duration::from_secs(number * 60),
            "s" => Duration::from_secs(number),
            "ms" => Duration::from_millis(number),
            _ => return None,
        };
        rest = after;
    }
    Some(sum)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct VolumeBindingArgs {
    bind_timeout_seconds: u64,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self { bind_timeout_seconds: 600 }
    }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;

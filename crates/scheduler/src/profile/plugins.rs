//! Which plugins there are, at which points they have a say, and what a file makes of the default ones. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

pub use crate::events::Plugin;

/// Where a plugin can have a say, as far as one can be left out there. What it works out before, and what it does for its own decision
/// afterwards (`preFilter`, `preScore`, `reserve`, `preBind`), goes with these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    /// Whether a Pod is looked at.
    PreEnqueue,
    /// Whose turn it is.
    QueueSort,
    /// Whether a node is a place.
    Filter,
    /// What can be done if none is.
    PostFilter,
    /// Which is the best.
    Score,
    /// How a decision is written.
    Bind,
}

const POINTS: [Point; 6] =
    [Point::PreEnqueue, Point::QueueSort, Point::Filter, Point::PostFilter, Point::Score, Point::Bind];

impl Plugin {
    /// All of the default profile, in its order: where each has a say, and its weight in scores.
    pub const DEFAULT: &[(Self, &[Point], i64)] = &[
        (Self::SchedulingGates, &[Point::PreEnqueue], 0),
        (Self::PrioritySort, &[Point::QueueSort], 0),
        (Self::NodeName, &[Point::Filter], 0),
        (Self::NodeUnschedulable, &[Point::Filter], 0),
        (Self::TaintToleration, &[Point::Filter, Point::Score], 3),
        (Self::NodeAffinity, &[Point::Filter, Point::Score], 2),
        (Self::NodePorts, &[Point::Filter], 0),
        (Self::NodeResourcesFit, &[Point::Filter, Point::Score], 1),
        (Self::VolumeRestrictions, &[Point::Filter], 0),
        (Self::NodeVolumeLimits, &[Point::Filter], 0),
        (Self::VolumeBinding, &[Point::Filter], 0),
        (Self::VolumeZone, &[Point::Filter], 0),
        (Self::PodTopologySpread, &[Point::Filter, Point::Score], 2),
        (Self::InterPodAffinity, &[Point::Filter, Point::Score], 2),
        (Self::DynamicResources, &[Point::PreEnqueue, Point::Filter, Point::PostFilter, Point::Score], 2),
        (Self::DefaultPreemption, &[Point::PostFilter], 0),
        (Self::NodeResourcesBalancedAllocation, &[Point::Score], 1),
        (Self::ImageLocality, &[Point::Score], 1),
        (Self::DefaultBinder, &[Point::Bind], 0),
    ];

    /// One by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::DEFAULT.iter().map(|(plugin, ..)| *plugin).find(|plugin| plugin.name() == name)
    }

    /// Its name, which is upstream's.
    #[must_use]
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    fn at(self, point: Point) -> bool {
        Self::DEFAULT.iter().any(|(plugin, points, _)| *plugin == self && points.contains(&point))
    }
}

/// Who has a say, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// A bit for each plugin, at each point.
    at: [u32; POINTS.len()],
    /// The weights of those that score.
    weights: BTreeMap<Plugin, i64>,
}

impl Default for Chosen {
    fn default() -> Self {
        let none = PluginSets::default();
        // The default profile has nothing wrong with it.
        Self::of(&none, "").unwrap_or_else(|_| Self { at: Default::default(), weights: BTreeMap::new() })
    }
}

impl Chosen {
    /// Whether a plugin has a say at a point.
    #[must_use]
    pub fn has(&self, plugin: Plugin, point: Point) -> bool {
        self.at[point as usize] & bit(plugin) != 0
    }

    /// Whether it may keep a Pod from a node.
    #[must_use]
    pub fn filters(&self, plugin: Plugin) -> bool {
        self.has(plugin, Point::Filter)
    }

    /// Whether nodes are compared at all.
    #[must_use]
    pub fn compares(&self) -> bool {
        !self.weights.is_empty()
    }

    /// Its weight where nodes are compared; nothing if it has no say there.
    #[must_use]
    pub fn weight(&self, plugin: Plugin) -> Option<i64> {
        self.weights.get(&plugin).copied()
    }

    /// What a profile of a file says of the default plugins; `path` is where it says it.
    ///
    /// # Errors
    /// One line for each thing that is wrong.
    pub(super) fn of(sets: &PluginSets, path: &str) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        for (name, set) in sets.named() {
            for (at, entry) in set.enabled.iter().chain(&set.disabled).enumerate() {
                if entry.name != "*" && Plugin::named(&entry.name).is_none() {
                    wrong.push(format!("{path}.{name}[{at}]: there is no plugin {:?}", entry.name));
                }
            }
            if let Some(twice) = set.twice() {
                wrong.push(format!("{path}.{name}.enabled: Duplicate value: {twice:?}"));
            }
        }
        let everywhere = sets.everywhere();
        let mut chosen = Self { at: Default::default(), weights: BTreeMap::new() };
        for point in POINTS {
            let set = sets.at(point);
            // One that is named at the point comes with the weight that it has there, one of everywhere with that one's.
            let mut here: BTreeMap<Plugin, i64> = BTreeMap::new();
            for (plugin, weight) in everywhere.iter().filter(|(plugin, _)| plugin.at(point)) {
                if !set.disables(*plugin) {
                    here.insert(*plugin, *weight);
                }
            }
            for entry in &set.enabled {
                match Plugin::named(&entry.name) {
                    Some(plugin) if plugin.at(point) => drop(here.insert(plugin, weight(entry))),
                    Some(plugin) => wrong.push(format!("{path}: {} has no say at {point:?}", plugin.name())),
                    None => {}
                }
            }
            if here.is_empty() && matches!(point, Point::QueueSort | Point::Bind) {
                wrong.push(format!("{path}: one plugin is needed at {point:?}"));
            }
            chosen.at[point as usize] = here.keys().fold(0, |set, plugin| set | bit(*plugin));
            if point == Point::Score {
                chosen.weights = here;
            }
        }
        if wrong.is_empty() { Ok(chosen) } else { Err(wrong) }
    }
}

fn bit(plugin: Plugin) -> u32 {
    1 << plugin as u32
}

/// A weight that is not said, or is said to be 0, is 1.
fn weight(entry: &Entry) -> i64 {
    i64::from(entry.weight.filter(|weight| *weight != 0).unwrap_or(1))
}

/// A plugin of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Entry {
    name: String,
    weight: Option<i32>,
}

/// Which plugins are on or off at a point.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct PluginSet {
    enabled: Vec<Entry>,
    disabled: Vec<Entry>,
}

impl PluginSet {
    fn disables(&self, plugin: Plugin) -> bool {
        self.disabled.iter().any(|entry| entry.name == "*" || entry.name == plugin.name())
    }

    fn twice(&self) -> Option<&str> {
        let names: Vec<&str> = self.enabled.iter().map(|entry| entry.name.as_str()).collect();
        names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)).map(|(_, name)| *name)
    }
}

/// The points of a file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct PluginSets {
    pre_enqueue: PluginSet,
    queue_sort: PluginSet,
    pre_filter: PluginSet,
    filter: PluginSet,
    post_filter: PluginSet,
    pre_score: PluginSet,
    score: PluginSet,
    reserve: PluginSet,
    permit: PluginSet,
    pre_bind: PluginSet,
    bind: PluginSet,
    post_bind: PluginSet,
    multi_point: PluginSet,
}

impl PluginSets {
    fn named(&self) -> [(&str, &PluginSet); 13] {
        [
            ("preEnqueue", &self.pre_enqueue),
            ("queueSort", &self.queue_sort),
            ("preFilter", &self.pre_filter),
            ("filter", &self.filter),
            ("postFilter", &self.post_filter),
            ("preScore", &self.pre_score),
            ("score", &self.score),
            ("reserve", &self.reserve),
            ("permit", &self.permit),
            ("preBind", &self.pre_bind),
            ("bind", &self.bind),
            ("postBind", &self.post_bind),
            ("multiPoint", &self.multi_point),
        ]
    }

    fn at(&self, point: Point) -> &PluginSet {
        match point {
            Point::PreEnqueue => &self.pre_enqueue,
            Point::QueueSort => &self.queue_sort,
            Point::Filter => &self.filter,
            Point::PostFilter => &self.post_filter,
            Point::Score => &self.score,
            Point::Bind => &self.bind,
        }
    }

    /// The plugins that are on wherever they can have a say, with their weights.
    fn everywhere(&self) -> BTreeMap<Plugin, i64> {
        let set = &self.multi_point;
        let default = Plugin::DEFAULT.iter().filter(|(plugin, ..)| !set.disables(*plugin));
        let mut all: BTreeMap<Plugin, i64> =
            default.map(|(plugin, _, weight)| (*plugin, (*weight).max(1))).collect();
        for entry in &set.enabled {
            if let Some(plugin) = Plugin::named(&entry.name) {
                all.insert(plugin, weight(entry));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn chosen(sets: Value) -> Result<Chosen, Vec<String>> {
        Chosen::of(&serde_json::from_value(sets).unwrap(), "profiles[0].plugins")
    }

    #[test]
    fn the_default_profile_is_upstreams() {
        let chosen = Chosen::default();
        let weights = chosen.weights.iter().map(|(plugin, weight)| (plugin.name(), *weight));
        let expected = [
            ("TaintToleration", 3),
            ("NodeAffinity", 2),
            ("NodeResourcesFit", 1),
            ("PodTopologySpread", 2),
            ("InterPodAffinity", 2),
            ("DynamicResources", 2),
            ("NodeResourcesBalancedAllocation", 1),
            ("ImageLocality", 1),
        ];
        let expected: BTreeMap<String, i64> = expected.map(|(name, weight)| (name.to_owned(), weight)).into();
        assert_eq!(weights.collect::<BTreeMap<_, _>>(), expected);
        assert!(chosen.filters(Plugin::VolumeBinding) && !chosen.filters(Plugin::ImageLocality));
        assert!(chosen.has(Plugin::DefaultPreemption, Point::PostFilter));
    }

    #[test]
    fn a_file_turns_plugins_off_and_on_at_one_point_or_wherever_they_are() {
        let off = |name: &str| json!([{"name": name}]);
        type Row = (Value, fn(&Chosen) -> bool);
        let rows: [Row; 7] = [
            (json!({"score": {"disabled": off("*")}}), |c| {
                c.weights.is_empty() && c.filters(Plugin::NodeAffinity)
            }),
            (json!({"filter": {"disabled": off("TaintToleration")}}), |c| {
                !c.filters(Plugin::TaintToleration) && c.weight(Plugin::TaintToleration) == Some(3)
            }),
            (json!({"multiPoint": {"disabled": off("TaintToleration")}}), |c| {
                !c.filters(Plugin::TaintToleration) && c.weight(Plugin::TaintToleration).is_none()
            }),
            (json!({"multiPoint": {"enabled": [{"name": "ImageLocality", "weight": 7}]}}), |c| {
                c.weight(Plugin::ImageLocality) == Some(7)
            }),
            // At the point itself more counts than what is said for all, and what was turned off can be turned on again there.
            (
                json!({"multiPoint": {"enabled": [{"name": "ImageLocality", "weight": 7}]},
                    "score": {"enabled": [{"name": "ImageLocality", "weight": 9}]}}),
                |c| c.weight(Plugin::ImageLocality) == Some(9),
            ),
            (
                json!({"score": {"disabled": off("*"), "enabled": [{"name": "NodeAffinity", "weight": 0}]}}),
                |c| c.weights == BTreeMap::from([(Plugin::NodeAffinity, 1)]),
            ),
            (json!({"postFilter": {"disabled": off("*")}}), |c| {
                !c.has(Plugin::DefaultPreemption, Point::PostFilter)
            }),
        ];
        for (sets, holds) in rows {
            let chosen = chosen(sets.clone()).unwrap();
            assert!(holds(&chosen), "{sets}: {chosen:?}");
        }
    }

    #[test]
    fn what_cannot_be_is_said_with_its_place() {
        let rows = [
            (
                json!({"filter": {"enabled": [{"name": "Nobody"}]}}),
                "profiles[0].plugins.filter[0]: there is no plugin \"Nobody\"",
            ),
            (
                json!({"score": {"enabled": [{"name": "NodePorts"}]}}),
                "profiles[0].plugins: NodePorts has no say at Score",
            ),
            (
                json!({"bind": {"disabled": [{"name": "*"}]}}),
                "profiles[0].plugins: one plugin is needed at Bind",
            ),
            (
                json!({"score": {"enabled": [{"name": "NodeAffinity"}, {"name": "NodeAffinity"}]}}),
                "profiles[0].plugins.score.enabled: Duplicate value: \"NodeAffinity\"",
            ),
        ];
        for (sets, expected) in rows {
            assert_eq!(chosen(sets.clone()), Err(vec![expected.to_owned()]), "{sets}");
        }
    }
}

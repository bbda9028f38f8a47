//! Which group and which version comes first.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::GROUP;
use crate::catalog::{Resources, Served};

/// `groupPriorityMinimum` and `versionPriority` of an APIService.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    /// The group's; of several versions the largest counts.
    pub group: i64,
    /// The version's within its group.
    pub version: i64,
}

/// Of kinds that people defined.
const CUSTOM: Rank = Rank { group: 1000, version: 100 };
/// Before everything else, because all others are told through it.
const FIRST: Rank = Rank { group: 20_001, version: 15 };
/// Of a built-in group that the table lacks.
const LAST_BUILT_IN: Rank = Rank { group: 15_600, version: 15 };

/// The built-in groups. Those of equal rank come by name. Source: kube-apiserver's `apiVersionPriorities`.
const BUILT_IN: [(&str, i64); 22] = [
    ("", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("admissionregistration.k8s.io", 16_700),
    ("apiextensions.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("internal.apiserver.k8s.io", 16_000),
    ("storagemigration.k8s.io", 15_800),
];

/// Versions whose rank is not the ordinary 15.
const VERSIONS: [(&str, &str, i64); 5] = [
    ("", "v1", 1),
    ("autoscaling", "v2", 30),
    ("flowcontrol.apiserver.k8s.io", "v1", 21),
    ("resource.k8s.io", "v1", 21),
    ("resource.k8s.io", "v1beta2", 15),
];

/// The rank of what this server serves itself.
#[must_use]
pub fn rank(resource: &Served) -> Rank {
    if resource.custom().is_some() {
        return CUSTOM;
    }
    if resource.group == GROUP {
        return FIRST;
    }
    let group = BUILT_IN.iter().find(|(group, _)| *group == resource.group);
    let version =
        VERSIONS.iter().find(|(group, version, _)| *group == resource.group && *version == resource.version);
    let ordinary = stage(&resource.version).map_or(LAST_BUILT_IN.version, |(stage, ..)| [1, 9, 15][stage]);
    Rank {
        group: group.map_or(LAST_BUILT_IN.group, |(_, rank)| *rank),
        version: version.map_or(ordinary, |(.., rank)| *rank),
    }
}

/// A group and its versions, the preferred one first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its versions.
    pub versions: Vec<String>,
}

/// All groups but the core group in their order: those of this server and those of `others`.
#[must_use]
pub fn groups<'a>(
    resources: &'a Resources,
    others: impl IntoIterator<Item = (&'a str, &'a str, Rank)>,
) -> Vec<Group> {
    let mut all: BTreeMap<&str, BTreeMap<&str, Rank>> = BTreeMap::new();
    for resource in resources.iter().filter(|r| !r.group.is_empty()) {
        all.entry(&resource.group).or_default().insert(&resource.version, rank(resource));
    }
    // An APIService that names a server counts before what is served here.
    for (group, version, rank) in others {
        all.entry(group).or_default().insert(version, rank);
    }
    let mut groups: Vec<(i64, Group)> = all
        .into_iter()
        .map(|(name, versions)| {
            let first = versions.values().map(|rank| rank.group).max().unwrap_or_default();
            let mut versions: Vec<(&str, Rank)> = versions.into_iter().collect();
            versions.sort_by(|(a, x), (b, y)| y.version.cmp(&x.version).then_with(|| newer(a, b)));
            let versions = versions.into_iter().map(|(version, _)| version.to_owned()).collect();
            (first, Group { name: name.to_owned(), versions })
        })
        .collect();
    // Stable: by name among equals.
    groups.sort_by_key(|(first, _)| std::cmp::Reverse(*first));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The order of versions: stable ones before betas before alphas, newer before older; what is no such version comes last,
/// by name. Source: apimachinery `version.CompareKubeAwareVersionStrings`.
#[must_use]
pub fn newer(a: &str, b: &str) -> Ordering {
    match (stage(a), stage(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// `v2beta1`: how stable (0 alpha, 1 beta, 2 stable), and both numbers.
fn stage(version: &str) -> Option<(usize, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let number = |text: &str| if text.starts_with('0') { None } else { text.parse().ok() };
    let (major, rest) = (number(&rest[..end])?, &rest[end..]);
    match (rest, rest.strip_prefix("alpha"), rest.strip_prefix("beta")) {
        ("", ..) => Some((2, major, 0)),
        (_, Some(minor), _) => Some((0, major, number(minor)?)),
        (_, _, Some(minor)) => Some((1, major, number(minor)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn stable_versions_come_before_betas_before_alphas() {
        let mut versions = [
            "foo10",
            "v1",
            "v11alpha2",
            "v3beta1",
            "v12alpha1",
            "foo1",
            "v10",
            "v2",
            "v11beta2",
            "v10beta3",
            "v01",
        ];
        versions.sort_by(|a, b| newer(a, b));
        let wanted = [
            "v10",
            "v2",
            "v1",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "v11alpha2",
            "foo1",
            "foo10",
            "v01",
        ];
        assert_eq!(versions, wanted);
    }

    #[test]
    fn groups_come_by_rank_then_by_name() {
        let resources = Catalog::new().now();
        let others = [
            ("metrics.k8s.io", "v1beta1", Rank { group: 100, version: 100 }),
            ("apps", "v9", Rank { group: 1, version: 1 }),
            ("early.io", "v1", Rank { group: 17_900, version: 1 }),
        ];
        let groups = groups(&resources, others);
        let names: Vec<&str> = groups.iter().map(|g| g.name.as_str()).collect();
        assert_eq!(&names[..4], [GROUP, "early.io", "apps", "events.k8s.io"]);
        assert_eq!(names.last(), Some(&"metrics.k8s.io"));
        let versions = |name: &str| groups.iter().find(|g| g.name == name).unwrap().versions.join(" ");
        assert_eq!((versions("apps"), versions("autoscaling")), ("v1 v9".to_owned(), "v2 v1".to_owned()));
    }

    #[test]
    fn every_built_in_group_has_its_rank() {
        for resource in Catalog::new().now().iter() {
            assert_ne!(rank(resource).group, LAST_BUILT_IN.group, "{}", resource.group);
        }
    }
}

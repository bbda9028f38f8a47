//! Which resources are served, under which names, with which verbs.
//!
//! All stable kinds of the release are listed: their objects are kept, checked and watched as upstream's. What some of them
//! ask for is done by controllers and planes of their own.

mod table;

use std::borrow::Cow;

use table::RESOURCES;

/// The verbs of an ordinary resource.
pub const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The verbs of a subresource that shows and changes a part of its object.
pub const PART: &[&str] = &["get", "patch", "update"];

/// A name: fixed for the kinds that are built in, a custom resource's own for those.
pub type Text = Cow<'static, str>;

/// A served resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// API group; the core group is the empty string.
    pub group: Text,
    /// Version within the group.
    pub version: Text,
    /// Kind of its objects.
    pub kind: Text,
    /// Name in URLs.
    pub plural: Text,
    /// Name on the command line.
    pub singular: Text,
    /// Abbreviations on the command line.
    pub short_names: Vec<Text>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Groups of kinds on the command line, as `all`.
    pub categories: Vec<Text>,
    /// Verbs served on the resource itself.
    pub verbs: &'static [&'static str],
    /// What is served below its objects.
    pub subresources: Vec<Subresource>,
}

/// Something served below an object, as `pods/NAME/log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// Name in URLs.
    pub name: Text,
    /// Group of the objects that it takes and gives.
    pub group: Text,
    /// Version of these.
    pub version: Text,
    /// Kind of these.
    pub kind: Text,
    /// Verbs served on it.
    pub verbs: &'static [&'static str],
}

impl Resource {
    /// `v1` or `group/version`, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The group under which its objects are stored: Events are one set of objects under two groups.
    pub fn storage_group(&self) -> &str {
        if self.group == "events.k8s.io" { "" } else { &self.group }
    }

    /// The version in which its objects are stored: autoscalers are one set of objects in two versions, claims of devices in three.
    pub fn storage_version(&self) -> &str {
        match &*self.group {
            "autoscaling" => "v2",
            "resource.k8s.io" => "v1",
            _ => &self.version,
        }
    }

    /// Whether it is served only where its version is asked for, as kube-apiserver has it of those that are not stable.
    pub fn is_off_by_default(&self) -> bool {
        self.version.contains("beta")
    }

    /// Whether its objects are stored as those of another resource.
    pub fn is_stored_otherwise(&self) -> bool {
        (self.group.as_ref(), self.version.as_ref()) != (self.storage_group(), self.storage_version())
    }

    /// Whether the verb is served.
    pub fn serves(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// `plural.group`, or the plural alone in the core group, as error messages name it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }
}

/// Every served resource, ordered by group and plural; of several versions the preferred one first.
pub fn resources() -> &'static [Resource] {
    &RESOURCES
}

/// The resource under a URL's group, version and plural.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
}

/// The resource whose objects have this group, version and kind.
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.group == group && r.version == version && r.kind == kind)
}

/// Group and version of an `apiVersion`; the core group is the empty string.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_and_names_are_unique() {
        for pair in RESOURCES.windows(2) {
            let name = |r: &Resource| (r.group.clone(), r.plural.clone());
            let newer = ["v2", "v1", "v1beta2", "v1beta1"];
            let rank = |r: &Resource| newer.iter().position(|version| *version == r.version);
            let versions = name(&pair[0]) == name(&pair[1]) && rank(&pair[0]) < rank(&pair[1]);
            assert!(
                name(&pair[0]) < name(&pair[1]) || versions,
                "{} comes before {}",
                pair[0].qualified(),
                pair[1].qualified()
            );
        }
    }

    #[test]
    fn a_resource_is_found_by_url_and_by_kind() {
        assert_eq!(find("", "v1", "pods").map(|r| &*r.kind), Some("Pod"));
        assert_eq!(by_kind("storage.k8s.io", "v1", "CSINode").map(|r| &*r.plural), Some("csinodes"));
        assert_eq!(find("apps", "v1beta1", "deployments"), None);
        assert_eq!(
            find("autoscaling", "v1", "horizontalpodautoscalers").map(Resource::storage_version),
            Some("v2")
        );
    }

    #[test]
    fn both_groups_of_events_share_a_storage_group() {
        let names: Vec<_> = RESOURCES.iter().filter(|r| r.plural == "events").collect();
        assert_eq!(names.len(), 2);
        assert!(names.iter().all(|r| r.storage_group().is_empty()));
    }
}

//! Which resources are served, under which names, with which verbs.
//!
//! A resource is listed here only when what Trine does with it is the whole truth: kinds that act only through a
//! controller or an admission step that is not built yet (workloads, quotas, limit ranges, network policies) are absent, so
//! that a client is told instead of misled.

/// The verbs of an ordinary resource.
const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The verbs of a namespace, which cannot be deleted in bulk.
const NO_BULK: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
/// The verbs of a subresource that shows and changes a part of its object.
const PART: &[&str] = &["get", "patch", "update"];

/// A served resource.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group; the core group is the empty string.
    pub group: &'static str,
    /// Version within the group.
    pub version: &'static str,
    /// Kind of its objects.
    pub kind: &'static str,
    /// Name in URLs.
    pub plural: &'static str,
    /// Name on the command line.
    pub singular: &'static str,
    /// Abbreviations on the command line.
    pub short_names: &'static [&'static str],
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Groups of kinds on the command line, as `all`.
    pub categories: &'static [&'static str],
    /// Verbs served on the resource itself.
    pub verbs: &'static [&'static str],
    /// What is served below its objects.
    pub subresources: &'static [Subresource],
}

/// Something served below an object, as `pods/NAME/log`.
#[derive(Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Name in URLs.
    pub name: &'static str,
    /// Group of the objects that it takes and gives.
    pub group: &'static str,
    /// Version of these.
    pub version: &'static str,
    /// Kind of these.
    pub kind: &'static str,
    /// Verbs served on it.
    pub verbs: &'static [&'static str],
}

impl Resource {
    /// `v1` or `group/version`, as in `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The group under which its objects are stored: Events are one set of objects under two groups.
    pub fn storage_group(&self) -> &'static str {
        if self.plural == "events" { "" } else { self.group }
    }

    /// Whether the verb is served.
    pub fn serves(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// `plural.group`, or the plural alone in the core group, as error messages name it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

const fn part(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    name: &'static str,
) -> Subresource {
    Subresource { name, group, version, kind, verbs: PART }
}

const fn core(kind: &'static str, plural: &'static str, singular: &'static str) -> Resource {
    of("", kind, plural, singular)
}

const fn of(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
) -> Resource {
    Resource {
        group,
        version: "v1",
        kind,
        plural,
        singular,
        short_names: &[],
        namespaced: true,
        categories: &[],
        verbs: ALL,
        subresources: &[],
    }
}

const POD_PARTS: &[Subresource] = &[
    Subresource {
        name: "attach",
        group: "",
        version: "v1",
        kind: "PodAttachOptions",
        verbs: &["create", "get"],
    },
    Subresource { name: "binding", group: "", version: "v1", kind: "Binding", verbs: &["create"] },
    part("", "v1", "Pod", "ephemeralcontainers"),
    Subresource { name: "eviction", group: "policy", version: "v1", kind: "Eviction", verbs: &["create"] },
    Subresource { name: "exec", group: "", version: "v1", kind: "PodExecOptions", verbs: &["create", "get"] },
    Subresource { name: "log", group: "", version: "v1", kind: "Pod", verbs: &["get"] },
    part("", "v1", "Pod", "status"),
];

static RESOURCES: &[Resource] = &[
    Resource { verbs: &["create"], ..core("Binding", "bindings", "binding") },
    Resource { short_names: &["cm"], ..core("ConfigMap", "configmaps", "configmap") },
    Resource { short_names: &["ep"], ..core("Endpoints", "endpoints", "endpoints") },
    Resource { short_names: &["ev"], ..core("Event", "events", "event") },
    Resource {
        short_names: &["ns"],
        namespaced: false,
        verbs: NO_BULK,
        subresources: &[
            Subresource { name: "finalize", group: "", version: "v1", kind: "Namespace", verbs: &["update"] },
            part("", "v1", "Namespace", "status"),
        ],
        ..core("Namespace", "namespaces", "namespace")
    },
    Resource {
        short_names: &["no"],
        namespaced: false,
        subresources: &[part("", "v1", "Node", "status")],
        ..core("Node", "nodes", "node")
    },
    Resource {
        short_names: &["pvc"],
        subresources: &[part("", "v1", "PersistentVolumeClaim", "status")],
        ..core("PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
    },
    Resource {
        short_names: &["pv"],
        namespaced: false,
        subresources: &[part("", "v1", "PersistentVolume", "status")],
        ..core("PersistentVolume", "persistentvolumes", "persistentvolume")
    },
    Resource {
        short_names: &["po"],
        categories: &["all"],
        subresources: POD_PARTS,
        ..core("Pod", "pods", "pod")
    },
    core("PodTemplate", "podtemplates", "podtemplate"),
    core("Secret", "secrets", "secret"),
    Resource { short_names: &["sa"], ..core("ServiceAccount", "serviceaccounts", "serviceaccount") },
    Resource {
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[part("", "v1", "Service", "status")],
        ..core("Service", "services", "service")
    },
    of("coordination.k8s.io", "Lease", "leases", "lease"),
    of("discovery.k8s.io", "EndpointSlice", "endpointslices", "endpointslice"),
    Resource { short_names: &["ev"], ..of("events.k8s.io", "Event", "events", "event") },
    Resource {
        namespaced: false,
        ..of("networking.k8s.io", "IngressClass", "ingressclasses", "ingressclass")
    },
    Resource {
        short_names: &["ing"],
        subresources: &[part("networking.k8s.io", "v1", "Ingress", "status")],
        ..of("networking.k8s.io", "Ingress", "ingresses", "ingress")
    },
    Resource { namespaced: false, ..of("node.k8s.io", "RuntimeClass", "runtimeclasses", "runtimeclass") },
    Resource {
        short_names: &["pc"],
        namespaced: false,
        ..of("scheduling.k8s.io", "PriorityClass", "priorityclasses", "priorityclass")
    },
    Resource { namespaced: false, ..of("storage.k8s.io", "CSIDriver", "csidrivers", "csidriver") },
    Resource { namespaced: false, ..of("storage.k8s.io", "CSINode", "csinodes", "csinode") },
    of("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity"),
    Resource {
        short_names: &["sc"],
        namespaced: false,
        ..of("storage.k8s.io", "StorageClass", "storageclasses", "storageclass")
    },
    Resource {
        namespaced: false,
        subresources: &[part("storage.k8s.io", "v1", "VolumeAttachment", "status")],
        ..of("storage.k8s.io", "VolumeAttachment", "volumeattachments", "volumeattachment")
    },
    Resource {
        short_names: &["vac"],
        namespaced: false,
        ..of("storage.k8s.io", "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass")
    },
];

/// Every served resource, ordered by group and plural.
pub fn resources() -> &'static [Resource] {
    RESOURCES
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
            assert!(
                (pair[0].group, pair[0].plural) < (pair[1].group, pair[1].plural),
                "{} comes before {}",
                pair[0].qualified(),
                pair[1].qualified()
            );
        }
    }

    #[test]
    fn a_resource_is_found_by_url_and_by_kind() {
        assert_eq!(find("", "v1", "pods").map(|r| r.kind), Some("Pod"));
        assert_eq!(by_kind("storage.k8s.io", "v1", "CSINode").map(|r| r.plural), Some("csinodes"));
        assert_eq!(find("apps", "v1", "deployments"), None);
    }

    #[test]
    fn both_groups_of_events_share_a_storage_group() {
        let names: Vec<_> = RESOURCES.iter().filter(|r| r.plural == "events").collect();
        assert_eq!(names.len(), 2);
        assert!(names.iter().all(|r| r.storage_group().is_empty()));
    }
}

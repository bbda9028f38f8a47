//! Which resources are served, under which names, with which verbs.
//!
//! All stable kinds of the release are listed: their objects are kept, checked and watched as upstream's. What some of them
//! ask for is done by controllers and planes of their own.

use std::borrow::Cow;
use std::sync::LazyLock;

/// The verbs of an ordinary resource.
pub const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The verbs of a namespace, which cannot be deleted in bulk.
const NO_BULK: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
/// The verbs of a subresource that shows and changes a part of its object.
pub const PART: &[&str] = &["get", "patch", "update"];
/// The verbs of a subresource that passes requests on, each method under its verb.
const CONNECT: &[&str] = &["create", "delete", "get", "patch", "update"];

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

    /// The version in which its objects are stored: autoscalers are one set of objects in two versions.
    pub fn storage_version(&self) -> &str {
        if self.group == "autoscaling" { "v2" } else { &self.version }
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

/// What is served below objects of the same kind, as `status`.
fn part(group: &'static str, version: &'static str, kind: &'static str, name: &'static str) -> Subresource {
    sub(name, group, version, kind, PART)
}

fn sub(
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
) -> Subresource {
    Subresource { name: name.into(), group: group.into(), version: version.into(), kind: kind.into(), verbs }
}

fn core(kind: &'static str, plural: &'static str, singular: &'static str) -> Resource {
    of("", kind, plural, singular)
}

fn of(group: &'static str, kind: &'static str, plural: &'static str, singular: &'static str) -> Resource {
    Resource {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: singular.into(),
        short_names: Vec::new(),
        namespaced: true,
        categories: Vec::new(),
        verbs: ALL,
        subresources: Vec::new(),
    }
}

/// What is answered and never kept.
fn question(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
) -> Resource {
    of(group, kind, plural, singular).cluster_wide().verbs(&["create"])
}

fn autoscaler() -> Resource {
    of("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "horizontalpodautoscaler")
        .short("hpa")
        .in_all()
}

/// What decides about the writes of others.
fn admission(kind: &'static str, plural: &'static str, singular: &'static str) -> Resource {
    of("admissionregistration.k8s.io", kind, plural, singular).category("api-extensions").cluster_wide()
}

/// What sets a row of the table apart from the ordinary.
impl Resource {
    fn short(mut self, name: &'static str) -> Self {
        self.short_names.push(name.into());
        self
    }

    fn cluster_wide(self) -> Self {
        Self { namespaced: false, ..self }
    }

    /// Shown by `get all`.
    fn in_all(self) -> Self {
        self.category("all")
    }

    fn category(mut self, name: &'static str) -> Self {
        self.categories.push(name.into());
        self
    }

    fn verbs(self, verbs: &'static [&'static str]) -> Self {
        Self { verbs, ..self }
    }

    fn with(mut self, part: Subresource) -> Self {
        self.subresources.push(part);
        self
    }

    fn version(self, version: &'static str) -> Self {
        Self { version: version.into(), ..self }
    }

    /// Its number of replicas can be read and set without knowing the kind.
    fn with_scale(self) -> Self {
        self.with(part("autoscaling", "v1", "Scale", "scale"))
    }

    fn with_status(self) -> Self {
        let (group, version, kind) = (self.group.clone(), self.version.clone(), self.kind.clone());
        self.with(Subresource { name: "status".into(), group, version, kind, verbs: PART })
    }
}

static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
    vec![
        core("Binding", "bindings", "binding").verbs(&["create"]),
        core("ComponentStatus", "componentstatuses", "componentstatus")
            .short("cs")
            .cluster_wide()
            .verbs(&["get", "list"]),
        core("ConfigMap", "configmaps", "configmap").short("cm"),
        core("Endpoints", "endpoints", "endpoints").short("ep"),
        core("Event", "events", "event").short("ev"),
        core("LimitRange", "limitranges", "limitrange").short("limits"),
        core("Namespace", "namespaces", "namespace")
            .short("ns")
            .cluster_wide()
            .verbs(NO_BULK)
            .with(sub("finalize", "", "v1", "Namespace", &["update"]))
            .with_status(),
        core("Node", "nodes", "node")
            .short("no")
            .cluster_wide()
            .with(sub("proxy", "", "v1", "NodeProxyOptions", CONNECT))
            .with_status(),
        core("PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
            .short("pvc")
            .with_status(),
        core("PersistentVolume", "persistentvolumes", "persistentvolume")
            .short("pv")
            .cluster_wide()
            .with_status(),
        core("Pod", "pods", "pod")
            .short("po")
            .in_all()
            .with(sub("attach", "", "v1", "PodAttachOptions", &["create", "get"]))
            .with(sub("binding", "", "v1", "Binding", &["create"]))
            .with(part("", "v1", "Pod", "ephemeralcontainers"))
            .with(sub("eviction", "policy", "v1", "Eviction", &["create"]))
            .with(sub("exec", "", "v1", "PodExecOptions", &["create", "get"]))
            .with(sub("log", "", "v1", "Pod", &["get"]))
            .with(sub("portforward", "", "v1", "PodPortForwardOptions", &["create", "get"]))
            .with(sub("proxy", "", "v1", "PodProxyOptions", CONNECT))
            .with(part("", "v1", "Pod", "resize"))
            .with_status(),
        core("PodTemplate", "podtemplates", "podtemplate"),
        core("ReplicationController", "replicationcontrollers", "replicationcontroller")
            .short("rc")
            .in_all()
            .with_scale()
            .with_status(),
        core("ResourceQuota", "resourcequotas", "resourcequota").short("quota").with_status(),
        core("Secret", "secrets", "secret"),
        core("ServiceAccount", "serviceaccounts", "serviceaccount").short("sa").with(sub(
            "token",
            "authentication.k8s.io",
            "v1",
            "TokenRequest",
            &["create"],
        )),
        core("Service", "services", "service")
            .short("svc")
            .in_all()
            .with(sub("proxy", "", "v1", "ServiceProxyOptions", CONNECT))
            .with_status(),
        admission("MutatingAdmissionPolicy", "mutatingadmissionpolicies", "mutatingadmissionpolicy"),
        admission(
            "MutatingAdmissionPolicyBinding",
            "mutatingadmissionpolicybindings",
            "mutatingadmissionpolicybinding",
        ),
        admission(
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            "mutatingwebhookconfiguration",
        ),
        admission("ValidatingAdmissionPolicy", "validatingadmissionpolicies", "validatingadmissionpolicy")
            .with_status(),
        admission(
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicybinding",
        ),
        admission(
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
        ),
        of(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "customresourcedefinition",
        )
        .short("crd")
        .short("crds")
        .category("api-extensions")
        .cluster_wide()
        .with_status(),
        of("apiregistration.k8s.io", "APIService", "apiservices", "apiservice")
            .category("api-extensions")
            .cluster_wide()
            .with_status(),
        of("apps", "ControllerRevision", "controllerrevisions", "controllerrevision"),
        of("apps", "DaemonSet", "daemonsets", "daemonset").short("ds").in_all().with_status(),
        of("apps", "Deployment", "deployments", "deployment")
            .short("deploy")
            .in_all()
            .with_scale()
            .with_status(),
        of("apps", "ReplicaSet", "replicasets", "replicaset").short("rs").in_all().with_scale().with_status(),
        of("apps", "StatefulSet", "statefulsets", "statefulset")
            .short("sts")
            .in_all()
            .with_scale()
            .with_status(),
        question("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview"),
        question("authentication.k8s.io", "TokenReview", "tokenreviews", "tokenreview"),
        of(
            "authorization.k8s.io",
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
        )
        .verbs(&["create"]),
        question(
            "authorization.k8s.io",
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            "selfsubjectaccessreview",
        ),
        question(
            "authorization.k8s.io",
            "SelfSubjectRulesReview",
            "selfsubjectrulesreviews",
            "selfsubjectrulesreview",
        ),
        question(
            "authorization.k8s.io",
            "SubjectAccessReview",
            "subjectaccessreviews",
            "subjectaccessreview",
        ),
        autoscaler().version("v2").with_status(),
        autoscaler().with_status(),
        of("batch", "CronJob", "cronjobs", "cronjob").short("cj").in_all().with_status(),
        of("batch", "Job", "jobs", "job").in_all().with_status(),
        of(
            "certificates.k8s.io",
            "CertificateSigningRequest",
            "certificatesigningrequests",
            "certificatesigningrequest",
        )
        .short("csr")
        .cluster_wide()
        .with(part("certificates.k8s.io", "v1", "CertificateSigningRequest", "approval"))
        .with_status(),
        of("certificates.k8s.io", "ClusterTrustBundle", "clustertrustbundles", "clustertrustbundle")
            .cluster_wide(),
        of("certificates.k8s.io", "PodCertificateRequest", "podcertificaterequests", "podcertificaterequest")
            .with_status(),
        of("coordination.k8s.io", "Lease", "leases", "lease"),
        of("discovery.k8s.io", "EndpointSlice", "endpointslices", "endpointslice"),
        of("events.k8s.io", "Event", "events", "event").short("ev"),
        of("flowcontrol.apiserver.k8s.io", "FlowSchema", "flowschemas", "flowschema")
            .cluster_wide()
            .with_status(),
        of(
            "flowcontrol.apiserver.k8s.io",
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
            "prioritylevelconfiguration",
        )
        .cluster_wide()
        .with_status(),
        of("networking.k8s.io", "IngressClass", "ingressclasses", "ingressclass").cluster_wide(),
        of("networking.k8s.io", "Ingress", "ingresses", "ingress").short("ing").with_status(),
        of("networking.k8s.io", "IPAddress", "ipaddresses", "ipaddress").short("ip").cluster_wide(),
        of("networking.k8s.io", "NetworkPolicy", "networkpolicies", "networkpolicy").short("netpol"),
        of("networking.k8s.io", "ServiceCIDR", "servicecidrs", "servicecidr").cluster_wide().with_status(),
        of("node.k8s.io", "RuntimeClass", "runtimeclasses", "runtimeclass").cluster_wide(),
        of("policy", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget")
            .short("pdb")
            .with_status(),
        of("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding")
            .cluster_wide(),
        of("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", "clusterrole").cluster_wide(),
        of("rbac.authorization.k8s.io", "RoleBinding", "rolebindings", "rolebinding"),
        of("rbac.authorization.k8s.io", "Role", "roles", "role"),
        of("resource.k8s.io", "DeviceClass", "deviceclasses", "deviceclass").cluster_wide(),
        of("resource.k8s.io", "DeviceTaintRule", "devicetaintrules", "devicetaintrule")
            .cluster_wide()
            .with_status(),
        of("resource.k8s.io", "ResourceClaim", "resourceclaims", "resourceclaim").with_status(),
        of("resource.k8s.io", "ResourceClaimTemplate", "resourceclaimtemplates", "resourceclaimtemplate"),
        of("resource.k8s.io", "ResourceSlice", "resourceslices", "resourceslice").cluster_wide(),
        of("scheduling.k8s.io", "PriorityClass", "priorityclasses", "priorityclass")
            .short("pc")
            .cluster_wide(),
        of("storage.k8s.io", "CSIDriver", "csidrivers", "csidriver").cluster_wide(),
        of("storage.k8s.io", "CSINode", "csinodes", "csinode").cluster_wide(),
        of("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity"),
        of("storage.k8s.io", "StorageClass", "storageclasses", "storageclass").short("sc").cluster_wide(),
        of("storage.k8s.io", "VolumeAttachment", "volumeattachments", "volumeattachment")
            .cluster_wide()
            .with_status(),
        of("storage.k8s.io", "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass")
            .short("vac")
            .cluster_wide(),
        of(
            "storagemigration.k8s.io",
            "StorageVersionMigration",
            "storageversionmigrations",
            "storageversionmigration",
        )
        .cluster_wide()
        .with_status(),
    ]
});

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
            let versions = name(&pair[0]) == name(&pair[1]) && pair[0].version > pair[1].version;
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

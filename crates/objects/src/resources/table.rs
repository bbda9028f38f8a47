//! The table of the resources that are built in.

use std::sync::LazyLock;

use super::{ALL, PART, Resource, Subresource};

/// The verbs of a namespace, which cannot be deleted in bulk.
const NO_BULK: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
/// The verbs of a subresource that passes requests on, each method under its verb.
const CONNECT: &[&str] = &["create", "delete", "get", "patch", "update"];

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

fn device_class() -> Resource {
    of("resource.k8s.io", "DeviceClass", "deviceclasses", "deviceclass").cluster_wide()
}

fn device_taint_rule(version: &'static str) -> Resource {
    let rule = of("resource.k8s.io", "DeviceTaintRule", "devicetaintrules", "devicetaintrule");
    rule.version(version).cluster_wide().with_status()
}

fn device_claim(version: &'static str) -> Resource {
    of("resource.k8s.io", "ResourceClaim", "resourceclaims", "resourceclaim").version(version).with_status()
}

fn device_claim_template() -> Resource {
    of("resource.k8s.io", "ResourceClaimTemplate", "resourceclaimtemplates", "resourceclaimtemplate")
}

fn device_slice() -> Resource {
    of("resource.k8s.io", "ResourceSlice", "resourceslices", "resourceslice").cluster_wide()
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

/// Ordered by group and plural; of several versions the preferred one first.
pub(super) static RESOURCES: LazyLock<Vec<Resource>> = LazyLock::new(|| {
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
        device_class(),
        device_class().version("v1beta2"),
        device_class().version("v1beta1"),
        device_taint_rule("v1"),
        device_taint_rule("v1beta2"),
        device_claim("v1"),
        device_claim("v1beta2"),
        device_claim("v1beta1"),
        device_claim_template(),
        device_claim_template().version("v1beta2"),
        device_claim_template().version("v1beta1"),
        device_slice(),
        device_slice().version("v1beta2"),
        device_slice().version("v1beta1"),
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

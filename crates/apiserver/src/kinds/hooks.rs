//! What the verbs ask of a kind.

use super::generic::Generic;
use super::{Cause, Column, Cx, Invalid, columns};
use super::{
    addresses, admission, api_service, autoscaler, batch, certificates, config, devices, disruption,
    endpoints, event, flow, limits, metadata,
};
use super::{
    migration, namespace, network_policy, node, pod, pod_certificate, roles, service, small, storage,
};
use super::{trust_bundle, workload};
use crate::catalog::Served;
use serde_json::Value;
use trine_objects::names;

/// The particulars of a kind. The order at creation is `defaults`, `prepare_create`, `validate`, the write, `Cx::commit`; at
/// an update `defaults`, `prepare_update`, `validate`, the write, `Cx::commit`. Each may be repeated after a lost race. All
/// except those that take a [`Cx`] are pure.
pub trait Hooks: Sync {
    /// What may be the name of an object.
    fn name(&self, name: &str) -> names::Checked {
        names::dns1123_subdomain(name)
    }

    /// Sets what the client left open. Idempotent.
    fn defaults(&self, _obj: &mut Value) {}

    /// What the server decides when the object is made: initial status, allocations, admission.
    fn prepare_create(&self, _obj: &mut Value, _cx: &mut Cx) -> Result<(), Invalid> {
        Ok(())
    }

    /// What the server decides when the object is changed. `old` is the stored object; the verbs have already kept what the
    /// client may not change here (status, or everything but status).
    fn prepare_update(&self, _new: &mut Value, _old: &Value, _cx: &mut Cx) -> Result<(), Invalid> {
        Ok(())
    }

    /// The object is about to be marked as deleted: what holds it until others are done.
    fn before_delete(&self, _obj: &mut Value) {}

    /// The object is gone: gives back what it held.
    fn after_delete(&self, _obj: &Value, _cx: &mut Cx) {}

    /// What is wrong with the object, and with the change if there is an old one. Metadata is checked elsewhere.
    fn validate(&self, _obj: &Value, _old: Option<&Value>) -> Vec<Cause> {
        Vec::new()
    }

    /// Whether what an object owns is left behind when it is deleted and the client does not say what becomes of it.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// What a write through a part of the object (not its status) makes of it: the stored object, changed where that part may.
    /// `None` if the part changes the object as a whole.
    fn only_part(&self, _part: &str, _new: &Value, _old: &Value) -> Option<Value> {
        None
    }

    /// What is wrong with a change through a part of the object.
    fn validate_part(&self, _part: &str, obj: &Value, old: &Value) -> Vec<Cause> {
        self.validate(obj, Some(old))
    }

    /// The columns of its table.
    fn columns(&self) -> &'static [Column] {
        const { &[Column::NAME, Column::AGE] }
    }

    /// Its cells, one for each column.
    fn row(&self, obj: &Value, now_unix: i64) -> Vec<Value> {
        vec![columns::name(obj), columns::age(obj, now_unix)]
    }

    /// The field that a selector's label stands for, among [`Self::fields`], where the groups of a kind name it differently;
    /// nothing if this group does not know the label.
    fn field_label(&self, _group: &str, label: &str) -> Option<String> {
        Some(label.to_owned())
    }

    /// The fields that selectors may name, always all of them, with their values in this object.
    fn fields(&self, obj: &Value) -> Vec<(String, String)> {
        metadata_fields(obj)
    }
}

/// The fields that every kind supports.
#[must_use]
pub fn metadata_fields(obj: &Value) -> Vec<(String, String)> {
    ["name", "namespace"]
        .iter()
        .map(|f| (format!("metadata.{f}"), obj["metadata"][*f].as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// The hooks of a resource; those without particulars have the provided ones.
pub fn hooks(group: &str, resource: &str) -> &'static dyn Hooks {
    match (group, resource) {
        ("", "configmaps") => &config::ConfigMaps,
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations") => &admission::Mutating,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => &admission::MutatingPolicies,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings") => &admission::MutatingBindings,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => &admission::ValidatingPolicies,
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => {
            &admission::ValidatingBindings
        }
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => &admission::Validating,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &crate::custom::Definitions,
        ("", "endpoints") => &endpoints::Endpoints,
        ("" | "events.k8s.io", "events") => &event::Events,
        ("", "limitranges") => &limits::Ranges,
        ("", "namespaces") => &namespace::Namespaces,
        ("", "nodes") => &node::Nodes,
        ("", "persistentvolumeclaims") => &storage::Claims,
        ("", "persistentvolumes") => &storage::Volumes,
        ("", "pods") => &pod::Pods,
        ("", "podtemplates") => &pod::Templates,
        ("", "replicationcontrollers") => &workload::ReplicationControllers,
        ("", "resourcequotas") => &limits::Quotas,
        ("", "secrets") => &config::Secrets,
        ("", "serviceaccounts") => &small::Accounts,
        ("", "services") => &service::Services,
        ("apiregistration.k8s.io", "apiservices") => &api_service::ApiServices,
        ("apps", "controllerrevisions") => &workload::Revisions,
        ("apps", "daemonsets") => &workload::DaemonSets,
        ("apps", "deployments") => &workload::Deployments,
        ("apps", "replicasets") => &workload::ReplicaSets,
        ("apps", "statefulsets") => &workload::StatefulSets,
        ("autoscaling", "horizontalpodautoscalers") => &autoscaler::Autoscalers,
        ("batch", "cronjobs") => &batch::CronJobs,
        ("batch", "jobs") => &batch::Jobs,
        ("certificates.k8s.io", "certificatesigningrequests") => &certificates::SigningRequests,
        ("certificates.k8s.io", "clustertrustbundles") => &trust_bundle::TrustBundles,
        ("certificates.k8s.io", "podcertificaterequests") => &pod_certificate::PodCertificates,
        ("coordination.k8s.io", "leases") => &small::Leases,
        ("discovery.k8s.io", "endpointslices") => &endpoints::Slices,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => &flow::Schemas,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => &flow::Levels,
        ("networking.k8s.io", "ingressclasses") => &small::IngressClasses,
        ("networking.k8s.io", "ingresses") => &small::Ingresses,
        ("networking.k8s.io", "ipaddresses") => &addresses::Addresses,
        ("networking.k8s.io", "networkpolicies") => &network_policy::NetworkPolicies,
        ("networking.k8s.io", "servicecidrs") => &addresses::Cidrs,
        ("node.k8s.io", "runtimeclasses") => &small::Runtimes,
        ("policy", "poddisruptionbudgets") => &disruption::Budgets,
        ("rbac.authorization.k8s.io", "roles") => &roles::Roles { namespaced: true },
        ("rbac.authorization.k8s.io", "clusterroles") => &roles::Roles { namespaced: false },
        ("rbac.authorization.k8s.io", "rolebindings") => &roles::Bindings { namespaced: true },
        ("rbac.authorization.k8s.io", "clusterrolebindings") => &roles::Bindings { namespaced: false },
        ("resource.k8s.io", "deviceclasses") => &devices::Classes,
        ("resource.k8s.io", "devicetaintrules") => &devices::TaintRules,
        ("resource.k8s.io", "resourceclaims") => &devices::Claims,
        ("resource.k8s.io", "resourceclaimtemplates") => &devices::Templates,
        ("resource.k8s.io", "resourceslices") => &devices::Slices,
        ("scheduling.k8s.io", "priorityclasses") => &small::Priorities,
        ("storage.k8s.io", "csidrivers") => &storage::Drivers,
        ("storage.k8s.io", "csinodes") => &storage::NodeDrivers,
        ("storage.k8s.io", "csistoragecapacities") => &storage::Capacities,
        ("storage.k8s.io", "storageclasses") => &storage::Classes,
        ("storage.k8s.io", "volumeattachments") => &storage::Attachments,
        ("storage.k8s.io", "volumeattributesclasses") => &storage::AttributesClasses,
        ("storagemigration.k8s.io", "storageversionmigrations") => &migration::Migrations,
        _ => &Generic,
    }
}

/// Everything wrong with an object of a resource: its metadata, and what its kind says.
pub fn validate(resource: &Served, part: &str, obj: &Value, old: Option<&Value>) -> Vec<Cause> {
    let hooks = resource.hooks();
    let mut causes = metadata::validate(obj, resource.namespaced, |name| hooks.name(name));
    causes.extend(match old {
        Some(old) if !part.is_empty() => hooks.validate_part(part, obj, old),
        old => hooks.validate(obj, old),
    });
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use trine_objects::resources::resources;

    #[test]
    fn every_row_has_a_cell_for_each_column_and_no_hook_minds_an_empty_object() {
        for r in resources() {
            let hooks = hooks(&r.group, &r.plural);
            for mut object in [
                json!({}),
                json!({"metadata": {"name": "x"}, "spec": null}),
                json!({"spec": {}, "status": {}}),
            ] {
                assert_eq!(hooks.row(&object, 0).len(), hooks.columns().len(), "{}", r.qualified());
                hooks.defaults(&mut object);
                hooks.validate(&object, None);
                hooks.validate(&object, Some(&json!({})));
                assert!(hooks.fields(&object).len() >= 2);
            }
        }
    }

    #[test]
    fn defaults_are_idempotent() {
        let pod = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i", "livenessProbe": {"httpGet": {"port": 1}},
            "resources": {"limits": {"cpu": "1"}}}], "volumes": [{"name": "v"}]}});
        for r in resources() {
            let hooks = hooks(&r.group, &r.plural);
            let mut once = pod.clone();
            hooks.defaults(&mut once);
            let mut twice = once.clone();
            hooks.defaults(&mut twice);
            assert_eq!(once, twice, "{}", r.qualified());
        }
    }

    #[test]
    fn what_defaults_add_is_in_the_schema() {
        let pod = json!({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i", "livenessProbe": {"httpGet": {"port": 1}},
            "ports": [{"containerPort": 1}], "resources": {"limits": {"cpu": "1"}}}], "volumes": [{"name": "v"}, {"name": "w", "secret": {"secretName": "s"}}]}});
        for r in resources() {
            let mut object =
                if r.plural == "pods" { pod.clone() } else { json!({"metadata": {"name": "x"}}) };
            hooks(&r.group, &r.plural).defaults(&mut object);
            if r.is_stored_otherwise() {
                continue;
            }
            let ty = trine_objects::schema::of(&r.group, &r.version, &r.kind).unwrap();
            let errors: Vec<String> =
                trine_objects::schema::check(ty, &object).iter().map(ToString::to_string).collect();
            assert_eq!(errors, Vec::<String>::new(), "{}", r.qualified());
        }
    }
}

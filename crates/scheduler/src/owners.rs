//! Which Pods belong together, by the Services and controllers that they are of: who asks for no spreading is spread among these.

use std::collections::{BTreeMap, HashMap};

use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use trine_typed::mirror::controller_of;

/// Kinds of controllers whose Pods are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Of the core group.
    ReplicationController,
    /// Of apps.
    ReplicaSet,
    /// Of apps.
    StatefulSet,
}

/// What Services and controllers select.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    /// By namespace and name.
    services: BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>,
    /// By kind, namespace and name.
    controllers: HashMap<(Kind, String, String), LabelSelector>,
}

impl Owners {
    /// A Service selects these labels; nothing: it is gone, or selects no Pods.
    pub fn set_service(&mut self, namespace: &str, name: &str, selector: Option<BTreeMap<String, String>>) {
        let services = self.services.entry(namespace.to_owned()).or_default();
        match selector {
            Some(selector) => services.insert(name.to_owned(), selector),
            None => services.remove(name),
        };
        if services.is_empty() {
            self.services.remove(namespace);
        }
    }

    /// A controller has this selector; nothing: it is gone.
    pub fn set_controller(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        selector: Option<LabelSelector>,
    ) {
        let key = (kind, namespace.to_owned(), name.to_owned());
        match selector {
            Some(selector) => drop(self.controllers.insert(key, selector)),
            None => drop(self.controllers.remove(&key)),
        }
    }

    /// What selects the Pods that a Pod belongs together with. Upstream: `helper.DefaultSelector`.
    #[must_use]
    pub fn selector(&self, pod: &Pod) -> Option<LabelSelector> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let labels = pod.metadata.labels.as_ref();
        let has = |(key, value): (&String, &String)| labels.is_some_and(|l| l.get(key) == Some(value));
        let services = self.services.get(namespace).into_iter().flat_map(BTreeMap::values);
        let of_services = services.filter(|selector| selector.iter().all(has));
        let mut equal: BTreeMap<String, String> =
            of_services.flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        let mut expressions = Vec::new();
        if let Some(selector) = self.controller(pod, namespace) {
            equal.extend(selector.match_labels.clone().unwrap_or_default());
            expressions = selector.match_expressions.clone().unwrap_or_default();
        }
        let something = !equal.is_empty() || !expressions.is_empty();
        something.then(|| LabelSelector {
            match_labels: Some(equal),
            match_expressions: (!expressions.is_empty()).then_some(expressions),
        })
    }

    fn controller(&self, pod: &Pod, namespace: &str) -> Option<&LabelSelector> {
        let owner = controller_of(&pod.metadata)?;
        let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => Kind::ReplicationController,
            ("apps/v1", "ReplicaSet") => Kind::ReplicaSet,
            ("apps/v1", "StatefulSet") => Kind::StatefulSet,
            _ => return None,
        };
        self.controllers.get(&(kind, namespace.to_owned(), owner.name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn owners() -> Owners {
        let mut owners = Owners::default();
        let labels = |app: &str| Some([("app".to_owned(), app.to_owned())].into());
        owners.set_service("d", "web", labels("web"));
        owners.set_service("d", "db", labels("db"));
        owners.set_service("other", "elsewhere", labels("alone"));
        let selector = json!({"matchLabels": {"hash": "1"},
            "matchExpressions": [{"key": "tier", "operator": "Exists"}]});
        owners.set_controller(Kind::ReplicaSet, "d", "web-1", serde_json::from_value(selector).unwrap());
        owners
    }

    fn pod(app: &str, owner: (&str, &str, &str)) -> Pod {
        let (version, kind, name) = owner;
        let pod = json!({"metadata": {"name": "p", "namespace": "d", "labels": {"app": app},
            "ownerReferences": [{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true}]}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn those_belong_together_that_a_service_and_a_controller_select() {
        let set = json!([{"key": "tier", "operator": "Exists"}]);
        let rows: [(&str, Pod, Value); 6] = [
            (
                "both",
                pod("web", ("apps/v1", "ReplicaSet", "web-1")),
                json!({"matchLabels": {"app": "web", "hash": "1"}, "matchExpressions": set}),
            ),
            (
                "controller alone",
                pod("none", ("apps/v1", "ReplicaSet", "web-1")),
                json!({"matchLabels": {"hash": "1"}, "matchExpressions": set}),
            ),
            ("service alone", pod("db", ("batch/v1", "Job", "web-1")), json!({"matchLabels": {"app": "db"}})),
            ("another kind", pod("none", ("apps/v1", "StatefulSet", "web-1")), json!(null)),
            ("another group", pod("none", ("x.io/v1", "ReplicaSet", "web-1")), json!(null)),
            ("a service elsewhere", pod("alone", ("batch/v1", "Job", "j")), json!(null)),
        ];
        for (name, pod, expected) in rows {
            assert_eq!(serde_json::to_value(owners().selector(&pod)).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn what_is_gone_selects_nothing() {
        let mut owners = owners();
        owners.set_service("d", "web", None);
        owners.set_controller(Kind::ReplicaSet, "d", "web-1", None);
        assert_eq!(owners.selector(&pod("web", ("apps/v1", "ReplicaSet", "web-1"))), None);
    }
}

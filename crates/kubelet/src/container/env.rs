//! The environment of a container: services, envFrom, env, in upstream's order of precedence.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, Pod};

use super::expand::expand;
use super::fields::{self, NodeFacts};
use super::sources::Sources;
use crate::error::KubeletError;

/// Everything that the environment is made of.
pub struct EnvInput<'a> {
    /// The Pod.
    pub pod: &'a Pod,
    /// The container.
    pub container: &'a Container,
    /// The ConfigMaps and Secrets that it refers to.
    pub sources: &'a Sources,
    /// Variables of the Services that it may see.
    pub services: &'a BTreeMap<String, String>,
    /// What it may know of the node.
    pub node: &'a NodeFacts,
}

/// Variables in order; a later one of the same name replaces the earlier one.
///
/// # Errors
/// [`KubeletError::Invalid`] if a reference leads nowhere.
pub fn environment(input: &EnvInput<'_>) -> Result<Vec<(String, String)>, KubeletError> {
    let mut vars = Vars::default();
    env_from(input, &mut vars)?;
    for var in input.container.env.iter().flatten() {
        if let Some(value) = value_of(input, var, &vars)? {
            vars.set(&var.name, value);
        }
    }
    for (name, value) in input.services {
        if vars.get(name).is_none() {
            vars.set(name, value.clone());
        }
    }
    Ok(vars.list)
}

#[derive(Default)]
struct Vars {
    list: Vec<(String, String)>,
}

impl Vars {
    fn get(&self, name: &str) -> Option<&String> {
        self.list.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    fn set(&mut self, name: &str, value: String) {
        match self.list.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.list.push((name.to_owned(), value)),
        }
    }
}

fn env_from(input: &EnvInput<'_>, vars: &mut Vars) -> Result<(), KubeletError> {
    for from in input.container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(reference) = &from.config_map_ref {
            let found = input.sources.config_map(&reference.name, reference.optional.unwrap_or_default())?;
            for (key, value) in found.into_iter().flat_map(|m| m.data.iter().flatten()) {
                vars.set(&format!("{prefix}{key}"), value.clone());
            }
        }
        if let Some(reference) = &from.secret_ref {
            let found = input.sources.secret(&reference.name, reference.optional.unwrap_or_default())?;
            for (key, value) in found.into_iter().flat_map(|m| m.data.iter().flatten()) {
                vars.set(&format!("{prefix}{key}"), String::from_utf8_lossy(&value.0).into_owned());
            }
        }
    }
    Ok(())
}

fn value_of(input: &EnvInput<'_>, var: &EnvVar, vars: &Vars) -> Result<Option<String>, KubeletError> {
    if let Some(value) = var.value.as_ref().filter(|v| !v.is_empty()) {
        let lookup = |name: &str| vars.get(name).or_else(|| input.services.get(name)).cloned();
        return Ok(Some(expand(value, lookup)));
    }
    match &var.value_from {
        Some(source) => referenced(input, source),
        None => Ok(Some(String::new())),
    }
}

fn referenced(input: &EnvInput<'_>, source: &EnvVarSource) -> Result<Option<String>, KubeletError> {
    let namespace = input.pod.metadata.namespace.as_deref().unwrap_or_default();
    let missing = |key: &str, kind: &str, name: &str| {
        KubeletError::Invalid(format!("couldn't find key {key} in {kind} {namespace}/{name}"))
    };
    if let Some(r) = &source.field_ref {
        return fields::field(input.pod, &r.field_path, input.node).map(Some);
    }
    if let Some(r) = &source.resource_field_ref {
        return fields::resource(input.pod, &input.container.name, r, input.node).map(Some);
    }
    if let Some(r) = &source.config_map_key_ref {
        let optional = r.optional.unwrap_or_default();
        let found = input.sources.config_map(&r.name, optional)?;
        return match found.and_then(|m| m.data.as_ref()).and_then(|d| d.get(&r.key)) {
            Some(value) => Ok(Some(value.clone())),
            None if optional => Ok(None),
            None => Err(missing(&r.key, "ConfigMap", &r.name)),
        };
    }
    if let Some(r) = &source.secret_key_ref {
        let optional = r.optional.unwrap_or_default();
        let found = input.sources.secret(&r.name, optional)?;
        return match found.and_then(|m| m.data.as_ref()).and_then(|d| d.get(&r.key)) {
            Some(value) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            None if optional => Ok(None),
            None => Err(missing(&r.key, "Secret", &r.name)),
        };
    }
    Err(KubeletError::Invalid("an environment variable has a source of an unknown kind".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn build(container: serde_json::Value, sources: &Sources) -> Result<Vec<(String, String)>, KubeletError> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [container]}}))
        .unwrap();
        let services = BTreeMap::from([("A_SERVICE_HOST".to_owned(), "10.0.0.1".to_owned())]);
        environment(&EnvInput {
            pod: &pod,
            container: &pod.spec.as_ref().unwrap().containers[0],
            sources,
            services: &services,
            node: &NodeFacts::default(),
        })
    }

    fn sources() -> Sources {
        let map = serde_json::from_value(json!({"data": {"k": "from-map", "K2": "two"}})).unwrap();
        let secret = serde_json::from_value(json!({"data": {"s": "czNjcmV0"}})).unwrap();
        Sources {
            config_maps: BTreeMap::from([("m".to_owned(), Some(map)), ("none".to_owned(), None)]),
            secrets: BTreeMap::from([("s".to_owned(), Some(secret))]),
        }
    }

    #[test]
    fn variables_come_from_everywhere_and_the_nearest_wins() {
        let container = json!({"name": "c",
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m"}}],
        "env": [
            {"name": "P_k", "value": "own"},
            {"name": "X", "value": "$(P_k)-$(A_SERVICE_HOST)-$(LATER)-$$(X)"},
            {"name": "LATER", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "s"}}},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "GONE", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k", "optional": true}}},
            {"name": "EMPTY"},
        ]});
        let got = build(container, &sources()).unwrap();
        let expected = [
            ("P_K2", "two"),
            ("P_k", "own"),
            ("X", "own-10.0.0.1-$(LATER)-$(X)"),
            ("LATER", "from-map"),
            ("S", "s3cret"),
            ("NAME", "p"),
            ("EMPTY", ""),
            ("A_SERVICE_HOST", "10.0.0.1"),
        ];
        assert_eq!(got, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn a_reference_to_nothing_names_what_is_missing() {
        let rows = [
            (json!({"configMapKeyRef": {"name": "none", "key": "k"}}), "configmap \"none\" not found"),
            (json!({"configMapKeyRef": {"name": "m", "key": "x"}}), "couldn't find key x in ConfigMap n/m"),
            (json!({"secretKeyRef": {"name": "none", "key": "k"}}), "secret \"none\" not found"),
        ];
        for (source, expected) in rows {
            let error = build(json!({"name": "c", "env": [{"name": "A", "valueFrom": source}]}), &sources());
            assert_eq!(error.unwrap_err().to_string(), expected);
        }
    }
}

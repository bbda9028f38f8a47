//! What every cluster has from its first moment: the system's namespaces, priorities and shares of the server, and the `kubernetes` Service with an endpoint that
//! Pods can reach.

use serde_json::{Value, json};
use std::net::SocketAddr;
use trine_objects::{conditions, time};
use trine_store::Expect;

use crate::flow_defaults;
use crate::registry::{Registry, now_unix};
use crate::status::ApiError;
use crate::verbs::create;
use crate::verbs::options::WriteOptions;
use crate::verbs::update::parse;

/// Names, values and meanings of the classes of Pods that the cluster needs.
const SYSTEM_PRIORITIES: [(&str, i64, &str); 2] = [
    ("system-cluster-critical", 2_000_000_000, "Pods that the cluster needs, on whichever node"),
    ("system-node-critical", 2_000_001_000, "Pods that their own node needs"),
];
/// The name that the front proxy's certificate has. kubeadm's.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Makes what is missing, and sets the endpoint to `advertised`.
///
/// # Errors
/// [`ApiError`].
pub async fn bootstrap(registry: &Registry, advertised: SocketAddr) -> Result<(), ApiError> {
    for name in NAMESPACES {
        make(registry, "", "namespaces", "", json!({"metadata": {"name": name}})).await?;
        // Its controller would make it a moment later; the first Pod need not wait for that.
        make(registry, "", "serviceaccounts", name, json!({"metadata": {"name": "default"}})).await?;
    }
    if let Some(issuing) = registry.issuing() {
        // Where servers behind this one learn whose client certificates to believe, and who may say who asks.
        let map = json!({"metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
            "data": {"client-ca-file": issuing.ca_pem, "requestheader-client-ca-file": issuing.front_proxy_pem,
                "requestheader-allowed-names": json!([FRONT_PROXY]).to_string(),
                "requestheader-username-headers": "[\"X-Remote-User\"]",
                "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
                "requestheader-group-headers": "[\"X-Remote-Group\"]",
                "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]"}});
        set(registry, "", "configmaps", map, &["data"]).await?;
    }
    let classes = SYSTEM_PRIORITIES.map(|(name, value, what)| {
        let class = json!({"metadata": {"name": name}, "value": value, "description": what});
        ("scheduling.k8s.io", "priorityclasses", class)
    });
    let flow = "flowcontrol.apiserver.k8s.io";
    let levels = flow_defaults::levels().into_iter().map(|l| (flow, "prioritylevelconfigurations", l));
    let schemas = flow_defaults::schemas().into_iter().map(|s| (flow, "flowschemas", s));
    // Together, so that the disk is waited for once.
    let all = classes.into_iter().chain(levels).chain(schemas);
    let made = all.map(|(group, plural, object)| make(registry, group, plural, "", object));
    futures::future::try_join_all(made).await?;
    let address = registry.allocators().first().to_string();
    let service = json!({"metadata": {"name": "kubernetes",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": address, "ports": [
            {"name": "https", "port": 443, "protocol": "TCP", "targetPort": advertised.port()}]}});
    service_range(registry).await?;
    make(registry, "", "services", "default", service).await?;
    let slice = json!({"metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if advertised.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [advertised.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": advertised.port(), "protocol": "TCP"}]});
    set(registry, "discovery.k8s.io", "endpointslices", slice, &["endpoints", "ports"]).await?;
    let endpoints = json!({"metadata": {"name": "kubernetes"}, "subsets": [{
        "addresses": [{"ip": advertised.ip().to_string()}],
        "ports": [{"name": "https", "port": advertised.port(), "protocol": "TCP"}]}]});
    set(registry, "", "endpoints", endpoints, &["subsets"]).await
}

/// The range that Services' addresses are from, as an object. Source: KEP-1880.
async fn service_range(registry: &Registry) -> Result<(), ApiError> {
    let (group, plural, name) = ("networking.k8s.io", "servicecidrs", "kubernetes");
    let ranges = registry.allocators().ranges();
    make(registry, group, plural, "", json!({"metadata": {"name": name}, "spec": {"cidrs": ranges}})).await?;
    let resource = registry.resource(group, "v1", plural)?;
    let current = registry.get(&resource, "", name)?;
    let mut changed = parse(current.json())?;
    if changed["spec"]["cidrs"] == json!(ranges) && conditions::is_true(&changed, "Ready") {
        return Ok(());
    }
    changed["spec"]["cidrs"] = json!(ranges);
    let (message, now) = ("Kubernetes Service CIDR is ready", time::format(now_unix()));
    conditions::set(&mut changed, "Ready", true, "", message, &now);
    match registry.put(&resource, changed, Expect::At(current.revision)).await {
        // Another server of the cluster starts, too, and was faster.
        Ok(_) | Err(ApiError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

async fn make(
    registry: &Registry,
    group: &str,
    plural: &str,
    namespace: &str,
    object: Value,
) -> Result<(), ApiError> {
    let resource = registry.resource(group, "v1", plural)?;
    if registry.get(&resource, namespace, object["metadata"]["name"].as_str().unwrap_or_default()).is_ok() {
        return Ok(());
    }
    match create::create(registry, &resource, namespace, object, &WriteOptions::of_server()).await {
        Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes an object of its namespace, `default` unless it says another, or sets its `fields`.
async fn set(
    registry: &Registry,
    group: &str,
    plural: &str,
    object: Value,
    fields: &[&str],
) -> Result<(), ApiError> {
    let resource = registry.resource(group, "v1", plural)?;
    let text = |field: &str| object["metadata"][field].as_str();
    let (namespace, name) =
        (text("namespace").unwrap_or("default").to_owned(), text("name").unwrap_or_default());
    let Ok(current) = registry.get(&resource, &namespace, name) else {
        return make(registry, group, plural, &namespace, object).await;
    };
    let mut changed = parse(current.json())?;
    for field in fields {
        changed[*field] = object[*field].clone();
    }
    if changed != parse(current.json())? {
        registry.put(&resource, changed, Expect::At(current.revision)).await?;
    }
    Ok(())
}

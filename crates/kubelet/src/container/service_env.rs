//! Environment variables of Services: `NAME_SERVICE_HOST` and the older link variables.

use std::collections::BTreeMap;

use trine_typed::k8s_openapi::api::core::v1::{Pod, Service};

/// The Service that every Pod sees, in the namespace `default`.
const MASTER: &str = "kubernetes";

/// Variables of the Services that `pod` sees: those of its namespace unless it opted out, and the API's.
#[must_use]
pub fn service_environment<'a>(
    pod: &Pod,
    services: impl IntoIterator<Item = &'a Service>,
) -> BTreeMap<String, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let links = pod.spec.as_ref().and_then(|s| s.enable_service_links).unwrap_or(true);
    let mut vars = BTreeMap::new();
    for service in services {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let home = service.metadata.namespace.as_deref().unwrap_or_default();
        let master = name == MASTER && home == "default";
        if master || (links && home == namespace) {
            one(name, service, &mut vars);
        }
    }
    vars
}

fn one(name: &str, service: &Service, vars: &mut BTreeMap<String, String>) {
    let Some(spec) = &service.spec else { return };
    let Some(ip) = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None") else { return };
    let prefix = name.to_uppercase().replace('-', "_");
    let ports = spec.ports.as_deref().unwrap_or_default();
    let Some(first) = ports.first() else { return };
    vars.insert(format!("{prefix}_SERVICE_HOST"), ip.to_owned());
    vars.insert(format!("{prefix}_SERVICE_PORT"), first.port.to_string());
    for (index, port) in ports.iter().enumerate() {
        if let Some(port_name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            let port_name = port_name.to_uppercase().replace('-', "_");
            vars.insert(format!("{prefix}_SERVICE_PORT_{port_name}"), port.port.to_string());
        }
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
        let url = format!("{}://{host}:{}", protocol.to_lowercase(), port.port);
        if index == 0 {
            vars.insert(format!("{prefix}_PORT"), url.clone());
        }
        let link = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        vars.insert(format!("{link}_PROTO"), protocol.to_lowercase());
        vars.insert(format!("{link}_PORT"), port.port.to_string());
        vars.insert(format!("{link}_ADDR"), ip.to_owned());
        vars.insert(link, url);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_sees_its_namespace_and_the_api_unless_it_opts_out() {
        let service = |namespace: &str, name: &str, ip: &str| -> Service {
            serde_json::from_value(json!({"metadata": {"namespace": namespace, "name": name},
                "spec": {"clusterIP": ip, "ports": [{"name": "web", "port": 80, "protocol": "TCP"}]}}))
            .unwrap()
        };
        let services = [
            service("default", "kubernetes", "10.0.0.1"),
            service("n", "my-db", "10.0.0.2"),
            service("n", "headless", "None"),
            service("other", "x", "10.0.0.3"),
        ];
        let pod = |links: bool| -> Pod {
            serde_json::from_value(json!({"metadata": {"namespace": "n"},
                "spec": {"containers": [], "enableServiceLinks": links}}))
            .unwrap()
        };
        let vars = service_environment(&pod(true), &services);
        assert_eq!(vars["MY_DB_SERVICE_HOST"], "10.0.0.2");
        assert_eq!(vars["MY_DB_SERVICE_PORT_WEB"], "80");
        assert_eq!(vars["MY_DB_PORT_80_TCP"], "tcp://10.0.0.2:80");
        assert_eq!(vars["KUBERNETES_SERVICE_HOST"], "10.0.0.1");
        assert!(!vars.keys().any(|k| k.starts_with("HEADLESS") || k.starts_with("X_")));
        assert!(!service_environment(&pod(false), &services).contains_key("MY_DB_SERVICE_HOST"));
    }
}

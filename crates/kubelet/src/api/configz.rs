//! The kubelet's settings, in the form that upstream's `/configz` has.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::server::Server;
use crate::config::{
    BACKOFF, Config, LEASE_DURATION, MAX_PODS, NODE_STATUS_CHECK, NODE_STATUS_REPORT, RESYNC,
};

/// `GET /configz`.
pub async fn configz(State(server): State<Server>) -> Json<Value> {
    Json(json!({"kubeletconfig": settings(&server.config)}))
}

/// The settings that upstream's kubelet would have for the same.
fn settings(config: &Config) -> Value {
    let seconds = |duration: std::time::Duration| format!("{}s", duration.as_secs());
    json!({
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "address": if config.node_ip.is_ipv4() { "0.0.0.0" } else { "::" },
        "port": config.port,
        "readOnlyPort": 0,
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}},
        "authorization": {"mode": "Webhook"},
        "clusterDNS": config.cluster_dns,
        "clusterDomain": config.cluster_domain,
        "resolvConf": config.resolv_conf,
        "containerRuntimeEndpoint": format!("unix://{}", config.cri_socket.display()),
        "cgroupRoot": config.cgroup_parent,
        "cgroupsPerQOS": false,
        "cpuManagerPolicy": "none",
        "memoryManagerPolicy": "None",
        "topologyManagerPolicy": "none",
        "failSwapOn": false,
        "maxPods": MAX_PODS,
        "nodeLeaseDurationSeconds": LEASE_DURATION.as_secs(),
        "nodeStatusUpdateFrequency": seconds(NODE_STATUS_CHECK),
        "nodeStatusReportFrequency": seconds(NODE_STATUS_REPORT),
        "syncFrequency": seconds(RESYNC),
        "crashLoopBackOff": {"maxContainerRestartPeriod": seconds(BACKOFF.1)},
        "evictionHard": config.eviction_hard.words(),
        "enableControllerAttachDetach": true,
        "containerLogMaxSize": config.logs.max_bytes.to_string(),
        "containerLogMaxFiles": config.logs.max_files,
        "enableServer": true,
        "serializeImagePulls": false,
        "podLogsDir": config.log_root,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_that_count() {
        let config = Config::new("n", "10.0.0.1".parse().unwrap(), "/r".into(), "/cri.sock".into());
        let settings = settings(&config);
        assert_eq!(settings["maxPods"], 110);
        assert_eq!(settings["evictionHard"]["memory.available"], "100Mi");
        assert_eq!(settings["nodeStatusUpdateFrequency"], "10s");
        assert_eq!(settings["containerRuntimeEndpoint"], "unix:///cri.sock");
    }
}

//! Upstream's metrics-server, by its own manifests, measures Pods; a HorizontalPodAutoscaler goes by that.

use std::time::{Duration, Instant};

use trine_tests::go;

use super::Stage;
use super::web::{Clients, address};

const PACKAGE: &str = "sigs.k8s.io/metrics-server/cmd/metrics-server";
/// The image that the manifests name.
const IMAGE: &str = "gcr.io/k8s-staging-metrics-server/metrics-server:master";
/// Measuring takes a quarter of a minute, and so does deciding; the measured container may have come just after.
const PATIENCE: Duration = Duration::from_secs(240);

fn soon(what: &str, check: impl Fn() -> Result<(), String>) {
    let since = Instant::now();
    while let Err(last) = check() {
        assert!(since.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}; last: {last}");
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
#[ignore = "takes minutes; `cargo xtask manifests` runs it"]
fn a_deployment_grows_under_load_as_upstreams_metrics_server_measures_it() {
    const TEST: &str = "a_deployment_grows_under_load_as_upstreams_metrics_server_measures_it";
    let Some(program) = go::build(TEST, "tests/clients/metrics", PACKAGE, "metrics-server") else { return };
    let Some(stage) = Stage::set(TEST) else { return };
    let source = format!("{}:/metrics-server", program.display());
    let build = ["image", "build", "--tag", IMAGE, "--entrypoint", "/metrics-server", &source];
    let _ = stage.cluster.trine(&build).expect_ok();
    // Until it answers, its group is one whose server is away: that must hold up nobody else's.
    let module = go::module("tests/clients/metrics", "sigs.k8s.io/metrics-server");
    let _ = stage.said(&["apply", "-k", &format!("{}/manifests/base", module.display())]);
    stage.apply("web/web.yaml", &[]);
    let _ = stage.said(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    let _ = stage.said(&[
        "rollout",
        "status",
        "deployment/metrics-server",
        "-n",
        "kube-system",
        "--timeout=180s",
    ]);
    stage.wait("apiservice/v1beta1.metrics.k8s.io", "Available");
    soon("the nodes are measured", || {
        let top = stage.kubectl(&["top", "node"]);
        if top.ok && top.out.lines().count() == 3 { Ok(()) } else { Err(format!("{top:?}")) }
    });

    let clients = Clients::start(2, &address(&stage, "web"), "/cgi-bin/burn");
    soon("it has grown", || {
        let replicas = stage.said(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]);
        let wanted = stage.said(&["get", "hpa", "web", "-o", "jsonpath={.status}"]);
        if replicas == "6" { Ok(()) } else { Err(wanted) }
    });
    let (answers, failures) = clients.end();
    assert!(failures.is_empty(), "{answers} answers, {failures:?}");
    soon("it has shrunk", || {
        let replicas = stage.said(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]);
        if replicas == "3" { Ok(()) } else { Err(replicas) }
    });
}

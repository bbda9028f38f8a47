//! A chart as its project publishes it: that of metrics-server.

use trine_tests::helm::Helm;
use trine_tests::{go, until};

use super::Stage;

const PACKAGE: &str = "sigs.k8s.io/metrics-server/cmd/metrics-server";
/// The image that is made of the module, in place of the one that the chart names.
const IMAGE: (&str, &str) = ("my.local/metrics-server", "published");

#[test]
#[ignore = "takes minutes; `cargo xtask manifests` runs it"]
fn metrics_servers_published_chart_lives_its_life() {
    const TEST: &str = "metrics_servers_published_chart_lives_its_life";
    let Some(program) = Helm::build(TEST) else { return };
    let Some(server) = go::build(TEST, "tests/clients/metrics", PACKAGE, "metrics-server") else { return };
    let Some(stage) = Stage::set(TEST) else { return };
    let (repository, tag) = IMAGE;
    let source = format!("{}:/metrics-server", server.display());
    let image = format!("{repository}:{tag}");
    let build = ["image", "build", "--tag", &image, "--entrypoint", "/metrics-server", &source];
    let _ = stage.cluster.trine(&build).expect_ok();
    let helm = Helm::of(program, &stage.cluster);
    let chart =
        go::module("tests/clients/metrics", "sigs.k8s.io/metrics-server").join("charts/metrics-server");
    let chart = chart.display().to_string();
    let image = format!("image.repository={repository},image.tag={tag}");
    let common = ["--namespace=kube-system", "--wait", "--timeout=150s", "--set", &image];

    let installed = helm.json(&[&["install", "measure", &chart][..], &common].concat());
    assert_eq!(installed["info"]["status"], "deployed", "{installed}");
    stage.wait("apiservice/v1beta1.metrics.k8s.io", "Available");
    until("both nodes are measured", || {
        let top = stage.kubectl(&["top", "node"]);
        if top.ok && top.out.lines().count() == 3 { Ok(()) } else { Err(format!("{top:?}")) }
    });
    let name = "deployment/measure-metrics-server";
    let replicas = |field: &str| {
        let path = format!("jsonpath={{{field}}}");
        stage.said(&["get", name, "-n", "kube-system", "-o", &path])
    };
    let more = ["--set", "replicas=2,podDisruptionBudget.enabled=true,podDisruptionBudget.minAvailable=1"];
    let _ = helm.run(&[&["upgrade", "measure", &chart][..], &common, &more].concat()).expect_ok();
    assert_eq!(
        (replicas(".status.availableReplicas"), replicas(".status.updatedReplicas")),
        ("2".into(), "2".into())
    );
    let budget = [
        "get",
        "pdb",
        "measure-metrics-server",
        "-n",
        "kube-system",
        "-o",
        "jsonpath={.status.disruptionsAllowed}",
    ];
    until("its budget is counted", || {
        let allowed = stage.said(&budget);
        if allowed == "1" { Ok(()) } else { Err(allowed) }
    });
    let back = ["rollback", "measure", "1", "--namespace=kube-system", "--wait", "--timeout=150s"];
    let _ = helm.run(&back).expect_ok();
    assert_eq!(replicas(".spec.replicas"), "1");
    assert!(!stage.kubectl(&budget).ok, "the budget is gone");
    let _ = helm
        .run(&["uninstall", "measure", "--namespace=kube-system", "--wait", "--timeout=120s"])
        .expect_ok();
    let api = stage.kubectl(&["get", "apiservice", "v1beta1.metrics.k8s.io"]);
    assert!(!api.ok, "{api:?}");
}

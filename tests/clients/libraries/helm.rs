//! helm: a chart with hooks (bare Pods) and a kind of its own is installed, upgraded, rolled back, tested and removed.

use std::path::Path;

use serde_json::Value;
use trine_tests::Cluster;
use trine_tests::helm::Helm;

#[test]
fn helm_installs_upgrades_rolls_back_and_removes_a_chart() {
    const TEST: &str = "helm_installs_upgrades_rolls_back_and_removes_a_chart";
    let Some(program) = Helm::build(TEST) else { return };
    let Some(cluster) = Cluster::with_busybox(TEST) else { return };
    let helm = Helm::of(program, &cluster);
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/helm/boat").display().to_string();
    let crew = || cluster.get("boats.example.com/argo")["spec"]["crew"].clone();
    let revision = || cluster.get("configmap/argo")["data"]["revision"].clone();

    let installed = helm.json(&["install", "argo", &chart, "--wait", "--timeout=30s"]);
    assert_eq!(installed["info"]["status"], "deployed", "{installed}");
    assert_eq!(crew(), 2);
    assert_eq!(cluster.get("pod/argo-prepare")["status"]["phase"], "Succeeded");
    assert_eq!(cluster.trine(&["logs", "argo-prepare"]).expect_ok(), "prepare of revision 1\n");
    let map = cluster.get("configmap/argo");
    assert_eq!(
        (&map["data"]["definitions"], &map["metadata"]["labels"]["app.kubernetes.io/managed-by"]),
        (&"true".into(), &"Helm".into())
    );
    assert!(map["data"]["kubernetes"].as_str().unwrap_or_default().starts_with("v1.37."), "{map}");
    let again = helm.run(&["install", "argo", &chart]).expect_failure();
    assert!(again.contains("cannot reuse a name that is still in use"), "{again}");

    // Somebody else's change of another field stays.
    let noted = cluster.apply("apiVersion: v1\nkind: Service\nmetadata: {name: argo, annotations: {note: kept}}\nspec: {ports: [{port: 80}]}");
    let _ = noted.expect_ok();
    let upgraded = helm.json(&["upgrade", "argo", &chart, "--set", "crew=4", "--wait", "--timeout=30s"]);
    assert_eq!(
        (&upgraded["info"]["status"], &upgraded["version"]),
        (&"deployed".into(), &2.into()),
        "{upgraded}"
    );
    assert_eq!((crew(), revision()), (4.into(), "2".into()));
    assert_eq!(cluster.trine(&["logs", "argo-check"]).expect_ok(), "check of revision 2\n");
    assert_eq!(cluster.get("service/argo")["metadata"]["annotations"]["note"], "kept");

    let failed = helm
        .run(&["upgrade", "argo", &chart, "--set", "crew=6,fails=true", "--timeout=30s"])
        .expect_failure();
    assert!(failed.contains("post-upgrade hooks failed"), "{failed}");
    assert_eq!(helm.json(&["status", "argo"])["info"]["status"], "failed");
    let _ = helm.run(&["rollback", "argo", "1", "--wait", "--timeout=30s"]).expect_ok();
    assert_eq!((crew(), revision()), (2.into(), "1".into()));

    assert_eq!(helm.history("argo"), ["superseded", "superseded", "failed", "deployed"]);
    let listed = helm.json(&["list"]);
    assert_eq!((&listed[0]["name"], &listed[0]["revision"]), (&"argo".into(), &"4".into()), "{listed}");
    let tested = helm.run(&["test", "argo", "--logs", "--timeout=30s"]).expect_ok();
    assert!(tested.contains("Succeeded") && tested.contains("test of revision"), "{tested}");
    let values = helm.json(&["get", "values", "argo", "--all"]);
    assert_eq!(values["crew"], 2, "{values}");

    let _ = helm.run(&["uninstall", "argo", "--wait", "--timeout=30s"]).expect_ok();
    assert_eq!(
        (cluster.get("boats.example.com/argo"), cluster.get("configmap/argo")),
        (Value::Null, Value::Null)
    );
    assert_eq!(helm.json(&["list"]), serde_json::json!([]));
    let definitions = cluster.get("crd/boats.example.com");
    assert_eq!(definitions["spec"]["group"], "example.com", "helm leaves definitions: {definitions}");
}

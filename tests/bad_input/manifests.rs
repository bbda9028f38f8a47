//! Manifests that the API server refuses, as upstream words it.

use super::{possible, simple};
use trine_tests::Cluster;

#[test]
fn an_invalid_manifest_is_refused_with_the_field_that_is_wrong() {
    if !possible("an_invalid_manifest_is_refused_with_the_field_that_is_wrong") {
        return;
    }
    let cluster = Cluster::up();
    let good = simple("p", "[/x]");
    let twice = good.replace("containers: [", "containers: [{name: main, image: other}, ");
    let unknown = good.replace("spec:\n", "spec:\n  nonsense: 1\n");
    let wrong_type = good.replace("PeriodSeconds: 1", "PeriodSeconds: [1]");
    let no_image = good.replace("image: 'trine.local/busybox:1', ", "");
    let bad_name = good.replace("name: p}", "name: Not_A_Name}");
    let rows = [
        ("unknown field", unknown, "unknown field \"spec.nonsense\""),
        ("wrong type", wrong_type, "terminationGracePeriodSeconds"),
        ("two containers of one name", twice, "spec.containers[1].name: Duplicate value: \"main\""),
        ("no image", no_image, "spec.containers[0].image: Required value"),
        ("bad name", bad_name, "metadata.name: Invalid value: \"Not_A_Name\""),
    ];
    for (name, manifest, expected) in rows {
        let said = cluster.apply(&manifest).expect_failure();
        assert!(said.contains(expected), "{name}: {said}");
    }
    assert!(cluster.trine(&["get", "pods"]).err.contains("No resources found"));
}

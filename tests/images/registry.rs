//! Line 3: an image from a real registry by tag and by digest, and a docker archive made by another tool.

use trine_tests::Cluster;
use trine_tests::registry::Registry;

fn pod(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
         containers: [{{name: main, image: '{image}', args: [sleep, '1000']}}]\n"
    )
}

#[test]
fn images_come_from_a_registry_by_tag_and_digest_and_from_an_archive() {
    const TEST: &str = "images_come_from_a_registry_by_tag_and_digest_and_from_an_archive";
    let tools = ["docker-registry", "skopeo", "umoci", "busybox"];
    if !trine_kernel::testing::root(TEST) || !tools.iter().all(|t| trine_kernel::testing::program(TEST, t)) {
        return;
    }
    let registry = Registry::start();
    let image = registry.foreign_image();
    let digest = registry.push(&image, "tools/busybox:1.0");
    let archive = registry.archive(&image, "archived.local/busybox:2");

    let cluster = Cluster::up();
    let by_tag = format!("{}/tools/busybox:1.0", registry.address);
    let by_digest = format!("{}/tools/busybox@{digest}", registry.address);
    let imported = cluster.trine(&["image", "import", &archive.display().to_string()]).expect_ok();
    assert!(imported.contains("archived.local/busybox:2"), "{imported}");
    for (name, image) in [
        ("by-tag", by_tag.as_str()),
        ("by-digest", by_digest.as_str()),
        ("archived", "archived.local/busybox:2"),
    ] {
        let _ = cluster.apply(&pod(name, image)).expect_ok();
    }
    for name in ["by-tag", "by-digest", "archived"] {
        let pod = cluster.wait_running(name);
        let id = pod["status"]["containerStatuses"][0]["imageID"].as_str().unwrap_or_default();
        assert!(id.contains("sha256:"), "{name}: {id:?}");
    }
    let listed = cluster.trine(&["image", "ls"]).expect_ok();
    assert!(listed.contains("tools/busybox:1.0") && listed.contains("archived.local/busybox:2"), "{listed}");
    let unknown =
        cluster.trine(&["image", "pull", &format!("{}/no/such:1", registry.address)]).expect_failure();
    assert!(unknown.contains("no/such") && unknown.to_lowercase().contains("unknown"), "{unknown}");
}

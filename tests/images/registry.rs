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

#[test]
fn an_image_made_of_a_folder_comes_by_way_of_a_mirror_under_its_own_name() {
    const TEST: &str = "an_image_made_of_a_folder_comes_by_way_of_a_mirror_under_its_own_name";
    let tools = ["docker-registry", "skopeo", "busybox"];
    if !trine_kernel::testing::root(TEST) || !tools.iter().all(|t| trine_kernel::testing::program(TEST, t)) {
        return;
    }
    const NAME: &str = "registry.k8s.io/made/app:1";
    let registry = Registry::start();
    let cluster = Cluster::prepared();
    let path = |name: &str| registry.dir().join(name).display().to_string();
    std::fs::create_dir_all(path("tree/bin")).expect("a folder");
    std::fs::copy("/bin/busybox", path("tree/bin/busybox")).expect("busybox is copied");
    let config = r#"{"Entrypoint": ["/bin/busybox"], "User": "7", "Paths": {"/bin": {"uid": 7}}}"#;
    std::fs::write(path("config.json"), config).expect("settings");
    let build = |output: &str| {
        let words = [
            "image",
            "build",
            &path("tree"),
            "--config",
            &path("config.json"),
            "--tag",
            NAME,
            "--output",
            output,
        ];
        cluster.trine(&words).expect_ok()
    };
    let built = build(&path("app.tar"));
    assert_eq!(build(&path("again.tar")), built);
    let digest = registry.push(&format!("oci-archive:{}", path("app.tar")), "made/app:1");
    assert!(built.trim().ends_with(&digest), "{built}: {digest}");

    let hosts = registry.dir().join("hosts/registry.k8s.io");
    std::fs::create_dir_all(&hosts).expect("a folder");
    std::fs::write(hosts.join("hosts.toml"), format!("server = 'http://{}'", registry.address))
        .expect("a file");
    let config = path("hosts");
    let _ = cluster.trine(&["up", "--detach", "--registry-config", &config]).expect_ok();
    let _ = cluster.apply(&pod("mirrored", NAME)).expect_ok();
    let status = cluster.wait_running("mirrored")["status"]["containerStatuses"][0].clone();
    assert_eq!(status["image"], NAME);
    assert!(status["imageID"].as_str().unwrap_or_default().contains("sha256:"), "{status}");
    let user = cluster.trine(&["exec", "mirrored", "--", "/bin/busybox", "id", "-u"]).expect_ok();
    assert_eq!(user.trim(), "7");
    std::fs::write(hosts.join("hosts.toml"), "server = [").expect("a file");
    let broken = cluster
        .trine(&["image", "pull", "registry.k8s.io/made/app:2", "--registry-config", &config])
        .expect_failure();
    assert!(broken.contains("registry.k8s.io/hosts.toml"), "{broken}");
}

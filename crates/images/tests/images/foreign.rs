//! Archives made by other tools: umoci makes an image, skopeo writes it in the forms people have.

use std::path::Path;
use std::process::Command;

use trine_images::Image;
use trine_kernel::testing::{program, root};

use crate::made::{Shop, names};

fn run(program: &str, args: &[&str], dir: &Path) {
    let out = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn check(shop: &Shop, case: &str, image: &Image) {
    let merged = shop.root(case, image).path;
    assert_eq!(names(&merged.join("etc")), ["kept", "new"], "{case}");
    assert_eq!(std::fs::read_to_string(merged.join("etc/new")).unwrap(), "second", "{case}");
    assert_eq!(image.config.entrypoint, ["/bin/app"], "{case}");
    assert_eq!(image.config.user, "1000:1000", "{case}");
}

#[test]
fn images_of_umoci_and_skopeo_are_imported_in_every_form() {
    let test = "images_of_umoci_and_skopeo_are_imported_in_every_form";
    if !root(test) || !program(test, "umoci") || !program(test, "skopeo") {
        return;
    }
    let shop = Shop::new();
    let dir = shop.dir.path();
    std::fs::create_dir_all(dir.join("one/etc")).unwrap();
    std::fs::write(dir.join("one/etc/kept"), "first").unwrap();
    std::fs::write(dir.join("one/etc/gone"), "first").unwrap();
    std::fs::write(dir.join("two"), "second").unwrap();
    run("umoci", &["init", "--layout", "lay"], dir);
    run("umoci", &["new", "--image", "lay:v1"], dir);
    run("umoci", &["insert", "--image", "lay:v1", "one/etc", "/etc"], dir);
    run("umoci", &["insert", "--image", "lay:v1", "two", "/etc/new"], dir);
    run("umoci", &["insert", "--image", "lay:v1", "--whiteout", "/etc/gone"], dir);
    run(
        "umoci",
        &["config", "--image", "lay:v1", "--config.entrypoint", "/bin/app", "--config.user", "1000:1000"],
        dir,
    );
    let copy = |to: &str| {
        run("skopeo", &["--insecure-policy", "copy", "oci:lay:v1", to], dir);
    };
    copy("docker-archive:docker.tar:example.com/made:2");
    copy("oci-archive:oci.tar:example.com/made:3");
    std::fs::write(
        dir.join("docker.tar.gz"),
        crate::made::gzip(&std::fs::read(dir.join("docker.tar")).unwrap()),
    )
    .unwrap();

    for (case, file, tag) in [
        ("layout", "lay", Some("localhost/lay:v1")),
        ("docker", "docker.tar", Some("example.com/made:2")),
        ("oci", "oci.tar", Some("example.com/made:3")),
        ("zipped", "docker.tar.gz", Some("example.com/made:2")),
    ] {
        let images = shop.store.import(dir.join(file)).unwrap();
        assert_eq!(images.len(), 1, "{case}");
        let tag = tag.unwrap();
        assert!(images[0].repo_tags.iter().any(|have| have == tag), "{case}: {:?}", images[0].repo_tags);
        check(&shop, case, &shop.store.status(tag).unwrap().unwrap());
    }
}

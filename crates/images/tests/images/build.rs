//! Images made of a folder: in the store and as an archive, the same each time.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use trine_images::{BuildSpec, ImageStore};
use trine_kernel::testing::{program, root};

use crate::made::{Shop, causes, names};

const SETTINGS: &str = r#"{"Entrypoint": ["/bin/app"], "Cmd": ["run"], "Env": ["A=b"], "User": "1000", "WorkingDir": "/w",
    "ExposedPorts": {"80/tcp": {}}, "Labels": {"a": "b"}, "Paths": {"/w": {"uid": 1000, "gid": 7, "mode": "1777"}}}"#;

fn tree(root: &Path) {
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::create_dir_all(root.join("w")).unwrap();
    std::fs::write(root.join("bin/app"), "app").unwrap();
    std::fs::set_permissions(root.join("bin/app"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    std::fs::hard_link(root.join("bin/app"), root.join("bin/same")).unwrap();
    std::os::unix::fs::symlink("app", root.join("bin/link")).unwrap();
    // A name longer than an old header holds.
    std::fs::write(root.join("w").join("n".repeat(150)), "long").unwrap();
}

fn check(store: &ImageStore, merged: &Path) {
    let image = store.status("made.local/app:1").unwrap().unwrap();
    assert_eq!(image.config.entrypoint, ["/bin/app"]);
    assert_eq!((image.config.user.as_str(), image.config.working_dir.as_str()), ("1000", "/w"));
    assert_eq!(image.config.exposed_ports, ["80/tcp"]);
    assert_eq!(names(&merged.join("bin")), ["app", "link", "same"]);
    let app = merged.join("bin/app").metadata().unwrap();
    assert_eq!((app.mode() & 0o7777, app.uid(), app.nlink()), (0o4755, 0, 2));
    assert_eq!(std::fs::read_link(merged.join("bin/link")).unwrap(), Path::new("app"));
    let w = merged.join("w").metadata().unwrap();
    assert_eq!((w.mode() & 0o7777, w.uid(), w.gid()), (0o1777, 1000, 7));
    assert_eq!(std::fs::read_to_string(merged.join("w").join("n".repeat(150))).unwrap(), "long");
}

#[test]
fn a_folder_makes_the_same_image_in_the_store_and_as_an_archive() {
    let test = "a_folder_makes_the_same_image_in_the_store_and_as_an_archive";
    if !root(test) {
        return;
    }
    let shop = Shop::new();
    let (one, two) = (shop.path("one"), shop.path("two"));
    tree(&one);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    tree(&two);
    let spec = |dir: &Path| BuildSpec::of_tree("made.local/app:1", dir, SETTINGS).unwrap();
    let built = spec(&one).write_archive(&shop.path("one.tar")).unwrap();
    assert_eq!(spec(&two).write_archive(&shop.path("two.tar")).unwrap(), built);
    let bytes = |name: &str| std::fs::read(shop.path(name)).unwrap();
    assert!(bytes("one.tar") == bytes("two.tar"), "two archives of the same files differ");
    assert!(!names(shop.dir.path()).iter().any(|name| name.ends_with(".layer") || name.ends_with(".new")));

    let image = shop.store.build(&spec(&one)).unwrap();
    assert_eq!(image.id, built.id);
    check(&shop.store, &shop.root("made", &image).path);
    shop.store.remove_snapshot("made").unwrap();
    shop.store.remove(&image.id).unwrap();
    let imported = shop.store.import(shop.path("two.tar")).unwrap().remove(0);
    assert_eq!(
        (&imported.id, imported.repo_tags.as_slice()),
        (&built.id, &["made.local/app:1".to_owned()][..])
    );
    check(&shop.store, &shop.root("imported", &imported).path);
}

#[test]
fn other_tools_read_the_archive() {
    let test = "other_tools_read_the_archive";
    if !program(test, "skopeo") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    tree(&dir.path().join("tree"));
    let archive = dir.path().join("app.tar");
    let spec = BuildSpec::of_tree("made.local/app:1", dir.path().join("tree"), SETTINGS).unwrap();
    let built = spec.write_archive(&archive).unwrap();
    let output = std::process::Command::new("skopeo")
        .args(["--insecure-policy", "inspect", &format!("oci-archive:{}", archive.display())])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(&built.digest), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn settings_for_a_path_that_is_not_there_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    tree(&dir.path().join("tree"));
    let archive = dir.path().join("app.tar");
    let settings = r#"{"Paths": {"/absent": {"uid": 1}}}"#;
    let spec = BuildSpec::of_tree("made.local/app:1", dir.path().join("tree"), settings).unwrap();
    let said = causes(&spec.write_archive(&archive).unwrap_err());
    assert!(said.contains("/absent") && said.contains("made.local/app:1"), "{said}");
    assert_eq!(names(dir.path()), ["tree"]);
}

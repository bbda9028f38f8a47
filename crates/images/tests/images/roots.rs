//! Containers' roots: mounted, apart from one another, and gone without a trace.

use trine_images::{BuildSpec, Fault, ImageStore, Options};
use trine_kernel::testing::root;

use crate::made::{Layer, Shop, causes, names};

#[test]
fn containers_of_one_image_do_not_see_each_others_writes() {
    if !root("containers_of_one_image_do_not_see_each_others_writes") {
        return;
    }
    let shop = Shop::new();
    let image = shop.import("t:1", &[Layer::new().dir("etc").file("etc/f", "image").bytes()]);
    let (one, two) = (shop.root("one", &image), shop.root("two", &image));
    std::fs::write(one.path.join("etc/f"), "mine").unwrap();
    std::fs::write(one.path.join("new"), vec![1; 100_000]).unwrap();
    assert_eq!(std::fs::read_to_string(two.path.join("etc/f")).unwrap(), "image");
    assert_eq!(shop.root("one", &image), one, "preparing again gives the same root");
    assert_eq!(std::fs::read_to_string(one.path.join("etc/f")).unwrap(), "mine");
    let usage = shop.store.snapshot_usage("one").unwrap();
    assert!(usage.bytes >= 100_000 && usage.inodes == 3, "{usage:?}");
    assert_eq!(shop.store.rootfs("one"), Some(one.clone()));
    assert_eq!(shop.store.snapshots().unwrap().into_iter().collect::<Vec<_>>(), ["one", "two"]);
    for _ in 0..2 {
        shop.store.remove_snapshot("one").unwrap();
        assert!(!one.path.exists());
        assert_eq!(shop.store.rootfs("one"), None);
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(one.path.to_str().unwrap()));
    assert!(mounts.contains(two.path.to_str().unwrap()));
}

#[test]
fn an_image_of_many_layers_is_mounted() {
    if !root("an_image_of_many_layers_is_mounted") {
        return;
    }
    let shop = Shop::new();
    let layers: Vec<Vec<u8>> = (0..150)
        .map(|n| Layer::new().file(&format!("f{n}"), "x").file("last", &n.to_string()).bytes())
        .collect();
    let merged = shop.merged(&layers);
    assert_eq!(names(&merged).len(), 151);
    assert_eq!(std::fs::read_to_string(merged.join("last")).unwrap(), "149");
}

#[test]
fn a_store_with_a_very_long_path_is_mounted_all_the_same() {
    if !root("a_store_with_a_very_long_path_is_mounted_all_the_same") {
        return;
    }
    let shop = Shop::new();
    let archive =
        shop.write("a.tar", &crate::made::docker_archive("t:1", &[Layer::new().file("f", "x").bytes()]));
    let long = (0..6).fold(shop.path("l"), |path, n| path.join(format!("{n}{}", "x".repeat(60))));
    let store = ImageStore::open(&long, Options::default()).unwrap();
    let image = store.import(archive).unwrap().remove(0);
    let prepared = store.prepare("c", &image);
    let read = prepared.as_ref().map(|root| std::fs::read_to_string(root.path.join("f")));
    store.remove_snapshot("c").unwrap();
    assert_eq!(read.unwrap().unwrap(), "x");
}

#[test]
fn layers_stay_while_a_container_uses_them_and_go_with_it() {
    if !root("layers_stay_while_a_container_uses_them_and_go_with_it") {
        return;
    }
    let shop = Shop::new();
    let shared = Layer::new().file("shared", "x").bytes();
    let first = shop.import("one:1", &[shared.clone(), Layer::new().file("a", "x").bytes()]);
    let second = shop.import("two:1", &[shared, Layer::new().file("b", "x").bytes()]);
    assert_eq!(first.layers[0], second.layers[0]);
    assert_eq!(names(&shop.path("images/layers")).len(), 3, "a shared layer is kept once");
    let container = shop.root("c", &first);
    shop.store.remove("one:1").unwrap();
    assert_eq!(shop.store.status("one:1").unwrap(), None);
    // Another process, or the same after a restart, must not take them either.
    drop(ImageStore::open(shop.path("images"), Options::default()).unwrap());
    assert_eq!(std::fs::read_to_string(container.path.join("a")).unwrap(), "x");
    assert_eq!(names(&shop.path("images/layers")).len(), 3);
    shop.store.remove_snapshot("c").unwrap();
    assert_eq!(names(&shop.path("images/layers")).len(), 2);
    let gone = shop.store.prepare("d", &first).unwrap_err();
    assert_eq!(gone.fault(), Fault::NotFound);
    assert!(causes(&gone).contains("not present"), "{}", causes(&gone));
    shop.store.remove(&second.id).unwrap();
    shop.store.remove(&second.id).unwrap();
    shop.assert_empty();
}

#[test]
fn a_container_id_that_is_a_path_is_refused() {
    if !root("a_container_id_that_is_a_path_is_refused") {
        return;
    }
    let shop = Shop::new();
    let image = shop.import("t:1", &[Layer::new().file("f", "x").bytes()]);
    for id in ["../c", "", "a/b", "."] {
        assert_eq!(shop.store.prepare(id, &image).unwrap_err().fault(), Fault::Invalid);
        assert_eq!(shop.store.remove_snapshot(id).unwrap_err().fault(), Fault::Invalid);
    }
    assert!(shop.store.snapshots().unwrap().is_empty());
}

#[test]
fn an_image_built_from_files_holds_them_and_is_the_same_each_time() {
    if !root("an_image_built_from_files_holds_them_and_is_the_same_each_time") {
        return;
    }
    let shop = Shop::new();
    let binary = std::env::current_exe().unwrap();
    let spec = BuildSpec {
        reference: "trine.local/demo:1".into(),
        files: vec![(binary.clone(), "/usr/bin/app".into())],
        dirs: vec![("/tmp".into(), 0o1777), ("/var/data".into(), 0o750)],
        texts: vec![("/etc/passwd".into(), "root:x:0:0::/:/\n".into(), 0o644)],
        entrypoint: vec!["/usr/bin/app".into()],
        env: vec!["A=b".into()],
        ..BuildSpec::default()
    };
    let image = shop.store.build(&spec).unwrap();
    assert_eq!(shop.store.build(&spec).unwrap(), image);
    assert_eq!(image.repo_tags, ["trine.local/demo:1"]);
    assert_eq!(image.config.entrypoint, ["/usr/bin/app"]);
    assert_eq!(names(&shop.path("images/layers")).len(), 1);
    let merged = shop.root("c", &image).path;
    assert_eq!(std::fs::read(merged.join("usr/bin/app")).unwrap(), std::fs::read(&binary).unwrap());
    let run = std::process::Command::new(merged.join("usr/bin/app")).arg("--list").output().unwrap();
    assert!(run.status.success());
    let mode =
        |name: &str| std::os::unix::fs::MetadataExt::mode(&merged.join(name).metadata().unwrap()) & 0o7777;
    assert_eq!(
        (mode("tmp"), mode("var/data"), mode("var"), mode("etc/passwd")),
        (0o1777, 0o750, 0o755, 0o644)
    );

    let absent = BuildSpec { files: vec![("/no/such/file".into(), "/x".into())], ..spec };
    let said = causes(&shop.store.build(&absent).unwrap_err());
    assert!(said.contains("/no/such/file") && said.contains("No such file"), "{said}");
}

#[test]
fn an_image_without_layers_is_an_empty_root() {
    if !root("an_image_without_layers_is_an_empty_root") {
        return;
    }
    let shop = Shop::new();
    let merged = shop.merged(&[]);
    assert_eq!(names(&merged), [""; 0]);
    std::fs::write(merged.join("f"), "x").unwrap();
}

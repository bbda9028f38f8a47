//! Bad input: every case is refused with words that name the layer and the entry, or does no harm; nothing outside of
//! the layer is touched, and nothing of a refused image stays.

use tar::EntryType;
use trine_kernel::testing::root;

use crate::made::{
    FOLDER, Layer, PLAIN, Shop, causes, config, docker_archive, docker_archive_of, gzip, names, sha256,
};

#[test]
fn entries_that_lead_out_of_their_layer_are_refused_by_name() {
    if !root("entries_that_lead_out_of_their_layer_are_refused_by_name") {
        return;
    }
    let shop = Shop::new();
    let victim = shop.write("victim", b"untouched");
    let outside = shop.dir.path().to_str().unwrap().to_owned();
    let v = victim.to_str().unwrap().to_owned();
    let cases = [
        ("dots in a name", Layer::new().file("../victim", "x"), "\"../victim\" climbs out"),
        ("dots deep in a name", Layer::new().file("a/../../../victim", "x"), "climbs out"),
        ("dots in a folder", Layer::new().dir("a/../../b"), "climbs out"),
        ("dots in a whiteout", Layer::new().file("../.wh.victim", ""), "climbs out"),
        ("whiteout of the parent", Layer::new().file("a/.wh...", ""), "whiteout of nothing"),
        ("whiteout of nothing", Layer::new().file("a/.wh.", ""), "whiteout of nothing"),
        (
            "an absolute link as parent",
            Layer::new().link("l", &outside).file("l/victim", "x"),
            "parent \"l\"",
        ),
        ("hard link to outside", Layer::new().hard("h", "../../victim"), "hard link to outside"),
        ("absolute hard link to outside", Layer::new().hard("h", &v), "which is not in the layer"),
        (
            "hard link through a link",
            Layer::new().link("l", "/").hard("h", &format!("l{v}")),
            "which is not in the layer",
        ),
        ("hard link to nothing", Layer::new().hard("h", ""), "without a target"),
        ("a whiteout as a device", Layer::new().entry(EntryType::Char, "w", "0:0", b"", PLAIN), "0:0"),
        ("below a whiteout", Layer::new().file(".wh.a/b", "x"), "below a whiteout"),
        ("a file as parent", Layer::new().file("f", "x").file("f/g", "x"), "parent \"f\""),
        ("a file as root", Layer::new().file("./", "x"), "root"),
        ("an unknown kind", Layer::new().entry(EntryType::new(b'V'), "v", "", b"", PLAIN), "'V'"),
        (
            "a sparse file of the newer form",
            Layer::new().pax("GNU.sparse.major", b"1").file("s", "x"),
            "sparse",
        ),
    ];
    for (case, layer, words) in cases {
        let said = shop.refusal(&[layer.bytes()]);
        assert!(said.contains(words), "{case}: {said}");
        assert!(said.contains("layer0/layer.tar") && said.contains("archive.tar"), "{case}: {said}");
        assert_eq!(std::fs::read(&victim).unwrap(), b"untouched", "{case}");
        assert_eq!(names(shop.dir.path()), ["archive.tar", "images", "victim"], "{case}");
        shop.assert_empty();
    }
}

#[test]
fn links_resolve_inside_the_layer_and_are_never_followed_when_replaced() {
    if !root("links_resolve_inside_the_layer_and_are_never_followed_when_replaced") {
        return;
    }
    let shop = Shop::new();
    let victim = shop.write("victim", b"untouched");
    let layer = Layer::new()
        .dir("etc")
        .link("absolute", "/etc")
        .file("absolute/a", "1")
        .link("up", "../../../../../etc")
        .file("up/b", "2")
        .link("target", victim.to_str().unwrap())
        .file("target", "mine")
        .link("kept", victim.to_str().unwrap())
        .link("loop", "loop");
    let merged = shop.merged(&[layer.bytes()]);
    assert_eq!(names(&merged.join("etc")), ["a", "b"]);
    assert_eq!(std::fs::read(merged.join("target")).unwrap(), b"mine");
    assert_eq!(std::fs::read_link(merged.join("kept")).unwrap(), victim);
    assert_eq!(std::fs::read(&victim).unwrap(), b"untouched");
}

#[test]
fn overlay_attributes_in_an_archive_are_left_out() {
    if !root("overlay_attributes_in_an_archive_are_left_out") {
        return;
    }
    let shop = Shop::new();
    let lower = Layer::new().dir("d").file("d/below", "x");
    let upper = Layer::new().pax("SCHILY.xattr.trusted.overlay.opaque", b"y").dir("d").file("d/above", "x");
    let merged = shop.merged(&[lower.bytes(), upper.bytes()]);
    assert_eq!(names(&merged.join("d")), ["above", "below"]);
}

#[test]
fn a_truncated_archive_names_the_file_and_leaves_nothing() {
    if !root("a_truncated_archive_names_the_file_and_leaves_nothing") {
        return;
    }
    let shop = Shop::new();
    let layer = Layer::new().dir("d").file("d/f", &"text ".repeat(4000)).bytes();
    let whole = docker_archive("t:1", &[layer]);
    let zipped = gzip(&whole);
    for (kind, bytes) in [("tar", &whole), ("gzip", &zipped)] {
        for tenth in 0..10 {
            let cut = bytes.len() * tenth / 10;
            let path = shop.write("cut.tar", &bytes[..cut]);
            let said = causes(&shop.store.import(&path).unwrap_err());
            assert!(said.contains("cut.tar"), "{kind} at {cut}: {said}");
            shop.assert_empty();
        }
    }
    let path = shop.write("cut.tar", &zipped[..zipped.len() / 2]);
    let said = causes(&shop.store.import(path).unwrap_err());
    assert!(said.contains("truncated or damaged"), "{said}");
}

#[test]
fn a_layer_that_is_cut_or_changed_inside_a_whole_archive_is_refused() {
    if !root("a_layer_that_is_cut_or_changed_inside_a_whole_archive_is_refused") {
        return;
    }
    let shop = Shop::new();
    let layer = Layer::new().file("f", &"text ".repeat(4000)).bytes();
    let config = config(std::slice::from_ref(&layer));
    let mut changed = layer.clone();
    changed[600] ^= 1;
    for (case, bytes, words) in [
        ("cut in a file", layer[..4096].to_vec(), "truncated"),
        ("cut between blocks", layer[..layer.len() - 512].to_vec(), "diff id"),
        ("empty", vec![], "diff id"),
        ("changed", changed, "diff id"),
        ("cut gzip", gzip(&layer)[..60].to_vec(), "truncated"),
        ("not an archive", vec![b'x'; 2000], "truncated or damaged"),
        ("xz", [0xfd, b'7', b'z', b'X', b'Z', 0, 1, 2].to_vec(), "xz compression"),
    ] {
        let path = shop.write("a.tar", &docker_archive_of("t:1", &config, &[bytes]));
        let said = causes(&shop.store.import(path).unwrap_err());
        assert!(said.contains(words) && said.contains("layer0/layer.tar"), "{case}: {said}");
        shop.assert_empty();
    }
}

#[test]
fn files_that_are_no_images_are_refused_in_words() {
    if !root("files_that_are_no_images_are_refused_in_words") {
        return;
    }
    let shop = Shop::new();
    let layer = Layer::new().file("f", "x").bytes();
    let tar = |members: &[(&str, &[u8])]| {
        let mut layer = Layer::new();
        for (name, bytes) in members {
            layer = layer.entry(EntryType::Regular, name, "", bytes, PLAIN);
        }
        layer.bytes()
    };
    let two = config(&[layer.clone(), layer.clone()]);
    for (case, bytes, words) in [
        ("a tar of something else", layer.clone(), "neither a docker archive nor an OCI layout"),
        ("an empty file", vec![], "neither"),
        ("a manifest that is no JSON", tar(&[("manifest.json", b"{")]), "manifest.json is not valid"),
        ("no image", tar(&[("manifest.json", b"[]")]), "names no image"),
        (
            "a missing configuration",
            tar(&[("manifest.json", br#"[{"Config":"c.json","Layers":[]}]"#)]),
            "c.json is missing",
        ),
        (
            "a configuration outside",
            tar(&[("manifest.json", br#"[{"Config":"../../etc/hostname","Layers":[]}]"#)]),
            "is missing",
        ),
        (
            "layers that do not add up",
            docker_archive_of("t:1", &two, std::slice::from_ref(&layer)),
            "2 layers, it has 1",
        ),
        (
            "an index with a path for a digest",
            tar(&[("index.json", br#"{"manifests":[{"digest":"sha256:../../../etc/passwd"}]}"#)]),
            "no sha256",
        ),
    ] {
        let path = shop.write("a.tar", &bytes);
        let said = causes(&shop.store.import(path).unwrap_err());
        assert!(said.contains(words) && said.contains("a.tar"), "{case}: {said}");
        shop.assert_empty();
    }
    let said = causes(&shop.store.import(shop.path("absent.tar")).unwrap_err());
    assert!(said.contains("absent.tar") && said.contains("No such file"), "{said}");
}

#[test]
fn a_layout_whose_blob_is_not_what_it_is_named_is_refused() {
    if !root("a_layout_whose_blob_is_not_what_it_is_named_is_refused") {
        return;
    }
    let shop = Shop::new();
    let layer = Layer::new().file("f", "x").bytes();
    let config = config(std::slice::from_ref(&layer));
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "config": {"digest": sha256(&config)},
        "layers": [{"digest": sha256(&layer)}],
    });
    let manifest = manifest.to_string().into_bytes();
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [{"digest": sha256(&manifest)}]});
    let blobs = shop.path("layout/blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(shop.path("layout/index.json"), index.to_string()).unwrap();
    let put = |bytes: &[u8], as_if: &[u8]| {
        std::fs::write(blobs.join(sha256(as_if).trim_start_matches("sha256:")), bytes).unwrap();
    };
    put(&manifest, &manifest);
    put(&config, &config);
    let mut other = layer.clone();
    other[520] ^= 1;
    put(&other, &layer);
    let said = causes(&shop.store.import(shop.path("layout")).unwrap_err());
    assert!(said.contains("digest is sha256"), "{said}");
    put(b"{}", &config);
    let said = causes(&shop.store.import(shop.path("layout")).unwrap_err());
    assert!(said.contains("its content is sha256"), "{said}");
    shop.assert_empty();
    put(&config, &config);
    put(&layer, &layer);
    assert_eq!(shop.store.import(shop.path("layout")).unwrap()[0].id, sha256(&config));
}

#[test]
fn a_deep_tree_and_long_names_do_no_harm() {
    if !root("a_deep_tree_and_long_names_do_no_harm") {
        return;
    }
    let shop = Shop::new();
    let deep = (0..40).map(|_| "d").collect::<Vec<_>>().join("/");
    let layer = Layer::new()
        .entry(EntryType::Directory, &deep, "", b"", FOLDER)
        .file("f", "x")
        .dir("f")
        .file("f/g", "y");
    let merged = shop.merged(&[layer.bytes()]);
    assert!(merged.join(deep).is_dir());
    assert_eq!(
        std::fs::read(merged.join("f/g")).unwrap(),
        b"y",
        "a later entry takes an earlier one's place"
    );
}

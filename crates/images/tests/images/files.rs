//! What layers hold arrives as it was: owners, modes, times, attributes, links, devices, holes; and what a layer
//! hides is hidden.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use tar::EntryType;
use trine_kernel::testing::root;

use crate::made::{FOLDER, Layer, Look, PLAIN, Shop, names};

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let n = rustix::fs::lgetxattr(path, name, &mut value).ok()?;
    value.truncate(n);
    Some(value)
}

#[test]
fn owners_modes_times_and_attributes_arrive() {
    if !root("owners_modes_times_and_attributes_arrive") {
        return;
    }
    let shop = Shop::new();
    // cap_net_bind_service=ep, as the kernel stores it (revision 2).
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let layer = Layer::new()
        .entry(EntryType::Directory, "./", "", b"", Look { mode: 0o711, uid: 1, gid: 2 })
        .entry(EntryType::Directory, "tmp", "", b"", Look { mode: 0o1777, uid: 0, gid: 0 })
        .file("tmp/late", "x")
        .entry(EntryType::Regular, "su", "", b"x", Look { mode: 0o4755, uid: 1000, gid: 2000 })
        .pax("SCHILY.xattr.security.capability", &capability)
        .entry(EntryType::Regular, "cap", "", b"x", Look { mode: 0o755, uid: 7, gid: 7 })
        .pax("mtime", b"1500000000.5")
        .file("timed", "x")
        .entry(EntryType::Symlink, "link", "nowhere", b"", Look { mode: 0o777, uid: 5, gid: 6 })
        .entry(EntryType::Char, "null", "1:3", b"", Look { mode: 0o666, uid: 0, gid: 0 })
        .entry(EntryType::Fifo, "pipe", "", b"", Look { mode: 0o620, uid: 0, gid: 5 })
        .pax("uid", b"3000000")
        .file("big-owner", "x");
    let merged = shop.merged(&[layer.bytes()]);
    let look = |name: &str| {
        let stat = merged.join(name).symlink_metadata().unwrap();
        (stat.mode() & 0o7777, stat.uid(), stat.gid(), stat.mtime())
    };
    let time = 1_600_000_000;
    assert_eq!(look("."), (0o711, 1, 2, look(".").3));
    assert_eq!(look("tmp"), (0o1777, 0, 0, time), "a folder's time is set after its files");
    assert_eq!(look("su"), (0o4755, 1000, 2000, time));
    assert_eq!(look("link").1, 5);
    assert_eq!(look("link").3, time);
    assert_eq!(look("null"), (0o666, 0, 0, time));
    assert!(merged.join("null").metadata().unwrap().file_type().is_char_device());
    assert_eq!(merged.join("null").metadata().unwrap().rdev(), rustix::fs::makedev(1, 3));
    assert!(merged.join("pipe").metadata().unwrap().file_type().is_fifo());
    assert_eq!(look("pipe"), (0o620, 0, 5, time));
    assert_eq!(look("big-owner").1, 3_000_000);
    assert_eq!(xattr(&merged.join("cap"), "security.capability").as_deref(), Some(&capability[..]));
    let timed = merged.join("timed").metadata().unwrap();
    assert_eq!((timed.mtime(), timed.mtime_nsec()), (1_500_000_000, 500_000_000));
}

#[test]
fn hard_links_share_their_file_and_zeros_take_no_room() {
    if !root("hard_links_share_their_file_and_zeros_take_no_room") {
        return;
    }
    let shop = Shop::new();
    let mut holes = vec![0; 1 << 20];
    holes[500_000] = 1;
    let layer = Layer::new()
        .dir("a")
        .file("a/one", "text")
        .hard("two", "a/one")
        .hard("a/one", "./a/one")
        .hard("three", "/two")
        .entry(EntryType::Regular, "holes", "", &holes, PLAIN);
    let image = shop.import("t:1", &[layer.bytes()]);
    let merged = shop.root("c", &image).path;
    let inode = |name: &str| merged.join(name).metadata().unwrap().ino();
    assert_eq!(inode("a/one"), inode("two"));
    assert_eq!(inode("three"), inode("two"));
    assert_eq!(merged.join("two").metadata().unwrap().nlink(), 3);
    assert_eq!(std::fs::read(merged.join("holes")).unwrap(), holes);
    assert!(merged.join("holes").metadata().unwrap().blocks() * 512 < 64 << 10);
}

#[test]
fn whiteouts_hide_what_is_below_and_only_that() {
    if !root("whiteouts_hide_what_is_below_and_only_that") {
        return;
    }
    let below = || {
        Layer::new().dir("d").file("d/a", "1").file("d/b", "1").dir("d/s").file("d/s/x", "1").file("f", "1")
    };
    for (case, above, top, in_d) in [
        ("a file", Layer::new().file(".wh.f", ""), vec!["d"], vec!["a", "b", "s"]),
        ("a folder", Layer::new().file(".wh.d", ""), vec!["f"], vec![]),
        ("a file in a folder", Layer::new().file("d/.wh.a", ""), vec!["d", "f"], vec!["b", "s"]),
        ("what is not there", Layer::new().file("d/.wh.zz", ""), vec!["d", "f"], vec!["a", "b", "s"]),
        ("all in a folder", Layer::new().dir("d").file("d/.wh..wh..opq", ""), vec!["d", "f"], vec![]),
        (
            "all in a folder but what comes anew",
            Layer::new().file("d/.wh..wh..opq", "").file("d/c", "2"),
            vec!["d", "f"],
            vec!["c"],
        ),
        (
            "all in a folder, said last",
            Layer::new().dir("d").file("d/c", "2").file("d/.wh..wh..opq", ""),
            vec!["d", "f"],
            vec!["c"],
        ),
        (
            "a folder that comes anew",
            Layer::new().file(".wh.d", "").dir("d").file("d/c", "2"),
            vec!["d", "f"],
            vec!["c"],
        ),
        (
            "a folder that comes anew unsaid",
            Layer::new().file(".wh.d", "").file("d/c", "2"),
            vec!["d", "f"],
            vec!["c"],
        ),
        (
            "a folder that came anew before",
            Layer::new().dir("d").file("d/c", "2").file(".wh.d", ""),
            vec!["d", "f"],
            vec!["c"],
        ),
        (
            "a file that comes anew",
            Layer::new().file(".wh.f", "").file("f", "2"),
            vec!["d", "f"],
            vec!["a", "b", "s"],
        ),
        ("a folder by a file", Layer::new().file(".wh.d", "").file("d", "2"), vec!["d", "f"], vec![]),
        (
            "older bookkeeping",
            Layer::new().dir(".wh..wh.plnk").file(".wh..wh.plnk/1", "x"),
            vec!["d", "f"],
            vec!["a", "b", "s"],
        ),
    ] {
        let shop = Shop::new();
        let merged = shop.merged(&[below().bytes(), above.bytes()]);
        assert_eq!(names(&merged), top, "{case}");
        let inside = if merged.join("d").is_dir() { names(&merged.join("d")) } else { vec![] };
        assert_eq!(inside, in_d, "{case}");
    }
}

#[test]
fn folders_that_a_layer_only_implies_look_like_those_below() {
    if !root("folders_that_a_layer_only_implies_look_like_those_below") {
        return;
    }
    let shop = Shop::new();
    let bottom = Layer::new()
        .entry(EntryType::Directory, "./", "", b"", Look { mode: 0o750, uid: 3, gid: 3 })
        .entry(EntryType::Directory, "tmp", "", b"", Look { mode: 0o1777, uid: 9, gid: 8 });
    let middle = Layer::new().entry(EntryType::Directory, "other", "", b"", FOLDER);
    let top = Layer::new().file("tmp/x", "1").file("fresh/y", "1");
    let merged = shop.merged(&[bottom.bytes(), middle.bytes(), top.bytes()]);
    let look = |name: &str| {
        let stat = merged.join(name).metadata().unwrap();
        (stat.mode() & 0o7777, stat.uid(), stat.gid())
    };
    assert_eq!(look("tmp"), (0o1777, 9, 8));
    assert_eq!(look("."), (0o750, 3, 3));
    assert_eq!(look("fresh"), (0o755, 0, 0));
}

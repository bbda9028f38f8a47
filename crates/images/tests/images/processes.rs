//! Several processes on one store, some of which die.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use trine_images::{ImageStore, Options};
use trine_kernel::testing::root;

use crate::made::{Layer, Shop, docker_archive, names};

const ROLE: &str = "TRINE_IMAGES_TEST_CHILD";

/// What a child process does: imports the archives of a folder again and again, or each once.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (how, dir) = role.split_once(' ').unwrap();
    let dir = Path::new(dir);
    let store = ImageStore::open(dir.join("images"), Options::default()).unwrap();
    let archives: Vec<PathBuf> =
        names(&dir.join("archives")).iter().map(|name| dir.join("archives").join(name)).collect();
    loop {
        for archive in &archives {
            for image in store.import(archive).unwrap() {
                if how == "forever" {
                    store.remove(&image.id).unwrap();
                }
            }
        }
        if how == "once" {
            return;
        }
    }
}

/// A child that is killed when the test ends, failed or not.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(how: &str, dir: &Path) -> Killed {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::child", "--nocapture", "--test-threads=1"])
        .env(ROLE, format!("{how} {}", dir.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    Killed(child)
}

fn archives(shop: &Shop, count: usize) {
    std::fs::create_dir(shop.path("archives")).unwrap();
    let base = Layer::new().file("base", &"x".repeat(1 << 20)).bytes();
    for n in 0..count {
        let own = Layer::new().file(&format!("f{n}"), &"y".repeat(1 << 20)).bytes();
        let bytes = docker_archive(&format!("app{n}:1"), &[base.clone(), own]);
        std::fs::write(shop.path("archives").join(n.to_string()), bytes).unwrap();
    }
}

#[test]
fn what_one_process_imports_the_others_see_and_nothing_is_lost() {
    if !root("what_one_process_imports_the_others_see_and_nothing_is_lost") {
        return;
    }
    let shop = Shop::new();
    archives(&shop, 6);
    let mut children: Vec<Killed> = (0..3).map(|_| start("once", shop.dir.path())).collect();
    let mine = shop.import("mine:1", &[Layer::new().file("m", "x").bytes()]);
    for child in &mut children {
        assert!(child.0.wait().unwrap().success());
    }
    let images = shop.store.list().unwrap();
    assert_eq!(images.len(), 7);
    assert!(images.contains(&mine));
    assert_eq!(names(&shop.path("images/layers")).len(), 8, "the shared base is kept once");
    let merged = shop.root("c", &shop.store.status("app3:1").unwrap().unwrap()).path;
    assert_eq!(names(&merged), ["base", "f3"]);
    for image in images {
        shop.store.remove(&image.id).unwrap();
    }
    shop.store.remove_snapshot("c").unwrap();
    shop.assert_empty();
}

#[test]
fn a_process_killed_at_any_instant_leaves_nothing_half_made() {
    if !root("a_process_killed_at_any_instant_leaves_nothing_half_made") {
        return;
    }
    let shop = Shop::new();
    archives(&shop, 2);
    for round in 0..12u64 {
        let child = start("forever", shop.dir.path());
        let sessions = shop.path("images/sessions");
        let deadline = Instant::now() + Duration::from_secs(20);
        while names(&sessions).len() < 2 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        std::thread::sleep(Duration::from_millis(7 * round));
        drop(child);
        let again = ImageStore::open(shop.path("images"), Options::default()).unwrap();
        assert_eq!(names(&sessions).len(), 2, "the dead one's session is gone, those of the living stay");
        for image in again.list().unwrap() {
            for layer in &image.layers {
                let path = shop.path("images/layers").join(layer.trim_start_matches("sha256:"));
                assert_eq!(names(&path), ["fs", "layer.json"]);
                assert_eq!(names(&path.join("fs")).len(), 1, "a layer is whole or not there");
            }
            again.remove(&image.id).unwrap();
        }
        drop(again);
        shop.assert_empty();
    }
}

//! Image archives that are cut short or hostile. What each hostile entry does to a layer is tested beside the unpacker;
//! here is what a user sees.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::possible;
use trine_tests::Cluster;
use trine_tests::registry::Registry;

#[test]
fn a_cut_or_hostile_archive_is_refused_and_leaves_nothing() {
    const TEST: &str = "a_cut_or_hostile_archive_is_refused_and_leaves_nothing";
    let tools = ["docker-registry", "skopeo", "umoci", "python3"];
    if !possible(TEST) || !tools.iter().all(|t| trine_kernel::testing::program(TEST, t)) {
        return;
    }
    let cluster = Cluster::up();
    let registry = Registry::start();
    let archive = registry.archive(&registry.foreign_image(), "cut.local/busybox:1");
    let bytes = std::fs::read(&archive).unwrap();
    let cut = registry.dir().join("cut.tar");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let said = cluster.trine(&["image", "import", &cut.display().to_string()]).expect_failure();
    assert!(said.contains("cut.tar"), "{said}");

    let outside = registry.dir().join("outside");
    std::fs::write(&outside, "untouched").unwrap();
    for (name, entry) in [("dots", "../../../../../../tmp/trine-test-escaped"), ("hardlink", "link")] {
        let hostile = hostile(registry.dir(), name, entry, &outside);
        let said = cluster.trine(&["image", "import", &hostile.display().to_string()]).expect_failure();
        assert!(said.contains(entry), "{name}: the entry is named: {said}");
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "untouched");
    assert!(!Path::new("/tmp/trine-test-escaped").exists());
    assert!(!cluster.trine(&["image", "ls"]).expect_ok().contains("hostile"));
}

/// A docker archive whose only layer has one hostile entry; Python's tarfile writes any name.
fn hostile(dir: &Path, name: &str, entry: &str, outside: &Path) -> PathBuf {
    let path = dir.join(format!("{name}.tar"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bad_input/hostile.py");
    let status =
        Command::new("python3").arg(script).arg(&path).args([name, entry]).arg(outside).status().unwrap();
    assert!(status.success());
    path
}

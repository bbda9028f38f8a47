//! A backup: the store is saved while its cluster runs, and is the same in another data dir.

use trine_tests::Cluster;

const KEPT: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, labels: {app: web}}
data: {greeting: hello}
"#;

#[test]
fn what_was_saved_is_there_after_a_restore() {
    if !trine_kernel::testing::root("what_was_saved_is_there_after_a_restore") {
        return;
    }
    let first = Cluster::up();
    let _ = first.apply(KEPT).expect_ok();
    let before = first.get("configmap/kept");
    assert_eq!(before["data"]["greeting"], "hello");
    let file = first.dir().with_extension("snapshot").display().to_string();
    let _ = first.trine(&["snapshot", "save", &file]).expect_ok();
    let _ = first.trine(&["delete", "configmap/kept"]).expect_ok();
    let refused = first.trine(&["snapshot", "restore", &file]).expect_failure();
    assert!(refused.contains("stop it first"), "a store in use is left alone: {refused}");

    let second = Cluster::prepared();
    let _ = second.trine(&["snapshot", "restore", &file]).expect_ok();
    second.start();
    assert_eq!(second.get("configmap/kept"), before, "uid and revision, too");

    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let third = Cluster::prepared();
    let refused = third.trine(&["snapshot", "restore", &file]).expect_failure();
    assert!(!third.dir().join("store.redb").exists(), "nothing of a damaged file is taken: {refused}");
}

//! Line 1 of the promise: the demo works, and nothing of it is left.

use std::process::Command;

use trine_tests::program;

#[test]
fn the_demo_holds_and_leaves_nothing() {
    if !trine_kernel::testing::root("the_demo_holds_and_leaves_nothing") {
        return;
    }
    let output = Command::new(program()).arg("demo").output().expect("the demo starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for step in
        ["RunPodSandbox", "ADD", "CreateVolume", "NodeStageVolume", "NodePublishVolume", "StartContainer"]
    {
        assert!(text.contains(step), "the trace has no {step}:\n{text}");
    }
    assert!(text.contains("reads the note back"), "{text}");
    assert!(text.contains("nothing is left of it"), "{text}");
}

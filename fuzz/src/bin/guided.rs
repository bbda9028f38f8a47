//! One target (`TRINE_FUZZ`), steered by coverage. Started by `cargo xtask fuzz`.

#![no_main]
#![allow(clippy::expect_used, reason = "without a target there is nothing to do")]

use std::sync::LazyLock;

static TARGET: LazyLock<trine_fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("TRINE_FUZZ").expect("TRINE_FUZZ names the target");
    trine_fuzz::target(&name).expect("TRINE_FUZZ is one of the targets")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = (TARGET.read)(bytes);
});

//! In a debug build a test may let this process die, from the folder that `TRINE_TEST_DIES` names.

/// From now on, if a test has said where it arms places.
pub fn where_a_test_says() {
    if let Some(folder) = std::env::var_os("TRINE_TEST_DIES") {
        trine_kernel::testing::deaths::obey(folder.into());
    }
}

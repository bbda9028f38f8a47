//! Trine.
fn main() {}

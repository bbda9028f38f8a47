//! Are its processes running?

//! What does the API server do with bytes that nobody meant?
//!
//! Each [`Target`] reads bytes as a part of the server does, and asserts what must hold of whatever it could read. The
//! ordinary tests replay the corpus (`fuzz/corpus/TARGET`) and mutations of it; `cargo xtask fuzz TARGET` searches on for ten
//! minutes, steered by coverage.
//!
//! - [`documents`] strict JSON, YAML, protobuf: bodies of requests
//! - [`apply`] server-side apply: a series of writes
//! - [`rules`] CEL: a rule and the object it judges
//! - [`selectors`] label and field selectors

#![allow(clippy::expect_used, reason = "a broken promise has to stop the search")]

pub mod apply;
pub mod documents;
pub mod rules;
pub mod selectors;

/// A reader, and what it must hold to.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder under `corpus`.
    pub name: &'static str,
    /// Reads bytes. True if they could be read; false if they were refused, which is as good.
    ///
    /// Panics if something does not hold that must.
    pub read: fn(&[u8]) -> bool,
}

/// All targets.
pub const TARGETS: [Target; 6] = [
    Target { name: "json", read: documents::json },
    Target { name: "yaml", read: documents::yaml },
    Target { name: "protobuf", read: documents::protobuf },
    Target { name: "apply", read: apply::apply },
    Target { name: "cel", read: rules::rule },
    Target { name: "selectors", read: selectors::selector },
];

/// The target of a name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|t| t.name == name)
}

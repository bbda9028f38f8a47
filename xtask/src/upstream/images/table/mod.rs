//! Which images there are, and what each is made of. What a suite looks for inside an image decides.
//!
//! - `plain` a program or a shell, and nothing else
//! - `servers` what is asked over the network, `tools` what looks at or strains a node
//! - `ours` what our own manifests name
//! - `marked` those of critest, told apart by a file or their user

/// `config` of an image with the usual PATH and these fields.
macro_rules! config {
    ($rest:literal) => {
        concat!(
            r#"{"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]"#,
            ", ",
            $rest,
            "}"
        )
    };
}

mod marked;
pub mod ours;
mod plain;
mod servers;
mod tools;

use super::recipe::Recipe;

/// All images, those that others are made of first.
pub fn recipes() -> impl Iterator<Item = &'static Recipe> {
    [plain::RECIPES, servers::RECIPES, tools::RECIPES, marked::RECIPES, ours::OF_SUITES].into_iter().flatten()
}

/// Images that suites name and that are not made, and why.
pub const ABSENT: &[(&str, &str)] = &[
    (
        "gcr.io/k8s-staging-cri-tools/test-image-digest@sha256:9700f9a2f5bf2c45f2f605a0bd3bce7cf37420ec9d3ed50ac2758413308766bf",
        "pinned by digest: only the very bytes that upstream published will do",
    ),
    ("gcr.io/k8s-authenticated-test/agnhost:2.6", "upstream's is private; specs want its pull to be refused"),
    ("invalid.registry.k8s.io/invalid/alpine:3.1", "specs want it to be absent"),
    (
        "registry.k8s.io/e2e-test-images/volume/nfs:1.6.0",
        "an NFS server in the kernel, which a container cannot bring along",
    ),
    (
        "registry.k8s.io/e2e-test-images/volume/iscsi:2.7",
        "an iSCSI target in the kernel, which a container cannot bring along",
    ),
    ("registry.k8s.io/sig-storage/nfs-provisioner:v4.0.8", "it needs the NFS server"),
    ("registry.k8s.io/e2e-test-images/node-perf/*", "benchmarks, of no suite that is run"),
    ("registry.k8s.io/e2e-test-images/perl:5.26", "no spec of 1.37 uses it"),
];

/// The recipe of that name.
#[must_use]
pub fn recipe(name: &str) -> Option<&'static Recipe> {
    recipes().find(|recipe| recipe.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::images::recipe::Part::{Go, Of, Registry};
    use std::collections::BTreeSet;

    #[test]
    fn every_image_is_there_once_has_settings_and_is_made_of_what_there_is() {
        let mut names = BTreeSet::new();
        let mut references = BTreeSet::new();
        for recipe in recipes() {
            assert!(names.insert(recipe.name), "{}", recipe.name);
            let _: serde_json::Value = serde_json::from_str(recipe.config).expect(recipe.name);
            for reference in recipe.references {
                assert!(references.insert(reference), "{reference}");
                assert!(reference.rsplit('/').next().is_some_and(|last| last.contains(':')), "{reference}");
            }
            for part in recipe.parts {
                if let Of(other) | Registry(_, other, ..) = part {
                    assert!(super::recipe(other).is_some(), "{}: {other}", recipe.name);
                }
            }
        }
    }

    #[test]
    fn every_program_is_a_tool_of_the_module_or_our_own() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/upstream/images");
        let text = std::fs::read_to_string(root.join("go.mod")).expect("go.mod");
        for part in recipes().flat_map(|recipe| recipe.parts) {
            if let Go(package, _) = part {
                let ours = package.strip_prefix("./").is_some_and(|name| root.join(name).is_dir());
                let tool = text.lines().any(|line| line.trim() == *package);
                assert!(ours || tool, "{package}");
            }
        }
    }
}

//! The images of critest that differ in a file or in their user.

use crate::upstream::images::recipe::Part::{Base, Busybox, Text};
use crate::upstream::images::recipe::{Recipe, idle};

/// One of the images that differ in the file that is in them, or in their user.
macro_rules! marked {
    ($name:literal, $references:expr, $config:expr, $uid:literal) => {
        Recipe {
            name: $name,
            references: $references,
            alike: true,
            parts: &[Base, Text(concat!("/", $name), $name, 0o644), Busybox],
            config: $config,
            proof: idle(&[(&["cat", concat!("/", $name)], $name), (&["id", "-u"], $uid)]),
        }
    };
}

/// The images.
pub const RECIPES: &[Recipe] = &[
    marked!(
        "latest",
        &["gcr.io/k8s-staging-cri-tools/test-image-latest:latest"],
        config!(r#""Cmd": ["sh"]"#),
        "0"
    ),
    marked!("test", &["gcr.io/k8s-staging-cri-tools/test-image-tag:test"], config!(r#""Cmd": ["sh"]"#), "0"),
    marked!("all", &["gcr.io/k8s-staging-cri-tools/test-image-tag:all"], config!(r#""Cmd": ["sh"]"#), "0"),
    marked!("one", &["gcr.io/k8s-staging-cri-tools/test-image-1:latest"], config!(r#""Cmd": ["sh"]"#), "0"),
    marked!("two", &["gcr.io/k8s-staging-cri-tools/test-image-2:latest"], config!(r#""Cmd": ["sh"]"#), "0"),
    marked!("three", &["gcr.io/k8s-staging-cri-tools/test-image-3:latest"], config!(r#""Cmd": ["sh"]"#), "0"),
    marked!(
        "tags",
        &[
            "gcr.io/k8s-staging-cri-tools/test-image-tags:1",
            "gcr.io/k8s-staging-cri-tools/test-image-tags:2",
            "gcr.io/k8s-staging-cri-tools/test-image-tags:3",
        ],
        config!(r#""Cmd": ["sh"]"#),
        "0"
    ),
    marked!(
        "user-uid",
        &["gcr.io/k8s-staging-cri-tools/test-image-user-uid:latest"],
        config!(r#""Cmd": ["sh"], "User": "1002""#),
        "1002"
    ),
    marked!(
        "user-username",
        &["gcr.io/k8s-staging-cri-tools/test-image-user-username:latest"],
        config!(r#""Cmd": ["sh"], "User": "www-data""#),
        "33"
    ),
    marked!(
        "user-uid-group",
        &["gcr.io/k8s-staging-cri-tools/test-image-user-uid-group:latest"],
        config!(r#""Cmd": ["sh"], "User": "1003:1004""#),
        "1003"
    ),
    marked!(
        "user-username-group",
        &["gcr.io/k8s-staging-cri-tools/test-image-user-username-group:latest"],
        config!(r#""Cmd": ["sh"], "User": "www-data:1004""#),
        "33"
    ),
    marked!(
        "predefined-group",
        &["gcr.io/k8s-staging-cri-tools/test-image-predefined-group:latest"],
        config!(r#""Cmd": ["sh"], "User": "1000""#),
        "1000"
    ),
];

//! What our own manifests name (`tests/manifests`), made when they are tried.

use crate::upstream::images::recipe::{Part, Recipe, idle};

/// PostgreSQL, as Debian has it.
pub const POSTGRES: Recipe = Recipe {
    name: "postgres",
    references: &["my.local/postgres:15"],
    alike: true,
    parts: &[
        Part::Base,
        Part::Packages(&["postgresql-15"]),
        Part::Text(
            "/etc/passwd",
            "root:x:0:0:root:/root:/bin/sh\npostgres:x:999:999:postgres:/var/lib/postgresql:/bin/sh\n",
            0o644,
        ),
        Part::Text("/etc/group", "root:x:0:\npostgres:x:999:\n", 0o644),
        Part::Text(
            "/usr/local/bin/entrypoint.sh",
            include_str!("../../../../../tests/manifests/database/entrypoint.sh"),
            0o755,
        ),
        Part::Busybox,
    ],
    config: include_str!("../../../../../tests/manifests/database/image.json"),
    proof: idle(&[]),
};

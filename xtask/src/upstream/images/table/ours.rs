//! What our own manifests name (`tests/manifests`), made when they are tried.

use crate::upstream::images::recipe::{Part, Recipe, idle};

/// All of them.
pub const RECIPES: &[Recipe] = &[
    POSTGRES,
    HOSTPATH,
    sidecar(
        "csi-node-driver-registrar",
        &["registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.17.0"],
        &[Part::GoOf(SIDECARS, "./csi-node-driver-registrar", "/csi-node-driver-registrar")],
        config!(r#""Entrypoint": ["/csi-node-driver-registrar"]"#),
    ),
    sidecar(
        "livenessprobe",
        &["registry.k8s.io/sig-storage/livenessprobe:v2.19.0"],
        &[Part::GoOf(SIDECARS, "./livenessprobe", "/livenessprobe")],
        config!(r#""Entrypoint": ["/livenessprobe"]"#),
    ),
    sidecar(
        "csi-attacher",
        &["registry.k8s.io/sig-storage/csi-attacher:v4.12.0"],
        &[Part::GoOf(
            SIDECARS,
            "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher",
            "/csi-attacher",
        )],
        config!(r#""Entrypoint": ["/csi-attacher"]"#),
    ),
    sidecar(
        "csi-provisioner",
        &["registry.k8s.io/sig-storage/csi-provisioner:v6.3.0"],
        &[Part::GoOf(
            SIDECARS,
            "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner",
            "/csi-provisioner",
        )],
        config!(r#""Entrypoint": ["/csi-provisioner"]"#),
    ),
    sidecar(
        "csi-resizer",
        &["registry.k8s.io/sig-storage/csi-resizer:v2.2.0"],
        &[Part::GoOf(
            SIDECARS,
            "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer",
            "/csi-resizer",
        )],
        config!(r#""Entrypoint": ["/csi-resizer"]"#),
    ),
    sidecar(
        "csi-snapshotter",
        &["registry.k8s.io/sig-storage/csi-snapshotter:v8.6.0"],
        &[Part::GoOf(
            SIDECARS,
            "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
            "/csi-snapshotter",
        )],
        config!(r#""Entrypoint": ["/csi-snapshotter"]"#),
    ),
    sidecar(
        "snapshot-controller",
        &["registry.k8s.io/sig-storage/snapshot-controller:v8.6.0"],
        &[Part::GoOf(
            SIDECARS,
            "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
            "/snapshot-controller",
        )],
        config!(r#""Entrypoint": ["/snapshot-controller"]"#),
    ),
];

/// Those that a suite names, too: the specs of devices have their driver met by it.
pub const OF_SUITES: &[Recipe] = &[HOSTPATH];

/// A driver of folders.
const HOSTPATH: Recipe = sidecar(
    "hostpathplugin",
    &["registry.k8s.io/sig-storage/hostpathplugin:v1.17.1"],
    &[Part::Base, Part::GoOf(SIDECARS, "./hostpathplugin", "/hostpathplugin"), Part::Busybox],
    config!(r#""Entrypoint": ["/hostpathplugin"]"#),
);

/// Upstream's sidecars, and what stands in for those that cannot be had.
const SIDECARS: &str = "tests/upstream/sidecars";

/// An image of one program, under the name that upstream's manifests have it by.
const fn sidecar(
    name: &'static str,
    references: &'static [&'static str],
    parts: &'static [Part],
    config: &'static str,
) -> Recipe {
    Recipe { name, references, alike: true, parts, config, proof: idle(&[]) }
}

/// PostgreSQL, as Debian has it.
const POSTGRES: Recipe = Recipe {
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

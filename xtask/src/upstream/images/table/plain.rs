//! Images with a program or a shell, and nothing else.

use crate::upstream::images::recipe::Part::{Base, Busybox, Go, Link, Of, Packages, SharedBusybox, Text};
use crate::upstream::images::recipe::{Proof, Recipe, idle, own};

/// That it can be started, as far as that can be seen.
const PAUSES: Proof = own(&[(&["/pause", "-v"], "pause")]);

/// That a shell and a few of its commands are there.
const BUSYBOX: &[(&[&str], &str)] =
    &[(&["sh", "-c", "id -u && echo a | md5sum && hostname"], "60b725f10c9c85c70d97880dfe8191b3")];

/// The same, and commands that Debian's busybox lacks.
const IPCS: &[(&[&str], &str)] =
    &[BUSYBOX[0], (&["ipcs", "-m"], "Shared Memory"), (&["sh", "-c", "pgrep sleep | head -n 1"], "1")];

/// The same, and a shell that keeps all variables.
const VARIABLES: &[(&[&str], &str)] =
    &[BUSYBOX[0], (&["env", "data-1=kept", "sh", "-c", "env"], "data-1=kept")];

/// Processes by the name of their program, a line each.
const PGREP: &str = "#!/bin/sh\nfound=$(pidof \"$1\") && echo \"$found\" | tr ' ' '\\n'\n";

/// The images.
pub const RECIPES: &[Recipe] = &[
    Recipe {
        name: "pause",
        references: &["registry.k8s.io/pause:3.10.2"],
        alike: false,
        parts: &[Go("./pause", "/pause")],
        config: r#"{"Entrypoint": ["/pause"], "User": "65535:65535"}"#,
        proof: PAUSES,
    },
    Recipe {
        name: "pause-of-two",
        references: &["registry.k8s.io/pause:3.9", "k8s.gcr.io/pause:3.9"],
        alike: true,
        parts: &[Of("pause")],
        config: r#"{"Entrypoint": ["/pause"], "User": "65535:65535", "Labels": {"version": "3.9"}}"#,
        proof: PAUSES,
    },
    Recipe {
        name: "busybox",
        references: &["registry.k8s.io/e2e-test-images/busybox:1.37.0-2"],
        alike: false,
        // Debian's busybox is older, and its shell drops variables whose names are none to it; but specs look for its words.
        // So `sh` is another one, and `/bin/sh` is busybox's.
        parts: &[Base, Packages(&["bash"]), Link("/usr/local/bin/sh", "/usr/bin/bash"), Busybox],
        config: config!(r#""Cmd": ["sh"]"#),
        proof: idle(VARIABLES),
    },
    Recipe {
        name: "busybox-with-ipcs",
        references: &["registry.k8s.io/e2e-test-images/busybox:1.29-2"],
        alike: false,
        // Debian's busybox has neither ipcs nor pgrep, and the package with pgrep has a top that wants a terminal.
        parts: &[Base, Text("/usr/bin/pgrep", PGREP, 0o755), Packages(&["util-linux"]), SharedBusybox],
        config: config!(r#""Cmd": ["sh"]"#),
        proof: idle(IPCS),
    },
    Recipe {
        name: "nonroot",
        references: &["registry.k8s.io/e2e-test-images/nonroot:1.5"],
        alike: false,
        parts: &[Base, Busybox],
        config: config!(r#""Cmd": ["sh"], "User": "1234""#),
        proof: idle(&[(&["id", "-u"], "1234")]),
    },
    Recipe {
        name: "nonewprivs",
        references: &[
            "registry.k8s.io/e2e-test-images/nonewprivs:1.4",
            "registry.k8s.io/e2e-test-images/nonewprivs:1.3",
        ],
        alike: false,
        parts: &[Base, Go("k8s.io/kubernetes/test/images/nonewprivs", "/usr/local/bin/nnp"), Busybox],
        config: config!(r#""Cmd": ["nnp"], "Paths": {"/usr/local/bin/nnp": {"mode": "6755"}}"#),
        proof: idle(&[(&["su", "-s", "/bin/sh", "www-data", "-c", "nnp"], "Effective uid: 0")]),
    },
];

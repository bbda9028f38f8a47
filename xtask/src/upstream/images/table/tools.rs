//! Images of what looks at a node, or strains it.

use crate::upstream::images::recipe::Part::{Base, Busybox, Go, GoOf, Link, Of, Packages};
use crate::upstream::images::recipe::{Part, Recipe, idle, own};

/// The commands that Debian's images have, from the packages that are always there on a Debian.
const DEBIAN: Part = Packages(&[
    "bash",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "hostname",
    "libc-bin",
    "mawk",
    "sed",
    "util-linux",
]);

/// The images.
pub const RECIPES: &[Recipe] = &[
    Recipe {
        name: "glibc-dns-testing",
        references: &["registry.k8s.io/e2e-test-images/glibc-dns-testing:2.1.1"],
        alike: false,
        parts: &[
            Base,
            DEBIAN,
            Packages(&["bind9-dnsutils"]),
            Link("/usr/bin/awk", "mawk"),
            Go("./coredns", "/coredns"),
            Busybox,
        ],
        config: config!(r#""Cmd": ["bash"]"#),
        proof: idle(&[
            (&["dig", "-v"], "DiG"),
            (&["getent", "hosts", "localhost"], "localhost"),
            (&["sh", "-c", "hostname -i | awk -F. '{print $4 \"-awk\"}'"], "-awk"),
            (&["ls", "--version"], "coreutils"),
            (&["/coredns", "-plugins"], "hosts"),
        ]),
    },
    Recipe {
        name: "cyclonus-worker",
        references: &["docker.io/mfenwick100/cyclonus-worker:latest"],
        alike: true,
        parts: &[Of("agnhost"), GoOf("tests/upstream/policy-assistant", "./worker", "/worker")],
        config: config!(r#""Entrypoint": ["/worker"]"#),
        proof: idle(&[(&["/worker", "--jobs", "{}"], "[]")]),
    },
    Recipe {
        name: "ipc-utils",
        references: &["registry.k8s.io/e2e-test-images/ipc-utils:1.4"],
        alike: false,
        parts: &[Base, Packages(&["util-linux"]), Busybox],
        config: config!(r#""Cmd": ["sh"]"#),
        proof: idle(&[(&["ipcs", "-m"], "Shared Memory")]),
    },
    Recipe {
        name: "distroless-iptables",
        references: &["registry.k8s.io/build-image/distroless-iptables:v0.9.9"],
        alike: false,
        parts: &[
            Base,
            DEBIAN,
            Packages(&["conntrack", "ebtables", "iptables", "ipset", "kmod", "nftables"]),
            Of("iptables-links"),
            Busybox,
        ],
        config: config!(r#""Cmd": ["sh"]"#),
        proof: idle(&[
            (&["iptables", "--version"], "nf_tables"),
            (&["nft", "--version"], "nftables"),
            (&["conntrack", "--version"], "conntrack"),
        ]),
    },
    Recipe {
        name: "iptables-links",
        references: &[],
        alike: true,
        parts: &[
            Link("/usr/sbin/iptables", "xtables-nft-multi"),
            Link("/usr/sbin/iptables-save", "xtables-nft-multi"),
            Link("/usr/sbin/iptables-restore", "xtables-nft-multi"),
            Link("/usr/sbin/ip6tables", "xtables-nft-multi"),
            Link("/usr/sbin/ip6tables-save", "xtables-nft-multi"),
            Link("/usr/sbin/ip6tables-restore", "xtables-nft-multi"),
        ],
        config: "{}",
        proof: idle(&[]),
    },
    Recipe {
        name: "resource-consumer",
        references: &["registry.k8s.io/e2e-test-images/resource-consumer:1.14"],
        alike: false,
        parts: &[
            Base,
            Go("k8s.io/kubernetes/test/images/resource-consumer", "/consumer"),
            Go("k8s.io/kubernetes/test/images/resource-consumer/consume-cpu", "/consume-cpu/consume-cpu"),
            Packages(&["stress"]),
            Busybox,
        ],
        config: config!(r#""Entrypoint": ["/consumer"], "ExposedPorts": {"8080/tcp": {}}"#),
        proof: own(&[
            (
                &[
                    "wget",
                    "-qO-",
                    "--post-data=millicores=1&durationSec=1",
                    "http://127.0.0.1:8080/ConsumeCPU",
                ],
                "ConsumeCPU",
            ),
            (&["stress", "--version"], "stress"),
            (&["sh", "-c", "/consume-cpu/consume-cpu --millicores=1 --duration-sec=1 && echo done"], "done"),
        ]),
    },
    Recipe {
        name: "regression-issue-74839",
        references: &["registry.k8s.io/e2e-test-images/regression-issue-74839:1.5"],
        alike: false,
        parts: &[
            Base,
            Go("k8s.io/kubernetes/test/images/regression-issue-74839", "/regression-issue-74839"),
            Busybox,
        ],
        config: config!(r#""Entrypoint": ["/regression-issue-74839"]"#),
        proof: idle(&[(
            &["sh", "-c", "POD_IP=$(hostname -i) timeout 3 /regression-issue-74839 & sleep 1; netstat -ltn"],
            ":9000",
        )]),
    },
    Recipe {
        name: "sample-device-plugin",
        references: &[
            "registry.k8s.io/e2e-test-images/sample-device-plugin:1.7",
            "registry.k8s.io/e2e-test-images/sample-device-plugin:1.8.0",
        ],
        alike: false,
        parts: &[
            Base,
            Go("k8s.io/kubernetes/test/images/sample-device-plugin", "/sampledeviceplugin"),
            Busybox,
        ],
        config: config!(r#""Entrypoint": ["/sampledeviceplugin", "-alsologtostderr"]"#),
        proof: idle(&[(
            &["sh", "-c", "/sampledeviceplugin -alsologtostderr 2>&1 || true"],
            "Starting device plugin server",
        )]),
    },
    Recipe {
        name: "apparmor-loader",
        references: &["registry.k8s.io/e2e-test-images/apparmor-loader:1.4"],
        alike: false,
        parts: &[
            Base,
            Packages(&["apparmor"]),
            Go("k8s.io/kubernetes/test/images/apparmor-loader", "/usr/bin/loader"),
            Busybox,
        ],
        config: config!(r#""Entrypoint": ["/usr/bin/loader", "-logtostderr", "-v=2"], "Cmd": ["/profiles"]"#),
        proof: idle(&[
            (&["apparmor_parser", "--version"], "AppArmor"),
            (&["sh", "-c", "loader --help 2>&1 || true"], "logtostderr"),
        ]),
    },
];

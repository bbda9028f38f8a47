//! Which images there are, and what each is made of. What a suite looks for inside an image decides.

use super::recipe::Part::{Base, Busybox, Etcd, Folder, Go, Kubernetes, Link, Of, Packages, Registry, Text};
use super::recipe::{Part, Proof, Recipe, idle, own};
use super::texts::{HTTPD, HTTPD_FOREGROUND, NGINX, NGINX_SITE};

/// That it can be started, as far as that can be seen.
const PAUSES: Proof = own(&[(&["/pause", "-v"], "pause")]);

/// That a shell and a few of its commands are there.
const BUSYBOX: &[(&[&str], &str)] =
    &[(&["sh", "-c", "id -u && echo a | md5sum && hostname"], "60b725f10c9c85c70d97880dfe8191b3")];

/// The same, and a command that Debian's busybox lacks.
const IPCS: &[(&[&str], &str)] = &[BUSYBOX[0], (&["ipcs", "-m"], "Shared Memory")];

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

/// All images, those that others are made of first.
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
        parts: &[Base, Busybox],
        config: config!(r#""Cmd": ["sh"]"#),
        proof: idle(BUSYBOX),
    },
    Recipe {
        name: "busybox-with-ipcs",
        references: &["registry.k8s.io/e2e-test-images/busybox:1.29-2"],
        alike: false,
        // Debian's busybox has no ipcs.
        parts: &[Base, Packages(&["util-linux"]), Busybox],
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
    Recipe {
        name: "nginx",
        references: &[
            "registry.k8s.io/e2e-test-images/nginx:1.27.0-2",
            "registry.k8s.io/e2e-test-images/nginx:1.28.0-2",
            "registry.k8s.io/e2e-test-images/nginx:1.14-2",
        ],
        alike: false,
        parts: &[Of("nginx-files"), Text("/etc/nginx/conf.d/default.conf", NGINX_SITE, 0o644)],
        config: config!(
            r#""Cmd": ["nginx", "-g", "daemon off;"], "StopSignal": "SIGQUIT", "ExposedPorts": {"80/tcp": {}}"#
        ),
        proof: own(&[
            (&["wget", "-qO-", "http://127.0.0.1/"], "Welcome to nginx!"),
            (&["cat", "/var/run/nginx.pid"], "1"),
        ]),
    },
    Recipe {
        name: "nginx-files",
        references: &[],
        alike: true,
        parts: &[
            Base,
            Packages(&["nginx-light"]),
            Text("/etc/nginx/nginx.conf", NGINX, 0o644),
            Text("/usr/share/nginx/html/index.html", "<title>Welcome to nginx!</title>\n", 0o644),
            Folder("/var/log/nginx", 0o755),
            Folder("/var/lib/nginx", 0o755),
            Busybox,
        ],
        config: "{}",
        proof: idle(&[]),
    },
    Recipe {
        name: "hostnet-nginx",
        references: &["gcr.io/k8s-staging-cri-tools/hostnet-nginx-amd64:latest"],
        alike: false,
        parts: &[
            Of("nginx-files"),
            Text(
                "/etc/nginx/conf.d/default.conf",
                "server { listen 12003; root /usr/share/nginx/html; }\n",
                0o644,
            ),
        ],
        config: config!(r#""Cmd": ["nginx", "-g", "daemon off;"], "StopSignal": "SIGQUIT""#),
        proof: own(&[(&["wget", "-qO-", "http://127.0.0.1:12003/"], "Welcome to nginx!")]),
    },
    Recipe {
        name: "httpd",
        references: &["registry.k8s.io/e2e-test-images/httpd:2.4.39-4"],
        alike: false,
        parts: &[
            Base,
            Packages(&["apache2-bin"]),
            Text("/usr/local/apache2/conf/httpd.conf", HTTPD, 0o644),
            Text(
                "/usr/local/apache2/htdocs/index.html",
                "<html><body><h1>It works!</h1></body></html>\n",
                0o644,
            ),
            Text("/usr/local/bin/httpd-foreground", HTTPD_FOREGROUND, 0o755),
            Link("/usr/local/apache2/bin/httpd", "/usr/sbin/apache2"),
            Folder("/usr/local/apache2/logs", 0o755),
            Busybox,
        ],
        config: config!(
            r#""Cmd": ["httpd-foreground"], "StopSignal": "SIGWINCH", "WorkingDir": "/usr/local/apache2", "ExposedPorts": {"80/tcp": {}}"#
        ),
        proof: own(&[(&["wget", "-qO-", "http://127.0.0.1/"], "It works!")]),
    },
    Recipe {
        name: "agnhost",
        references: &[
            "registry.k8s.io/e2e-test-images/agnhost:2.66.1",
            "registry.k8s.io/e2e-test-images/agnhost:2.55",
        ],
        alike: false,
        parts: &[
            Base,
            Go("k8s.io/kubernetes/test/images/agnhost", "/agnhost"),
            Link("/agnhost-2", "agnhost"),
            Go("./coredns", "/coredns"),
            Kubernetes("test/images/agnhost/porter/localhost.crt", "/localhost.crt"),
            Kubernetes("test/images/agnhost/porter/localhost.key", "/localhost.key"),
            Folder("/uploads", 0o755),
            Registry("/var/registry", "pause", "pause", "testing"),
            Packages(&[
                "bash",
                "bind9-dnsutils",
                "curl",
                "iperf",
                "iproute2",
                "libc-bin",
                "netcat-openbsd",
                "socat",
                "util-linux",
            ]),
            Link("/usr/bin/nc", "nc.openbsd"),
            Link("/usr/local/bin/iperf", "/usr/bin/iperf"),
            Busybox,
        ],
        config: config!(
            r#""Entrypoint": ["/agnhost"], "Cmd": ["pause"], "ExposedPorts": {"80/tcp": {}, "5000/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "9376/tcp": {}}"#
        ),
        proof: Proof {
            command: &[],
            args: &["netexec"],
            asked: &[
                (&["curl", "-s", "http://127.0.0.1:8080/hostname"], "proof"),
                (&["dig", "-v"], "DiG"),
                (&["getent", "hosts", "localhost"], "localhost"),
                (&["nc", "-h"], "OpenBSD"),
                (&["ss", "-lnt"], ":8080"),
                (&["sh", "-c", "iperf -v || true"], "iperf version"),
                (&["socat", "-V"], "socat"),
                (&["bash", "-c", "echo $BASH_VERSION"], "5."),
                (&["ipcs"], "Semaphore"),
                (&["/coredns", "-version"], "CoreDNS"),
                (&["/agnhost-2", "--help"], "agnhost"),
                (&["id", "user-defined-in-image"], "50000(group-defined-in-image)"),
                (
                    &[
                        "sh",
                        "-c",
                        "/agnhost fake-registry-server & sleep 1; wget -qO- http://127.0.0.1:5000/v2/pause/manifests/testing",
                    ],
                    "amd64",
                ),
            ],
        },
    },
    Recipe {
        name: "kitten",
        references: &["registry.k8s.io/e2e-test-images/kitten:1.8"],
        alike: false,
        parts: &[
            Of("agnhost"),
            Kubernetes("test/images/kitten/html/kitten.jpg", "/kitten.jpg"),
            Kubernetes("test/images/kitten/html/data.json", "/data.json"),
        ],
        config: config!(r#""Entrypoint": ["/agnhost"], "Cmd": ["test-webserver"]"#),
        proof: own(&[(&["curl", "-s", "http://127.0.0.1/data.json"], "kitten.jpg")]),
    },
    Recipe {
        name: "nautilus",
        references: &["registry.k8s.io/e2e-test-images/nautilus:1.8"],
        alike: false,
        parts: &[
            Of("agnhost"),
            Kubernetes("test/images/nautilus/html/nautilus.jpg", "/nautilus.jpg"),
            Kubernetes("test/images/nautilus/html/data.json", "/data.json"),
        ],
        config: config!(r#""Entrypoint": ["/agnhost"], "Cmd": ["test-webserver"]"#),
        proof: own(&[(&["curl", "-s", "http://127.0.0.1/data.json"], "nautilus.jpg")]),
    },
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
        name: "etcd",
        references: &["registry.k8s.io/etcd:3.7.0-0"],
        alike: false,
        parts: &[Base, Etcd("/usr/local/bin/etcd"), Busybox],
        config: config!(r#""ExposedPorts": {"2379/tcp": {}, "2380/tcp": {}}"#),
        proof: Proof {
            command: &["/usr/local/bin/etcd"],
            args: &["--data-dir", "/tmp/etcd"],
            asked: &[(&["wget", "-qO-", "http://127.0.0.1:2379/health"], "true")],
        },
    },
    Recipe {
        name: "sample-apiserver",
        references: &["registry.k8s.io/e2e-test-images/sample-apiserver:1.29.2"],
        alike: false,
        parts: &[Base, Go("k8s.io/sample-apiserver", "/sample-apiserver"), Busybox],
        config: config!(r#""Entrypoint": ["/sample-apiserver"]"#),
        proof: idle(&[(&["/sample-apiserver", "--help"], "etcd-servers")]),
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
        references: &["registry.k8s.io/e2e-test-images/sample-device-plugin:1.7"],
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
    RECIPES.iter().find(|recipe| recipe.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_image_is_there_once_has_settings_and_is_made_of_what_there_is() {
        let mut names = BTreeSet::new();
        let mut references = BTreeSet::new();
        for recipe in RECIPES {
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
        for part in RECIPES.iter().flat_map(|recipe| recipe.parts) {
            if let Go(package, _) = part {
                let ours = package.strip_prefix("./").is_some_and(|name| root.join(name).is_dir());
                let tool = text.lines().any(|line| line.trim() == *package);
                assert!(ours || tool, "{package}");
            }
        }
    }
}

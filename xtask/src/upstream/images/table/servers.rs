//! Images of what is asked over the network.

use crate::upstream::images::recipe::Part::{
    Base, Busybox, Folder, Go, GoOf, Kubernetes, Link, Of, Packages, Registry, SharedBusybox, Text,
};
use crate::upstream::images::recipe::{Proof, Recipe, idle, own};
use crate::upstream::images::texts::{HTTPD, HTTPD_FOREGROUND, NGINX, NGINX_SITE, OS_RELEASE};

/// The images.
pub const RECIPES: &[Recipe] = &[
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
            "registry.k8s.io/e2e-test-images/agnhost:2.43",
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
            // Its shell must find the programs above, not commands of its own.
            SharedBusybox,
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
            Text("/etc/os-release", OS_RELEASE, 0o644),
        ],
        config: config!(r#""Entrypoint": ["/agnhost"], "Cmd": ["test-webserver"]"#),
        proof: own(&[
            (&["curl", "-s", "http://127.0.0.1/data.json"], "kitten.jpg"),
            (&["cat", "/etc/os-release"], "Alpine Linux"),
        ]),
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
        name: "etcd",
        references: &["registry.k8s.io/etcd:3.7.0-0"],
        alike: false,
        parts: &[
            Base,
            GoOf("crates/store/tests/etcd-server", "go.etcd.io/etcd/server/v3", "/usr/local/bin/etcd"),
            Busybox,
        ],
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
];

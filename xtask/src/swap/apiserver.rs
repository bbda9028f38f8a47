//! Everything of Trine but its API server, on upstream's, with the rights that upstream gives to each: the kubelet is its node and
//! no other, the scheduler and the proxy have upstream's roles.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::authority::Authority;
use super::part::Played;
use super::stage::{Stage, free_port, ranges};
use super::story;
use crate::upstream::go::{self, Tool};
use crate::upstream::images::own_address;

/// The API server.
pub const APISERVER: Tool = Tool {
    module: "tests/upstream/kubernetes",
    package: "k8s.io/kubernetes/cmd/kube-apiserver",
    test: false,
    file: "kube-apiserver",
    ldflags: go::KUBERNETES_VERSION,
    versioned: "k8s.io/kubernetes",
};

/// Plays the part.
///
/// # Errors
/// If a peer cannot be had, or the story fails.
pub fn play(stage: &mut Stage) -> anyhow::Result<Played> {
    let program = go::build(&stage.root, &APISERVER)?;
    let etcd = stage.etcd()?;
    stage.runtime()?;
    let ranges = ranges(&stage.node())?;
    let authority = Authority::new(stage.dir.join("authority"))?;
    let address = own_address().to_string();
    let port = free_port()?;
    let server = format!("https://{address}:{port}");
    let first = first_address(&ranges.services);
    let names =
        [&*address, &first, "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let serving = authority.sign("kube-apiserver", "", &names)?;
    let calling = authority.sign("kube-apiserver-kubelet-client", "system:masters", &[])?;
    let tokens = authority.sign("service-accounts", "", &[])?;
    let mut command = Command::new(program);
    let file = |word: &str, path: &Path| format!("--{word}={}", path.display());
    command.args([
        format!("--etcd-servers={}", etcd),
        format!("--advertise-address={address}"),
        format!("--secure-port={port}"),
        format!("--service-cluster-ip-range={}", ranges.services),
        file("tls-cert-file", &serving.cert),
        file("tls-private-key-file", &serving.key),
        file("client-ca-file", &authority.own().cert),
        file("kubelet-client-certificate", &calling.cert),
        file("kubelet-client-key", &calling.key),
        file("service-account-key-file", &tokens.cert),
        file("service-account-signing-key-file", &tokens.key),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--enable-bootstrap-token-auth=true".to_owned(),
    ]);
    stage.peer("kube-apiserver", &mut command)?;
    let admin = authority.kubeconfig(&server, "admin", "system:masters")?;
    let teller = story::Teller { program: &stage.program.clone(), kubeconfig: &admin };
    stage.until("the API server", || teller.get("service/kubernetes").is_ok())?;

    let scheduler = authority.kubeconfig(&server, "system:kube-scheduler", "")?;
    let proxy = authority.kubeconfig(&server, "system:kube-proxy", "")?;
    let text = |path: &Path| path.display().to_string();
    let key = text(&authority.own().key);
    let cidr = ranges.pods.clone();
    let words = ["--kubeconfig", &text(&admin), "--cluster-cidr", &cidr, "--cluster-signing-key-file", &key];
    stage.plane("controllers", &words)?;
    stage.plane("scheduler", &["--kubeconfig", &text(&scheduler)])?;
    teller.apply(&joining())?;
    // Upstream's server does not show whose it is.
    stage.kubelet(&admin, &["--ca-file", &text(&authority.own().cert)])?;
    stage.storage(&admin, true)?;
    stage.proxy(&proxy, &ranges)?;
    let facts = stage.story(&admin)?;
    let peers = vec![
        format!("kube-apiserver {}", go::version(&stage.root, &APISERVER)?),
        format!("etcd {}", go::version(&stage.root, &crate::upstream::etcd::TOOL)?),
    ];
    Ok(Played { facts, peers })
}

/// The first address of a range of IPv4: the Service `kubernetes` has it.
fn first_address(range: &str) -> String {
    let base = range.split('/').next().unwrap_or_default();
    format!("{}.1", base.rsplit_once('.').map_or("", |(start, _)| start))
}

/// What lets nodes join by a token: upstream's roles, bound as every installer binds them.
fn joining() -> Vec<Value> {
    let certificates = "system:certificates.k8s.io:certificatesigningrequests";
    let binding = |name: &str, role: String, group: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]})
    };
    vec![
        binding("join", "system:node-bootstrapper".to_owned(), "system:bootstrappers"),
        binding("approve", format!("{certificates}:nodeclient"), "system:bootstrappers"),
        binding("renew", format!("{certificates}:selfnodeclient"), "system:nodes"),
    ]
}

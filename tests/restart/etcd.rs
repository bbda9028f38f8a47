//! A cluster whose objects are in an etcd of somebody's own, over TLS with a certificate for the client.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use trine_tests::{Cluster, go, until};

const TEST: &str = "a_cluster_on_an_etcd_over_tls_is_there_after_a_restart";

/// Two words of a command that name a file.
fn words<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    pairs.iter().flat_map(|(word, value)| [*word, *value]).collect()
}

/// An authority, and a certificate of it for both sides.
fn certificates(dir: &Path) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    std::fs::write(dir.join("ca.pem"), authority.self_signed(&authority_key).unwrap().pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(dir.join("one.pem"), certificate.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    std::fs::write(dir.join("one.key"), key.serialize_pem()).unwrap();
}

/// Ends with its process.
struct Etcd(Child);

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn etcd(program: &Path, dir: &Path, client: &str) -> Etcd {
    let peer = "http://127.0.0.1:0";
    let mut command = Command::new(program);
    command.current_dir(dir).args(["--data-dir", "data", "--name", "one", "--log-level", "error"]);
    command.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
    command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", "http://127.0.0.1:1"]);
    command.args(["--initial-cluster", "one=http://127.0.0.1:1", "--client-cert-auth"]);
    command.args(["--cert-file", "one.pem", "--key-file", "one.key", "--trusted-ca-file", "ca.pem"]);
    Etcd(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_cluster_on_an_etcd_over_tls_is_there_after_a_restart() {
    if !trine_kernel::testing::root(TEST) {
        return;
    }
    let module = "crates/store/tests/etcd-server";
    let Some(program) = go::build(TEST, module, "go.etcd.io/etcd/server/v3", "etcd") else { return };
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("https://127.0.0.1:{port}");
    let _etcd = etcd(&program, dir.path(), &url);

    let path = |name: &str| dir.path().join(name).display().to_string();
    let (store, ca, one, key) = (format!("etcd={url}"), path("ca.pem"), path("one.pem"), path("one.key"));
    let trusted = [("--store", store.as_str()), ("--etcd-cafile", &ca)];
    let known = [("--etcd-certfile", one.as_str()), ("--etcd-keyfile", &key)];

    let cluster = Cluster::prepared();
    let up = ["up", "--detach"];
    let start = || {
        let all = [&up[..], &words(&trusted), &words(&known)].concat();
        until("the cluster is up", || {
            let outcome = cluster.trine(&all);
            if outcome.ok { Ok(()) } else { Err(outcome.err) }
        });
    };
    start();
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\ndata: {greeting: hello}\n";
    let _ = cluster.apply(map).expect_ok();
    let before = cluster.get("configmap/kept");
    assert_eq!(before["data"]["greeting"], "hello");
    assert!(!cluster.dir().join("store.redb").exists(), "nothing is in the data dir");

    let _ = cluster.trine(&["down"]).expect_ok();
    let refused = cluster.trine(&[&up[..], &words(&trusted)].concat()).expect_failure();
    assert!(refused.contains("etcd"), "without a certificate there is no way in: {refused}");
    start();
    assert_eq!(cluster.get("configmap/kept"), before, "uid and revision, too");
}

//! `cargo xtask bench api`, second part: an API server in a process of its own, with its client on the same cores.
//!
//! Prints creates per second over HTTPS, a LIST of 10,000 Pods, an update told to 1,000 watchers, and the server's memory when
//! empty and with 30,000 Pods. The goals are in SPECIFICATION.md.

#![allow(clippy::unwrap_used)]

use axum::body::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use trine_apiserver::{Config, start};
use trine_store::redb::{Limits, RedbStore};

const CONNECTIONS: usize = 8;
const CREATORS: usize = 64;
const LISTED: usize = 10_000;
const PODS: usize = 30_000;
const LISTS: usize = 30;
const WATCHERS: usize = 1000;
const UPDATES: usize = 30;
const SERVE: &str = "serve";

// As the program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, serve, dir] = words.as_slice()
        && serve == SERVE
    {
        return server(Path::new(dir));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(bench());
}

/// The process that is measured. It ends when its input does.
fn server(dir: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = RedbStore::open(&dir.join("store.redb"), Limits::default()).unwrap();
        let config = Config {
            data_dir: dir.to_owned(),
            bind: "127.0.0.1:0".parse().unwrap(),
            advertise: "127.0.0.1".parse().unwrap(),
            service_cidr: "10.96.0.0/16".to_owned(),
            audit: trine_apiserver::AuditConfig::default(),
            runtime_config: trine_apiserver::RuntimeConfig::default(),
        };
        let server = start(config, Arc::new(store)).await.unwrap();
        let (certificate, key) = server.issue("bench", &["system:masters"], &[]).unwrap();
        std::fs::write(dir.join("ca"), server.ca_pem()).unwrap();
        std::fs::write(dir.join("certificate"), certificate).unwrap();
        std::fs::write(dir.join("key"), key).unwrap();
        println!("{}", server.addr());
        tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await.unwrap().unwrap();
        server.stop().await;
    });
}

struct Server {
    child: Child,
    address: String,
    dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(SERVE)
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned(), dir }
    }

    /// Resident memory in MiB.
    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let read = |name: &str| std::fs::read(self.dir.path().join(name)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&read("ca")).unwrap()).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(&read("certificate")).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(&read("key")).unwrap();
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(&self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(4 << 20).initial_connection_window_size(8 << 20);
        let (client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

type Client = SendRequest<Full<Bytes>>;

fn request(method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method).uri(format!("https://localhost{path}"));
    builder.header("content-type", "application/json").body(Full::new(body.into())).unwrap()
}

async fn call(client: &mut Client, method: Method, path: &str, body: impl Into<Bytes>) -> (u16, Bytes) {
    let answer = client.send_request(request(method, path, body)).await.unwrap();
    let code = answer.status().as_u16();
    (code, answer.into_body().collect().await.unwrap().to_bytes())
}

async fn make(client: &mut Client, path: &str, object: &Value) -> Value {
    let (code, body) = call(client, Method::POST, path, object.to_string()).await;
    assert_eq!(code, 201, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

/// A Pod like those of a Deployment: a container with probes, resources, environment and mounts.
fn pod(name: &str) -> Value {
    let variable =
        |i: usize| json!({"name": format!("SETTING_{i}"), "value": format!("value-of-setting-{i}")});
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name,
        "labels": {"app": "web", "pod-template-hash": "5d8f9c7b6", "tier": "front"},
        "annotations": {"example.com/checksum": "0123456789abcdef0123456789abcdef0123456789abcdef"}},
        "spec": {"containers": [{"name": "web", "image": "registry.example.com/team/web:1.2.3",
            "env": (0..8).map(variable).collect::<Vec<_>>(),
            "ports": [{"containerPort": 8080, "name": "http"}], "readinessProbe": probe, "livenessProbe": probe,
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}]}],
        "volumes": [{"name": "config", "configMap": {"name": "web"}}]}})
}

async fn bench() {
    let server = Server::start();
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("memory, empty: {:.1} MiB", server.memory());
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(server.connect().await);
    }
    for name in ["listed", "others", "watched"] {
        make(&mut clients[0], "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        // A controller makes it in a cluster; here is the API server alone.
        let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
        make(&mut clients[0], &accounts, &json!({"metadata": {"name": "default"}})).await;
    }
    let first = make(&mut clients[0], "/api/v1/namespaces/others/pods", &pod("first")).await;
    println!("a Pod has {} B as the client sees it", first.to_string().len());
    create(&clients, "listed", LISTED).await;
    list(&mut clients[0]).await;
    watch(&server, &mut clients[0]).await;
    create(&clients, "others", PODS - LISTED - 1).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("memory, {PODS} Pods: {:.1} MiB", server.memory());
}

async fn create(clients: &[Client], namespace: &'static str, count: usize) {
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let tasks = (0..CREATORS).map(|i| {
        let (mut client, next) = (clients[i % clients.len()].clone(), next.clone());
        tokio::spawn(async move {
            let path = format!("/api/v1/namespaces/{namespace}/pods");
            let mut times = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return times;
                }
                let body = pod(&format!("web-5d8f9c7b6-{n}")).to_string();
                let since = Instant::now();
                let (code, answer) = call(&mut client, Method::POST, &path, body).await;
                times.push(since.elapsed());
                assert_eq!(code, 201, "{}", String::from_utf8_lossy(&answer));
            }
        })
    });
    let times = futures::future::try_join_all(tasks).await.unwrap();
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    let mut times: Vec<Duration> = times.into_iter().flatten().collect();
    println!("creates over HTTPS, {CREATORS} clients: {rate:.0}/s; {}", spread(&mut times));
}

async fn list(client: &mut Client) {
    let mut times = Vec::new();
    let mut size = 0;
    for _ in 0..LISTS {
        let since = Instant::now();
        let (code, body) = call(client, Method::GET, "/api/v1/namespaces/listed/pods", "").await;
        times.push(since.elapsed());
        assert_eq!(code, 200);
        size = body.len();
    }
    println!("LIST of {LISTED} Pods, {:.1} MB: {}", size as f64 / 1e6, spread(&mut times));
}

async fn watch(server: &Server, client: &mut Client) {
    let path = "/api/v1/namespaces/watched/configmaps";
    let map = |n: usize| json!({"metadata": {"name": "told"}, "data": {"n": n.to_string(), "more": "x".repeat(500)}});
    make(client, path, &map(0)).await;
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..WATCHERS / 250 {
        let watcher = server.connect().await;
        for _ in 0..250 {
            let (mut watcher, told) = (watcher.clone(), told.clone());
            let watch = format!("{path}?watch=true&allowWatchBookmarks=false&timeoutSeconds=600");
            tokio::spawn(async move {
                let answer = watcher.send_request(request(Method::GET, &watch, "")).await.unwrap();
                let mut body = answer.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    let ends = frame.data_ref().map_or(0, |d| d.iter().filter(|b| **b == b'\n').count());
                    for _ in 0..ends {
                        if told.send(Instant::now()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    }
    for _ in 0..WATCHERS {
        heard.recv().await.unwrap();
    }
    let (mut all, mut last) = (Vec::new(), Vec::new());
    for n in 1..=UPDATES {
        let since = Instant::now();
        let put = call(client, Method::PUT, "/api/v1/namespaces/watched/configmaps/told", map(n).to_string());
        let hear = async {
            let mut times = Vec::new();
            while times.len() < WATCHERS {
                times.push(heard.recv().await.unwrap() - since);
            }
            times
        };
        let ((code, _), times) = tokio::join!(put, hear);
        assert_eq!(code, 200);
        last.push(*times.iter().max().unwrap());
        all.extend(times);
    }
    println!(
        "an update told to {WATCHERS} watchers: {}; the last of them: {}",
        spread(&mut all),
        spread(&mut last)
    );
    println!("memory, {LISTED} Pods and {WATCHERS} watchers: {:.1} MiB", server.memory());
}

fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    format!("p50 {:.1} ms, p99 {:.1} ms, n={}", at(50), at(99), times.len())
}

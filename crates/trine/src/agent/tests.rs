//! A node against a real API server with its controllers, without a kubelet.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use trine_store::redb::{Limits, RedbStore};
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::{Patch, PatchParams, PostParams};
use trine_typed::kube::{Api, Client, Error};

use super::credentials::{self, Validity, validity};
use super::join::{self, Invitation};
use super::keep::{self, Who};
use super::token::Token;
use crate::builtin;
use crate::layout::Layout;
use crate::settings::Settings;

/// A control plane on loopback.
struct Server {
    api: trine_apiserver::ApiServer,
    stop: CancellationToken,
    _dir: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(RedbStore::open(&dir.path().join("store.redb"), Limits::default()).unwrap());
        let config = trine_apiserver::Config {
            data_dir: dir.path().to_owned(),
            bind: "127.0.0.1:0".parse().unwrap(),
            advertise: "127.0.0.1".parse().unwrap(),
            service_cidr: "10.96.0.0/16".to_owned(),
            audit: trine_apiserver::AuditConfig::default(),
            runtime_config: trine_apiserver::RuntimeConfig::default(),
        };
        let api = trine_apiserver::start(config, store).await.unwrap();
        let (stop, accounts) = (CancellationToken::new(), api.accounts());
        let account = move |name: &str| Client::new(accounts.service("kube-system", name), "default");
        let reads = Client::new(api.service("system:kube-controller-manager", &[]), "default");
        let config = trine_controllers::Config {
            ca_pem: api.ca_pem().to_owned(),
            pod_cidr: "10.244.0.0/16".to_owned(),
            node_prefix: (24, 64),
            signer: Some(trine_controllers::SigningKey { key_pem: api.ca_key_pem() }),
        };
        let clients = trine_controllers::Clients::new(reads, account);
        tokio::spawn(trine_controllers::run(clients, config, stop.clone()));
        let server = Self { api, stop, _dir: dir };
        builtin::apply_objects(&server.admin(), &settings()).await.unwrap();
        server
    }

    fn admin(&self) -> Client {
        Client::new(self.api.service("admin", &["system:masters"]), "default")
    }

    fn url(&self) -> String {
        format!("https://{}", self.api.addr())
    }

    async fn token(&self) -> Token {
        let token = Token::random(self.api.ca_pem()).unwrap();
        token.publish(&self.admin(), None, "a test").await.unwrap();
        token
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn settings() -> Settings {
    Settings {
        pod_cidr: "10.244.0.0/16".parse().unwrap(),
        service_cidr: "10.96.0.0/16".parse().unwrap(),
        nodes_cidr: None,
        cluster_dns: Vec::new(),
        overlay: trine_overlay::Mode::Auto,
        checksums: trine_overlay::Checksums::Auto,
        vni: 1,
        cluster_domain: "cluster.local".to_owned(),
    }
}

fn who(dir: &tempfile::TempDir) -> Who {
    let layout = Layout::new(dir.path()).unwrap();
    Who { layout, node: "n7".to_owned(), ip: "127.0.0.1".parse().unwrap() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_what_it_needs_by_a_token_and_renews_it_without() {
    let server = Server::start().await;
    let token = server.token().await;
    let dir = tempfile::tempdir().unwrap();
    let who = who(&dir);
    let invitation =
        Invitation { server: Some(server.url()), token: Some(token.clone()), ..Invitation::default() };
    let stored = join::credentials(&who.layout, &who.node, &invitation).await.unwrap();
    assert_eq!(stored.ca_pem.replace('\n', ""), server.api.ca_pem().replace(['\r', '\n'], ""));
    assert_eq!(validity(&stored.cert_pem, Timestamp::now()), Validity::Fresh);

    // From here on without the token.
    token.revoke(&server.admin()).await.unwrap();
    let again = join::credentials(&who.layout, &who.node, &Invitation::default()).await.unwrap();
    assert_eq!(again, stored);
    let client = join::client_of(&who.layout).await.unwrap();
    assert_eq!(Settings::fetch(&client).await.unwrap(), settings());

    let (newest, of_node) = watch::channel(Some(client));
    let next = keep::renew(&who, &stored, &newest).await.unwrap();
    assert_ne!(next.cert_pem, stored.cert_pem);
    assert_eq!(credentials::load(&who.layout).unwrap(), Some(next.clone()));
    let client = super::current::client(of_node);

    // The kubelet registers the node; then its certificate for serving is signed, and its planes get a token.
    let (serving, mut shown) = watch::channel(keep::first_serving(&who).unwrap());
    tokio::spawn(keep::serving(who.clone(), client.clone(), serving));
    let (planes, of_planes) = watch::channel(None);
    tokio::spawn(keep::account(who.clone(), client.clone(), next, planes));
    let nodes: Api<Node> = Api::all(client);
    let node: Node = serde_json::from_value(json!({"metadata": {"name": who.node}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}});
    nodes.patch_status(&who.node, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(20), shown.changed()).await.unwrap().unwrap();
    let pair = shown.borrow().clone();
    assert!(credentials::names(&pair.0, who.ip));
    assert_eq!(keep::first_serving(&who).unwrap(), pair, "kept for the next start");

    let planes = super::current::client(of_planes);
    let everybody: Api<Node> = Api::all(planes.clone());
    assert_eq!(everybody.list(&Default::default()).await.unwrap().items.len(), 1);
    let secrets = http::Request::get("/api/v1/secrets").body(Vec::new()).unwrap();
    let refused = planes.request::<Value>(secrets).await;
    assert!(matches!(refused, Err(Error::Api(status)) if status.code == 403), "its planes see no Secrets");

    // Another Node object of that name: the old token has ended with the old one.
    let nodes: Api<Node> = Api::all(server.admin());
    nodes.delete(&who.node, &Default::default()).await.unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    for _ in 0..200 {
        if everybody.list(&Default::default()).await.is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the planes have no token of the new Node after 10 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_believes_no_other_cluster_and_is_not_believed_without_a_token_that_holds() {
    let (server, other) = (Server::start().await, Server::start().await);
    let dir = tempfile::tempdir().unwrap();
    let who = who(&dir);
    let join = async |server: Option<String>, token: Option<Token>| {
        let invitation = Invitation { server, token, ..Invitation::default() };
        let joined = join::credentials(&who.layout, &who.node, &invitation).await;
        format!("{:#}", joined.unwrap_err())
    };
    let of_other = other.token().await;
    let said = join(Some(server.url()), Some(of_other.clone())).await;
    assert!(said.contains("is not the server of this token's cluster"), "{said}");
    let mut bare = server.token().await;
    bare.pin = None;
    assert!(join(Some(server.url()), Some(bare)).await.contains("does not say whose cluster it is"));
    let unpublished = Token::random(server.api.ca_pem()).unwrap();
    assert!(join(Some(server.url()), Some(unpublished)).await.contains("Unauthorized"));
    let ended = server.token().await;
    ended.revoke(&server.admin()).await.unwrap();
    assert!(join(Some(server.url()), Some(ended)).await.contains("Unauthorized"));
    let plain = server.url().replace("https", "http");
    assert!(join(Some(plain), Some(server.token().await)).await.contains("https"));
    assert!(join(Some(server.url()), None).await.contains("--token is missing"));
    assert!(join(None, Some(server.token().await)).await.contains("--server is missing"));
    assert!(!credentials::exist(&who.layout));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_the_planes_is_a_nodes_own_and_ends_with_it() {
    let server = Server::start().await;
    let nodes: Api<Node> = Api::all(server.admin());
    for name in ["n7", "n8"] {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    let as_node = Client::new(server.api.service("system:node:n7", &["system:nodes"]), "default");
    let ask = async |account: &str, bound: Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "boundObjectRef": bound}});
        let path = format!("/api/v1/namespaces/kube-system/serviceaccounts/{account}/token");
        let request = http::Request::post(path).header("content-type", "application/json");
        as_node.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await
    };
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "name": name});
    for (account, bound) in [("trine-node", node("n8")), ("trine-node", Value::Null), ("default", node("n7"))]
    {
        let answer = ask(account, bound.clone()).await;
        assert!(matches!(answer, Err(Error::Api(s)) if s.code == 403), "{account} {bound}");
    }
    let given = ask("trine-node", node("n7")).await.unwrap();
    let user = format!("token: {}", given["status"]["token"].as_str().unwrap());
    let text = credentials::kubeconfig(&server.url(), server.api.ca_pem(), &user);
    let planes = join::client(&text).await.unwrap();
    let list = async || Api::<Node>::all(planes.clone()).list(&Default::default()).await;
    assert_eq!(list().await.unwrap().items.len(), 2);
    nodes.delete("n7", &Default::default()).await.unwrap();
    assert!(list().await.is_err(), "the node is gone, and its token with it");
}

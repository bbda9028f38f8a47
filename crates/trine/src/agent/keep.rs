//! Exchanges what a node shows before it ends: its certificate, its kubelet's, and the token of its planes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trine_typed::k8s_openapi::api::authentication::v1::{
    BoundObjectReference, TokenRequest, TokenRequestSpec,
};
use trine_typed::k8s_openapi::api::core::v1::{Node, ServiceAccount};
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::api::PostParams;
use trine_typed::kube::runtime::watcher;
use trine_typed::kube::{Api, Client};
use trine_typed::mirror::Mirror;

use super::credentials::{self, Stored, Validity, kubeconfig, validity};
use super::join;
use super::request::{Purpose, certificate};
use crate::builtin::NODE_ACCOUNT;
use crate::layout::Layout;
use crate::node::Pair;

/// How often it is looked whether a certificate is due. By the clock of the day, so that a machine that slept catches up.
const LOOK: Duration = Duration::from_secs(600);
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// How long a token of the planes holds, seconds (the API server's default), and when the next one is got.
const TOKEN_SECONDS: i64 = 3600;
const TOKEN_DUE: Duration = Duration::from_secs(2400);
const POLL: Duration = Duration::from_millis(50);

/// Which node.
#[derive(Debug, Clone)]
pub struct Who {
    /// Its files.
    pub layout: Layout,
    /// Its name.
    pub node: String,
    /// Its address.
    pub ip: IpAddr,
}

/// Exchanges the node's own certificate when it is due, for ever.
pub async fn client(who: Who, mut stored: Stored, newest: watch::Sender<Option<Client>>) {
    loop {
        tokio::time::sleep(LOOK).await;
        if validity(&stored.cert_pem, Timestamp::now()) == Validity::Fresh {
            continue;
        }
        match renew(&who, &stored, &newest).await {
            Ok(next) => stored = next,
            Err(error) => tracing::error!("the node's certificate is not exchanged yet: {error:#}"),
        }
    }
}

/// Gets the next certificate of the node, keeps it and uses it.
///
/// # Errors
/// What the API server or the file system says.
pub async fn renew(
    who: &Who,
    stored: &Stored,
    newest: &watch::Sender<Option<Client>>,
) -> anyhow::Result<Stored> {
    let current = newest.borrow().clone().context("there is no way to the server")?;
    let (cert_pem, key_pem) = certificate(&current, &who.node, &Purpose::Client).await?;
    let next = Stored { cert_pem, key_pem, ..stored.clone() };
    credentials::save(&who.layout, &next)?;
    newest.send_replace(Some(join::client_of(&who.layout).await?));
    tracing::info!("the node's certificate is exchanged before it ends");
    Ok(next)
}

/// What the kubelet shows first: what is kept, or, until the cluster has signed something, what nobody believes.
///
/// # Errors
/// If there are no random numbers.
pub fn first_serving(who: &Who) -> anyhow::Result<Pair> {
    let kept = credentials::load_serving(&who.layout).filter(|pair| !is_due(pair, who.ip));
    kept.map_or_else(|| unsigned(&who.node), Ok)
}

fn is_due(pair: &Pair, ip: IpAddr) -> bool {
    validity(&pair.0, Timestamp::now()) != Validity::Fresh || !credentials::names(&pair.0, ip)
}

/// What a kubelet shows that nobody has signed a certificate for.
///
/// # Errors
/// If there are no random numbers.
pub fn unsigned(node: &str) -> anyhow::Result<Pair> {
    let key = rcgen::KeyPair::generate()?;
    let params = rcgen::CertificateParams::new(vec![node.to_owned()])?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Gets what the kubelet shows signed, and exchanged when it is due, for ever.
pub async fn serving(who: Who, client: Client, newest: watch::Sender<Pair>) {
    loop {
        if !is_due(&newest.borrow(), who.ip) {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        match sign_serving(&who, &client).await {
            Ok(pair) => drop(newest.send_replace(pair)),
            Err(error) => {
                tracing::warn!("the kubelet's certificate is not signed yet: {error:#}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn sign_serving(who: &Who, client: &Client) -> anyhow::Result<Pair> {
    // Only what the Node object says of itself is approved without a person.
    let nodes: Api<Node> = Api::all(client.clone());
    let ip = who.ip.to_string();
    loop {
        let node = nodes.get_opt(&who.node).await?;
        let addresses = node.and_then(|n| n.status).and_then(|s| s.addresses).unwrap_or_default();
        if addresses.iter().any(|a| a.address == ip) {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    let names = vec![who.node.clone(), ip];
    let pair = certificate(client, &who.node, &Purpose::Serving(names)).await?;
    credentials::save_serving(&who.layout, &pair)?;
    Ok(pair)
}

/// Gets tokens of the account of node planes, for ever. They are bound to the Node object and end with it, so another object
/// of that name needs another token.
pub async fn account(who: Who, client: Client, stored: Stored, newest: watch::Sender<Option<Client>>) {
    let changed = Arc::new(Notify::new());
    let own = watcher::Config::default().fields(&format!("metadata.name={}", who.node));
    let end = CancellationToken::new();
    let _guard = end.clone().drop_guard();
    let nodes: Mirror<Node> = Mirror::start(Api::all(client.clone()), own, changed.clone(), end);
    let (mut given, mut due) = (String::new(), Instant::now());
    loop {
        let uid = nodes.get("", &who.node).and_then(|node| node.metadata.uid.clone()).unwrap_or_default();
        if !uid.is_empty() && (uid != given || due <= Instant::now()) {
            match token(&who, &uid, &client, &stored).await {
                Ok(planes) => {
                    newest.send_replace(Some(planes));
                    (given, due) = (uid, Instant::now() + TOKEN_DUE);
                }
                Err(error) => {
                    tracing::warn!("no token for the node's proxy, routes and volumes: {error:#}");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
        }
        let next = if given.is_empty() { Instant::now() + TOKEN_DUE } else { due };
        tokio::select! {
            () = changed.notified() => {}
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

async fn token(who: &Who, uid: &str, client: &Client, stored: &Stored) -> anyhow::Result<Client> {
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(who.node.clone()),
                uid: Some(uid.to_owned()),
            }),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "kube-system");
    let answer = accounts.create_token_request(NODE_ACCOUNT, &PostParams::default(), &request).await?;
    let token = answer.status.and_then(|s| s.token).context("the answer has no token")?;
    join::client(&kubeconfig(&stored.server, &stored.ca_pem, &format!("token: {token}"))).await
}

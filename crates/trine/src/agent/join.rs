//! The first way to the server: a token, the authority that it pins, a certificate.

use std::time::Duration;

use anyhow::Context;
use trine_typed::k8s_openapi::jiff::Timestamp;
use trine_typed::kube::{self, Client};

use super::credentials::{self, Stored, Validity, kubeconfig, load, save, validity};
use super::pin;
use super::request::{Purpose, certificate};
use super::token::Token;
use crate::layout::Layout;

/// First and longest pause between attempts to reach the server.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What the words say about the server.
#[derive(Debug, Default)]
pub struct Invitation {
    /// Its URL; the one from last time if none.
    pub server: Option<String>,
    /// The token, which only a first start needs.
    pub token: Option<Token>,
    /// The cluster's authority, PEM, if the token does not pin it.
    pub ca_pem: Option<String>,
}

/// The node's way to the server: as kept, or got by the token, for as long as that takes.
///
/// # Errors
/// If the words do not suffice, the server is another cluster's, or the token does not hold.
pub async fn credentials(layout: &Layout, node: &str, invitation: &Invitation) -> anyhow::Result<Stored> {
    if let Some(stored) = load(layout)? {
        match (validity(&stored.cert_pem, Timestamp::now()), &invitation.token) {
            (Validity::Over, None) => anyhow::bail!(
                "the node's certificate has ended: join again with a token of `trine token create`"
            ),
            (Validity::Over, Some(_)) => {}
            _ => return moved(layout, stored, invitation.server.as_deref()),
        }
    }
    let server =
        invitation.server.as_deref().context("--server is missing: which cluster shall this node join?")?;
    let token = invitation.token.as_ref().context("--token is missing: `trine token create` prints one")?;
    let stored = persist(|| join(server, token, invitation.ca_pem.as_deref(), node)).await?;
    save(layout, &stored)?;
    tracing::info!(server, node, "joined the cluster");
    Ok(stored)
}

/// A server may be reached under another URL than last time; it is the same authority's.
fn moved(layout: &Layout, stored: Stored, server: Option<&str>) -> anyhow::Result<Stored> {
    match server {
        Some(server) if server != stored.server => {
            let stored = Stored { server: server.to_owned(), ..stored };
            save(layout, &stored)?;
            Ok(stored)
        }
        _ => Ok(stored),
    }
}

async fn join(server: &str, token: &Token, ca_pem: Option<&str>, node: &str) -> anyhow::Result<Stored> {
    let uri: http::Uri = server.parse().with_context(|| format!("--server {server}"))?;
    let host = uri.host().with_context(|| format!("--server {server} names no host"))?;
    anyhow::ensure!(uri.scheme_str() == Some("https"), "--server {server}: https is the only way in");
    let ca_pem = match (ca_pem, token.pin) {
        (Some(pem), _) => pem.to_owned(),
        (None, Some(pin)) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            pin::authority(host, uri.port_u16().unwrap_or(443), pin).await?
        }
        (None, None) => anyhow::bail!(
            "the token does not say whose cluster it is: take all of what `trine token create` prints, or name the \
             authority's certificate with --ca-file"
        ),
    };
    let user = format!("token: {}", token.bearer());
    let client = client(&kubeconfig(server, &ca_pem, &user)).await?;
    let (cert_pem, key_pem) = certificate(&client, node, &Purpose::Client).await?;
    Ok(Stored { server: server.to_owned(), ca_pem, cert_pem, key_pem })
}

/// Tries until it is done or another attempt would not help.
async fn persist<T>(work: impl AsyncFn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut pause = PAUSE.0;
    loop {
        match work().await {
            Ok(done) => return Ok(done),
            Err(error) if !passes(&error) => return Err(error),
            Err(error) => tracing::warn!("the cluster cannot be joined yet: {error:#}"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// True if it may go better later: the server is not there yet, or has trouble.
fn passes(error: &anyhow::Error) -> bool {
    let refused = error.chain().find_map(|e| match e.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status.code < 500 && status.code != 429),
        _ => None,
    });
    let io = error.chain().any(|e| e.is::<std::io::Error>() || e.is::<kube::Error>());
    let late = error.chain().any(|e| e.is::<tokio::time::error::Elapsed>());
    refused != Some(true) && (io || late) && !pin::is_stranger(error)
}

/// A client of a kubeconfig's text.
///
/// # Errors
/// If it is none.
pub async fn client(text: &str) -> anyhow::Result<Client> {
    let file = kube::config::Kubeconfig::from_yaml(text)?;
    let config =
        kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?;
    Ok(trine_typed::client::of(config)?)
}

/// The client of what is kept.
///
/// # Errors
/// If it cannot be used.
pub async fn client_of(layout: &Layout) -> anyhow::Result<Client> {
    let path = layout.agent().join("kubeconfig");
    debug_assert!(credentials::exist(layout));
    Ok(trine_typed::client::from_kubeconfig(&path).await?)
}

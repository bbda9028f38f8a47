//! `trine agent`: the planes of a node alone, of a cluster whose server is elsewhere.
//!
//! - [`token`] what a node shows first, [`pin`] how it knows the server
//! - `join` the first certificate, [`credentials`] where it is kept, `keep` the next ones
//! - `request` asking for a certificate
//! - `current` a client under which they are exchanged

pub mod credentials;
mod current;
mod join;
mod keep;
mod pin;
mod request;
#[cfg(test)]
mod tests;
pub mod token;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use trine_typed::kube::Client;

use crate::cli::node_args::{AgentArgs, JoinArgs};
use crate::control::ended;
use crate::daemon;
use crate::families::NodeIps;
use crate::identity::Identity;
use crate::layout::Layout;
use crate::node::{self, Node, Pair, Ways};
use crate::planes::Planes;
use crate::settings::Settings;
use join::Invitation;
use keep::Who;
pub use keep::unsigned;

/// How long to wait before the cluster's settings are asked for again.
const RETRY: Duration = Duration::from_millis(200);

/// Runs a node until SIGINT or SIGTERM. Its Pods go on.
///
/// # Errors
/// If the data dir is in use, or the cluster cannot be joined.
pub async fn run(args: &AgentArgs) -> anyhow::Result<()> {
    let layout = args.place.layout()?;
    let lock = daemon::claim(&layout)?;
    let stop = CancellationToken::new();
    let ended = async {
        tokio::select! {
            ended = ended() => ended,
            () = nobody_listens(), if args.while_stdin => Ok(()),
        }
    };
    let mut ended = std::pin::pin!(ended);
    let start = start(args, &layout, &stop);
    let planes = tokio::select! {
        ended = &mut ended => return Ok(ended?),
        planes = start => planes?,
    };
    ended.await?;
    stop.cancel();
    for plane in planes {
        plane.ended().await;
    }
    let _ = std::fs::remove_file(layout.pid_file());
    drop(lock);
    Ok(())
}

/// Until whoever started this process has gone.
async fn nobody_listens() {
    let mut byte = [0];
    while tokio::io::stdin().read(&mut byte).await.is_ok_and(|read| read > 0) {}
}

/// A node that the cluster knows. What it shows is exchanged before it ends, for ever.
pub struct Joined {
    /// Talks to the API server as the node.
    pub client: Client,
    /// What its kubelet shows, and shows next.
    pub serving: watch::Receiver<Pair>,
    /// The cluster's authority, PEM.
    pub ca_pem: String,
    who: Who,
    stored: credentials::Stored,
}

/// Joins the cluster, or comes back to it.
///
/// # Errors
/// If the words do not suffice, the server is another cluster's, or the token does not hold.
pub async fn join(layout: &Layout, node: &str, ip: IpAddr, args: &JoinArgs) -> anyhow::Result<Joined> {
    let invitation = invitation(args)?;
    let stored = join::credentials(layout, node, &invitation).await?;
    let who = Who { layout: layout.clone(), node: node.to_owned(), ip };
    let (newest, of_node) = watch::channel(Some(join::client_of(layout).await?));
    let client = current::client(of_node);
    let (newest_serving, serving) = watch::channel(keep::first_serving(&who)?);
    tokio::spawn(keep::client(who.clone(), stored.clone(), newest));
    tokio::spawn(keep::serving(who.clone(), client.clone(), newest_serving));
    Ok(Joined { client, serving, ca_pem: stored.ca_pem.clone(), who, stored })
}

async fn start(
    args: &AgentArgs,
    layout: &Layout,
    stop: &CancellationToken,
) -> anyhow::Result<Vec<crate::planes::Plane>> {
    let mut identity = Identity::of_node(layout, args.node_name.clone())?;
    let ips = NodeIps::told(&args.node_ip)?;
    let joined = join(layout, &identity.node, ips.primary, &args.join).await?;
    let of_node = joined.client;
    let (newest_planes, of_planes) = watch::channel(None);
    let of_planes = current::client(of_planes);
    tokio::spawn(keep::account(joined.who, of_node.clone(), joined.stored, newest_planes));
    let planes = Planes::new(layout.run().join("planes.json"), stop.clone());
    let settings = settings(layout, &mut identity, &of_node).await?;
    let node = Node {
        layout: layout.clone(),
        identity,
        ips: ips.within(&settings.pod_cidr),
        settings,
        serving: joined.serving,
        ca_pem: joined.ca_pem,
        words: args.node.clone(),
    };
    let ways = Ways {
        kubelet: of_node,
        network: of_planes.clone(),
        policies: of_planes.clone(),
        names: of_planes.clone(),
        volumes: of_planes,
    };
    let started = node::start(&planes, node, ways)?;
    daemon::record(layout, true)?;
    Ok(started)
}

fn invitation(args: &JoinArgs) -> anyhow::Result<Invitation> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let token = match (&args.token, &args.token_file) {
        (Some(token), _) => Some(token.clone()),
        // The file of a token that is needed no more may be gone.
        (None, Some(path)) if path.exists() => Some(read(path)?),
        (None, _) => None,
    };
    Ok(Invitation {
        server: args.server.clone(),
        token: token.map(|t| t.parse()).transpose()?,
        ca_pem: args.ca_file.as_deref().map(read).transpose()?,
    })
}

/// What the cluster says of itself, for as long as it takes to hear it; kept for the node's end without a server.
async fn settings(layout: &Layout, identity: &mut Identity, client: &Client) -> anyhow::Result<Settings> {
    let settings = loop {
        match Settings::fetch(client).await {
            Ok(settings) => break settings,
            Err(error) => tracing::warn!("{error:#}"),
        }
        tokio::time::sleep(RETRY).await;
    };
    identity.pod_cidr = settings.pod_cidr.to_string();
    identity.service_cidr = settings.service_cidr.to_string();
    identity.save(layout)?;
    Ok(settings)
}

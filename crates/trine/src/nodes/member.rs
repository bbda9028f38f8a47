//! One further node: its machine, the token with which it joins, and its process.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use trine_kernel::machine::{Machine, Shared};
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::kube::{Api, Client};

use super::{network, plan};
use crate::agent::{credentials, token};
use crate::control::write_private;
use crate::identity::Identity;
use crate::layout::Layout;
use crate::node_words::NodeWords;
use crate::planes::{Plane, Planes};

use plan::Member;

/// How long a node's process may take to end when told to; less than a plane may.
const STOP_DEADLINE: Duration = Duration::from_secs(8);
/// How long a token holds that only this machine's nodes are given.
const TOKEN_TTL: Duration = Duration::from_secs(3600);
const POLL: Duration = Duration::from_millis(20);

/// What nodes must know of their server.
#[derive(Clone)]
pub struct Server {
    /// Its URL.
    pub url: String,
    /// The way to it as the cluster's admin.
    pub admin: Client,
    /// Its authority, PEM.
    pub ca_pem: String,
    /// How the nodes run.
    pub words: NodeWords,
}

/// Why a node does not run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MemberError(String);

/// Starts the further nodes, each as a plane that is started again when its process ends.
#[must_use]
pub fn start(planes: &Planes, layout: &Layout, identity: &Identity, server: &Server) -> Vec<Plane> {
    let run = |member: Member| {
        let (layout, identity, server) = (layout.clone(), identity.clone(), server.clone());
        planes.run(format!("node {}", member.name), move |stop| {
            let all = (layout.clone(), identity.clone(), member.clone(), server.clone());
            async move {
                run(&all.0, &all.1, &all.2, &all.3, stop).await.map_err(|e| MemberError(format!("{e:#}")))
            }
        })
    };
    plan::members(identity).into_iter().map(run).collect()
}

/// The folders of all further nodes that there ever were, in order.
#[must_use]
pub fn folders(layout: &Layout) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(layout.nodes()).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|e| e.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// The folder of a node.
#[must_use]
pub fn folder(layout: &Layout, name: &str) -> PathBuf {
    layout.nodes().join(name)
}

/// The machine of a node.
#[must_use]
pub fn machine(layout: &Layout, name: &str) -> Machine {
    Machine::at(&folder(layout, name).join("ns"))
}

/// Where the token for a node's first start lies, until it has joined.
fn token_file(dir: &Path) -> PathBuf {
    dir.join("join-token")
}

async fn run(
    layout: &Layout,
    identity: &Identity,
    member: &Member,
    server: &Server,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let dir = folder(layout, &member.name);
    let (first, second) = (layout.clone(), member.clone());
    tokio::task::spawn_blocking(move || make(&first, &second)).await??;
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        ranged = own_range(&server.admin, &identity.node) => ranged?,
    }
    let of_node = Layout::seen_as(&dir, layout.root())?;
    let token = if !credentials::hold(&of_node) { Some(invite(server, &dir).await?) } else { None };
    let mut child = spawn(layout, member, server, &dir)?;
    // Its input is the word to go on: a process that outlives this one would be nobody's. To wait for a child closes it.
    let go_on = child.stdin.take();
    let joined = async {
        if let Some(token) = &token {
            while !credentials::hold(&of_node) {
                tokio::time::sleep(POLL).await;
            }
            let _ = std::fs::remove_file(token_file(&dir));
            if let Err(error) = token.revoke(&server.admin).await {
                tracing::warn!("a token that is needed no more holds until it ends: {error:#}");
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = stop.cancelled() => {
            drop(go_on);
            end(child).await
        }
        ended = child.wait() => {
            let ended = ended?;
            anyhow::bail!("its process ended with {ended}; {} says why", dir.join("log/trine.log").display())
        }
        () = joined => Ok(()),
    }
}

async fn end(mut child: Child) -> anyhow::Result<()> {
    if tokio::time::timeout(STOP_DEADLINE, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}

/// The first node has the first range: its Pods may have addresses of it before it is registered.
async fn own_range(admin: &Client, first: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(admin.clone());
    loop {
        let node = nodes.get_opt(first).await?;
        if node.and_then(|n| n.spec).and_then(|s| s.pod_cidr).is_some() {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Makes what is missing of a node's folders, machine and link.
fn make(layout: &Layout, member: &Member) -> anyhow::Result<()> {
    let dir = folder(layout, &member.name);
    let places = [
        (dir.join("kubelet"), layout.kubelet()),
        (dir.join("cni/net.d"), layout.cni_conf()),
        (dir.join("cni/bin"), layout.cni_bin()),
        (dir.join("log/pods"), layout.pod_logs()),
    ];
    for place in places.iter().flat_map(|(from, to)| [from, to]) {
        std::fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    }
    let machine = machine(layout, &member.name);
    if !machine.exists() {
        let shared = Shared {
            instead: places.to_vec(),
            foreign: vec![layout.root().to_owned(), layout.kubelet()],
            keep: vec![dir],
        };
        machine.create(&member.name, &shared)?;
    }
    network::join(member, &machine.netns()).context("cannot join the nodes' bridge")
}

async fn invite(server: &Server, dir: &Path) -> anyhow::Result<token::Token> {
    let token = token::Token::random(&server.ca_pem)?;
    token.publish(&server.admin, Some(TOKEN_TTL), "a node on the server's own machine").await?;
    write_private(&token_file(dir), &format!("{token}\n"))?;
    Ok(token)
}

fn spawn(layout: &Layout, member: &Member, server: &Server, dir: &Path) -> anyhow::Result<Child> {
    std::fs::create_dir_all(dir.join("log"))?;
    let log = OpenOptions::new().create(true).append(true).open(dir.join("log/trine.log"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("agent").arg("--data-dir").arg(dir).arg("--server").arg(&server.url);
    command.arg("--node-name").arg(&member.name).arg("--node-ip");
    let ips: Vec<String> = member.address.iter().map(|own| own.addr.to_string()).collect();
    command.arg(ips.join(","));
    command.arg("--in-machine").arg(dir.join("ns")).arg("--seen-as").arg(layout.root()).arg("--while-stdin");
    command.args(server.words.words());
    if token_file(dir).exists() {
        command.arg("--token-file").arg(token_file(dir));
    }
    command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).current_dir("/");
    command.process_group(0).kill_on_drop(true);
    command.spawn().context("cannot start its process")
}

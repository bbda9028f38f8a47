//! `trine status`: one line for each plane. Exit code 0 only if all are well.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use trine_contracts::cri::StatusRequest;
use trine_contracts::cri::runtime_service_client::RuntimeServiceClient;
use trine_contracts::csi::ProbeRequest;
use trine_contracts::csi::identity_client::IdentityClient;
use trine_contracts::socket;
use trine_kernel::netns::Netns;
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::kube::{Api, Client, ResourceExt};

use super::args::DataDir;
use crate::identity::Identity;
use crate::layout::Layout;
use crate::planes::PlaneState;
use crate::{daemon, nodes, planes};

/// How long one plane may take to answer.
const DEADLINE: Duration = Duration::from_secs(3);
/// Least width of the first column.
const WIDTH: usize = 16;

/// Runs the command.
///
/// # Errors
/// If the data dir's name is unusable.
pub async fn run(args: &DataDir) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(&args.data_dir)?;
    let Some(record) = daemon::running(&layout) else {
        println!("daemon           down     no process runs on {}", layout.root().display());
        return Ok(ExitCode::FAILURE);
    };
    let planes = planes::read(&layout.run().join("planes.json")).unwrap_or_default();
    let has = |plane: &str| planes.contains_key(plane);
    let mut lines = vec![("daemon".to_owned(), Ok(format!("process {}", record.process.pid)))];
    lines.push(("api".to_owned(), answered(api(&layout)).await));
    // A control plane alone has no sockets, and need not have nodes.
    let sees_all = layout.kubeconfig().exists();
    lines.push(("node".to_owned(), answered(node(&layout, sees_all, has("kubelet"))).await));
    if has("cri") {
        lines.push(("cri socket".to_owned(), answered(cri(&layout)).await));
    }
    if has("csi-driver") {
        lines.push(("csi socket".to_owned(), answered(csi(&layout)).await));
    }
    if has("overlay") {
        lines.push(("ways".to_owned(), ways(&layout, None)));
    }
    lines.extend(planes.into_iter().map(told));
    for dir in nodes::folders(&layout) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let of_node = Layout::seen_as(&dir, layout.root())?;
        if daemon::running(&of_node).is_some() {
            lines.push((
                format!("{name} ways"),
                ways(&of_node, Some(&nodes::machine(&layout, &name).netns())),
            ));
            let of_node = planes::read(&dir.join("run/planes.json")).unwrap_or_default();
            lines.extend(of_node.into_iter().map(|(plane, state)| told((format!("{name} {plane}"), state))));
        }
    }
    let width = lines.iter().map(|(plane, _)| plane.len()).max().unwrap_or(0).max(WIDTH);
    for (plane, result) in &lines {
        let (word, text) = match result {
            Ok(text) => ("ok", text),
            Err(text) => ("FAILED", text),
        };
        println!("{plane:<width$} {word:<8} {text}");
    }
    let well = lines.iter().all(|(_, result)| result.is_ok());
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// By which ways other nodes' Pods are reached, from this machine or from one within it.
fn ways(layout: &Layout, netns: Option<&Path>) -> Result<String, String> {
    let found = || -> anyhow::Result<String> {
        let identity = Identity::load(layout)?.context("no identity")?;
        let told = || trine_overlay::tell(&identity.instance);
        Ok(match netns {
            Some(netns) => Netns::open(netns)?.run(told)??,
            None => told()?,
        })
    };
    found().map_err(|e| format!("{e:#}"))
}

/// What a process says of one of its planes.
fn told((plane, state): (String, PlaneState)) -> (String, Result<String, String>) {
    let error = state.last_error.map(|e| format!(", last error: {e}")).unwrap_or_default();
    let text = format!("since {}, restarts {}{error}", state.since, state.restarts);
    (plane, if state.running { Ok(text) } else { Err(text) })
}

async fn answered(check: impl Future<Output = anyhow::Result<String>>) -> Result<String, String> {
    match tokio::time::timeout(DEADLINE, check).await {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(_) => Err(format!("no answer within {DEADLINE:?}")),
    }
}

async fn api(layout: &Layout) -> anyhow::Result<String> {
    let client = client(layout).await?;
    let answer = client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
    Ok(format!("readyz {}", answer.trim()))
}

/// The admin's way to the API server, or a node's.
async fn client(layout: &Layout) -> anyhow::Result<Client> {
    let (admins, nodes) = (layout.kubeconfig(), layout.agent().join("kubeconfig"));
    Ok(trine_typed::client::from_kubeconfig(if admins.exists() { &admins } else { &nodes }).await?)
}

/// `all`: not only the data dir's own node. `needed`: without any, something is wrong.
async fn node(layout: &Layout, all: bool, needed: bool) -> anyhow::Result<String> {
    let nodes: Api<Node> = Api::all(client(layout).await?);
    let nodes = if all {
        nodes.list(&Default::default()).await?.items
    } else {
        let own = Identity::load(layout)?.map(|identity| identity.node).unwrap_or_default();
        vec![nodes.get(&own).await?]
    };
    let mut ready = Vec::new();
    for node in nodes {
        let name = node.name_any();
        let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
        let condition = conditions.into_iter().find(|c| c.type_ == "Ready");
        match condition {
            Some(c) if c.status == "True" => ready.push(name),
            Some(c) => anyhow::bail!("{name} is not Ready: {}", c.message.unwrap_or_default()),
            None => anyhow::bail!("{name} does not say whether it is Ready"),
        }
    }
    anyhow::ensure!(!needed || !ready.is_empty(), "no node has registered");
    Ok(if ready.is_empty() { "none yet".to_owned() } else { format!("Ready: {}", ready.join(" ")) })
}

async fn cri(layout: &Layout) -> anyhow::Result<String> {
    let mut client = RuntimeServiceClient::new(socket::connect(layout.cri_socket()));
    let status =
        client.status(StatusRequest { verbose: false }).await?.into_inner().status.unwrap_or_default();
    for condition in &status.conditions {
        anyhow::ensure!(condition.status, "{}: {}", condition.r#type, condition.message);
    }
    Ok(status.conditions.into_iter().map(|c| c.r#type).collect::<Vec<_>>().join(" "))
}

async fn csi(layout: &Layout) -> anyhow::Result<String> {
    let mut client = IdentityClient::new(socket::connect(layout.csi_socket()));
    let answer = client.probe(ProbeRequest {}).await?.into_inner();
    anyhow::ensure!(answer.ready.unwrap_or(true), "the driver is not ready yet");
    Ok("Probe".to_owned())
}

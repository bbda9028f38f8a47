//! `trine status`: one line for each plane. Exit code 0 only if all are well.

use std::process::ExitCode;
use std::time::Duration;

use trine_contracts::cri::StatusRequest;
use trine_contracts::cri::runtime_service_client::RuntimeServiceClient;
use trine_contracts::csi::ProbeRequest;
use trine_contracts::csi::identity_client::IdentityClient;
use trine_contracts::socket;
use trine_typed::k8s_openapi::api::core::v1::Node;
use trine_typed::kube::{Api, ResourceExt};

use super::args::DataDir;
use crate::layout::Layout;
use crate::{daemon, planes};

/// How long one plane may take to answer.
const DEADLINE: Duration = Duration::from_secs(3);

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
    let mut well = true;
    let mut line = |plane: &str, result: Result<String, String>| {
        let (word, text) = match result {
            Ok(text) => ("ok", text),
            Err(text) => {
                well = false;
                ("FAILED", text)
            }
        };
        println!("{plane:<16} {word:<8} {text}");
    };
    line("daemon", Ok(format!("process {}", record.process.pid)));
    line("api", answered(api(&layout)).await);
    line("node", answered(node(&layout)).await);
    line("cri socket", answered(cri(&layout)).await);
    line("csi socket", answered(csi(&layout)).await);
    for (plane, state) in planes::read(&layout.run().join("planes.json")).unwrap_or_default() {
        let text = format!("since {}, restarts {}", state.since, state.restarts);
        let error = state.last_error.map(|e| format!(", last error: {e}")).unwrap_or_default();
        line(&plane, if state.running { Ok(text + &error) } else { Err(text + &error) });
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn answered(check: impl Future<Output = anyhow::Result<String>>) -> Result<String, String> {
    match tokio::time::timeout(DEADLINE, check).await {
        Ok(Ok(text)) => Ok(text),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(_) => Err(format!("no answer within {DEADLINE:?}")),
    }
}

async fn api(layout: &Layout) -> anyhow::Result<String> {
    let client = trine_typed::client::from_kubeconfig(&layout.kubeconfig()).await?;
    let answer = client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
    Ok(format!("readyz {}", answer.trim()))
}

async fn node(layout: &Layout) -> anyhow::Result<String> {
    let client = trine_typed::client::from_kubeconfig(&layout.kubeconfig()).await?;
    let mut ready = Vec::new();
    for node in Api::<Node>::all(client).list(&Default::default()).await? {
        let name = node.name_any();
        let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
        let condition = conditions.into_iter().find(|c| c.type_ == "Ready");
        match condition {
            Some(c) if c.status == "True" => ready.push(name),
            Some(c) => anyhow::bail!("{name} is not Ready: {}", c.message.unwrap_or_default()),
            None => anyhow::bail!("{name} does not say whether it is Ready"),
        }
    }
    anyhow::ensure!(!ready.is_empty(), "no node has registered");
    Ok(format!("Ready: {}", ready.join(" ")))
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

//! `trine exec`: standard streams and terminal over a WebSocket; the exit code is the command's.

use std::process::ExitCode;

use anyhow::Context;
use futures::SinkExt;
use tokio::io::{AsyncWriteExt, copy};
use trine_typed::k8s_openapi::api::core::v1::Pod;
use trine_typed::k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use trine_typed::kube::Api;
use trine_typed::kube::api::{AttachParams, TerminalSize};

use super::args::ExecArgs;
use super::connect::connect;

/// Runs the command.
///
/// # Errors
/// If the command could not be started, or the connection broke.
pub async fn run(args: ExecArgs) -> anyhow::Result<ExitCode> {
    let client = connect(&args.target).await?;
    let pods: Api<Pod> = Api::namespaced(client, &args.target.namespace);
    let params = AttachParams {
        container: args.container.clone(),
        stdin: args.stdin,
        stdout: true,
        stderr: !args.tty,
        tty: args.tty,
        ..AttachParams::default()
    };
    let name = args.pod.strip_prefix("pod/").unwrap_or(&args.pod);
    let mut process = pods.exec(name, &args.command, &params).await?;
    let raw = if args.tty { trine_kernel::terminal::raw_mode() } else { None };
    if let (Some(mut size), Some((columns, rows))) = (process.terminal_size(), trine_kernel::terminal::size())
    {
        size.send(TerminalSize { width: columns, height: rows }).await.ok();
    }
    if let Some(mut stdin) = process.stdin().filter(|_| args.stdin) {
        tokio::spawn(async move {
            copy(&mut tokio::io::stdin(), &mut stdin).await.ok();
            stdin.shutdown().await.ok();
        });
    }
    let stdout = process.stdout().map(|mut from| {
        tokio::spawn(async move {
            let mut to = tokio::io::stdout();
            copy(&mut from, &mut to).await.ok();
            to.flush().await.ok();
        })
    });
    let stderr = process.stderr().map(|mut from| {
        tokio::spawn(async move {
            copy(&mut from, &mut tokio::io::stderr()).await.ok();
        })
    });
    let status = process.take_status().context("the server sends no status")?.await;
    for task in [stdout, stderr].into_iter().flatten() {
        task.await.ok();
    }
    drop(raw);
    exit_code(status)
}

fn exit_code(status: Option<Status>) -> anyhow::Result<ExitCode> {
    let Some(status) = status else { anyhow::bail!("the connection ended without a status") };
    if status.status.as_deref() == Some("Success") {
        return Ok(ExitCode::SUCCESS);
    }
    let causes = status.details.as_ref().and_then(|d| d.causes.as_ref());
    let code = causes.into_iter().flatten().find(|c| c.reason.as_deref() == Some("ExitCode"));
    match code.and_then(|c| c.message.as_ref()?.parse::<u8>().ok()) {
        Some(code) => Ok(ExitCode::from(code)),
        None => anyhow::bail!("{}", status.message.unwrap_or_default()),
    }
}

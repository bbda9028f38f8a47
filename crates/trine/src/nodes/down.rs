//! The end of the further nodes, from what is on the disk alone: with or without their processes, and twice.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::{member, network, plan};
use crate::daemon;
use crate::identity::Identity;
use crate::layout::Layout;

/// How long one node's end may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// Stops all further nodes with their Pods and removes their machines; gives what could not be undone. Their data stay.
pub async fn tear_down(layout: &Layout, identity: &Identity) -> Vec<String> {
    let all = member::folders(layout).into_iter().map(|dir| async move {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let problems = one(layout, &name).await;
        problems.into_iter().map(|problem| format!("node {name}: {problem}")).collect::<Vec<_>>()
    });
    let mut problems: Vec<String> = futures::future::join_all(all).await.into_iter().flatten().collect();
    for member in plan::members(identity) {
        problems.extend(network::leave(&member).err().map(|e| format!("node {}: {e:#}", member.name)));
    }
    problems.extend(network::remove(identity).err().map(|e| format!("{e:#}")));
    problems
}

async fn one(layout: &Layout, name: &str) -> Vec<String> {
    let dir = member::folder(layout, name);
    let machine = member::machine(layout, name);
    let mut problems = Vec::new();
    match Layout::seen_as(&dir, layout.root()).and_then(|of_node| daemon::stop(&of_node)) {
        Ok(_) => {}
        Err(error) => problems.push(format!("{error:#}")),
    }
    // Where its mounts and links are; after a reboot there is no such place, and nothing in it.
    let place = machine.exists().then(|| dir.join("ns"));
    problems.extend(inside(layout, &dir, place.as_deref()).await.err().map(|e| format!("{e:#}")));
    problems.extend(machine.remove().err().map(|e| trine_typed::chain::display(&e)));
    problems
}

/// What `down` undoes of a node is undone where it was made.
async fn inside(
    layout: &Layout,
    dir: &std::path::Path,
    machine: Option<&std::path::Path>,
) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("down").arg("--data-dir").arg(dir).arg("--seen-as").arg(layout.root());
    if let Some(machine) = machine {
        command.arg("--in-machine").arg(machine);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut command = tokio::process::Command::from(command);
    let output = tokio::time::timeout(DEADLINE, command.kill_on_drop(true).output()).await??;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    anyhow::ensure!(output.status.success(), "{said}");
    Ok(())
}

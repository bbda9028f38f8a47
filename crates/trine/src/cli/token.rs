//! `trine token create`: lets a node join.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use trine_typed::kube::config::Kubeconfig;

use super::args::Target;
use super::connect::{connect, kubeconfig};
use super::node_args::TokenCommand;
use crate::agent::token::Token;

/// Runs the command.
///
/// # Errors
/// If the cluster does not answer, or refuses.
pub async fn run(command: TokenCommand) -> anyhow::Result<()> {
    let TokenCommand::Create { ttl, target } = command;
    let token = Token::random(&authority(&target)?)?;
    let client = connect(&target).await?;
    token.publish(&client, Some(ttl).filter(|ttl| !ttl.is_zero()), "trine token create").await?;
    println!("{token}");
    Ok(())
}

/// The authority of the cluster, PEM, as its kubeconfig says.
fn authority(target: &Target) -> anyhow::Result<String> {
    let path = kubeconfig(target)?;
    let file = Kubeconfig::read_from(&path)?;
    let context = file.contexts.iter().find(|c| Some(&c.name) == file.current_context.as_ref());
    let named = context.and_then(|c| c.context.as_ref()).map(|c| &c.cluster);
    let cluster = file.clusters.iter().find(|c| Some(&c.name) == named).and_then(|c| c.cluster.as_ref());
    let cluster = cluster.with_context(|| format!("{} names no cluster", path.display()))?;
    match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => Ok(String::from_utf8(STANDARD.decode(data)?)?),
        (None, Some(file)) => std::fs::read_to_string(file).with_context(|| format!("cannot read {file}")),
        (None, None) => anyhow::bail!("{} does not name the cluster's authority", path.display()),
    }
}

//! `trine token create`: lets a node join.

use super::connect::{connect, kubeconfig};
use super::node_args::TokenCommand;
use crate::agent::token::Token;
use crate::alone::authority;

/// Runs the command.
///
/// # Errors
/// If the cluster does not answer, or refuses.
pub async fn run(command: TokenCommand) -> anyhow::Result<()> {
    let TokenCommand::Create { ttl, target } = command;
    let token = Token::random(&authority::pem(&kubeconfig(&target)?)?)?;
    let client = connect(&target).await?;
    token.publish(&client, Some(ttl).filter(|ttl| !ttl.is_zero()), "trine token create").await?;
    println!("{token}");
    Ok(())
}

//! Wires the parts.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use trine_typed::kube::Client;

use crate::announce;
use crate::answer::Domain;
use crate::config::Config;
use crate::error::DnsError;
use crate::resolver::Resolver;
use crate::sockets::Sockets;
use crate::watch::watch;

/// Answers until told to stop.
///
/// # Errors
/// [`DnsError`] if the address cannot be had, or a watch ends by itself.
pub async fn run(client: Client, config: Config, stop: CancellationToken) -> Result<(), DnsError> {
    let Some(domain) = Domain::new(&config.domain) else {
        return Err(DnsError::Domain { domain: config.domain });
    };
    let sockets = Sockets::bind(config.address, config.port).await?;
    let address = sockets.address;
    tracing::info!(%address, domain = %domain.name, "answers names");
    let resolver = Arc::new(Resolver::new(domain, config.resolv_conf, address));
    let announced = async {
        match config.announce {
            Some(node) => announce::keep(client.clone(), node, address, &stop).await,
            None => stop.cancelled().await,
        }
    };
    tokio::select! {
        watched = watch(client.clone(), &resolver, &stop) => watched,
        () = sockets.serve(Arc::clone(&resolver), &stop) => Ok(()),
        () = announced => Ok(()),
    }
}

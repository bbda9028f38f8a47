//! `trine scheduler`, `controllers`, `csi-controllers`, `dns`: what a cluster has once, on anybody's API server.

use anyhow::Context;
use trine_controllers::SigningKey;
use trine_typed::client::from_kubeconfig;

use super::{authority, path_or, read, until_signalled};
use crate::builtin;
use crate::cli::alone_args::{ControllersArgs, CsiControllersArgs, DnsArgs, SchedulerArgs};
use crate::identity::node_name;
use crate::layout::Layout;
use crate::once::once;

/// `trine scheduler`, until SIGINT or SIGTERM.
///
/// # Errors
/// If the kubeconfig or the settings cannot be used, or the lead is lost.
pub async fn scheduler(args: SchedulerArgs) -> anyhow::Result<()> {
    let config = match &args.config {
        Some(file) => {
            trine_scheduler::profile::read(&read(file)?).with_context(|| file.display().to_string())?
        }
        None => trine_scheduler::Config::named(&args.scheduler_name),
    };
    let client = from_kubeconfig(&args.kubeconfig).await?;
    let (api, leader) = (client.clone(), leader(args.leader_elect || config.elects));
    // Schedulers of different names do not stand for one lead.
    let names: Vec<&str> = config.profiles.iter().map(|profile| profile.name.as_str()).collect();
    let lease = match names.as_slice() {
        names if names.contains(&"default-scheduler") => "trine-scheduler".to_owned(),
        names => format!("trine-scheduler-{}", names.first().copied().unwrap_or_default()),
    };
    let work = |stop| trine_scheduler::run(api.clone(), api.into(), config, stop);
    until_signalled(|stop| async move { Ok(once(client, &lease, leader, stop, work).await?) }).await
}

/// `trine controllers`, until SIGINT or SIGTERM. All of them are the kubeconfig's user.
///
/// # Errors
/// If the kubeconfig or a file cannot be used, or the lead is lost.
pub async fn controllers(args: ControllersArgs) -> anyhow::Result<()> {
    let key_pem = args.cluster_signing_key_file.as_deref().map(read).transpose()?;
    let ca = args.root_ca_file.as_deref();
    let config = trine_controllers::Config {
        ca_pem: ca.map_or_else(|| authority::pem(&args.kubeconfig), read)?,
        pod_cidr: args.cluster_cidr,
        node_prefix: builtin::NODE_PREFIX,
        signer: key_pem.map(|key_pem| SigningKey { key_pem }),
    };
    let client = from_kubeconfig(&args.kubeconfig).await?;
    let (api, leader) = (client.clone(), leader(args.leader_elect));
    let work = |stop| trine_controllers::run(api, config, stop);
    until_signalled(|stop| async move { Ok(once(client, "trine-controllers", leader, stop, work).await?) })
        .await
}

/// The name of a process that stands for the lead; none if it works without.
fn leader(elect: bool) -> Option<String> {
    elect.then(|| format!("{}_{}", node_name(), std::process::id()))
}

/// `trine csi-controllers`, until SIGINT or SIGTERM, for the driver at a socket, whosever it is.
///
/// # Errors
/// If the kubeconfig cannot be used, or the driver's objects cannot be made.
pub async fn csi_controllers(args: CsiControllersArgs) -> anyhow::Result<()> {
    let layout = Layout::new(&args.data_dir.data_dir)?;
    let client = from_kubeconfig(&args.kubeconfig).await?;
    let own = layout.csi_socket();
    let config = trine_csi_controllers::Config {
        socket: path_or(args.endpoint.as_ref(), own.clone())?,
        node_name: args.node_name,
        tell_claims: args.extra_create_metadata,
        create_driver_object: args.create_objects,
    };
    if args.create_objects && config.socket == own {
        builtin::create_class(&client).await?;
    }
    until_signalled(|stop| async move { Ok(trine_csi_controllers::run(client, config, stop).await?) }).await
}

/// `trine dns`, until SIGINT or SIGTERM.
///
/// # Errors
/// If the kubeconfig cannot be used, or the address cannot be had.
pub async fn dns(args: DnsArgs) -> anyhow::Result<()> {
    let client = from_kubeconfig(&args.kubeconfig).await?;
    let config = trine_dns::Config {
        address: args.address,
        port: args.port,
        domain: args.domain,
        resolv_conf: args.resolv_conf,
        announce: args.announce.map(|node| trine_dns::Announcement { node }),
    };
    until_signalled(|stop| async move { Ok(trine_dns::run(client, config, stop).await?) }).await
}

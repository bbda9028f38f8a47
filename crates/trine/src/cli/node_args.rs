//! The words of `server`, `agent` and `token`: a cluster in parts.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use trine_overlay::{Checksums, Mode};

use super::api_args::ApiArgs;
use super::args::{DataDir, Target};
use crate::families::IpFamily;
use crate::layout::Layout;
use crate::node_words::NodeWords;
use crate::storage::StoreArgs;

/// The addresses of a cluster, and how its nodes reach each other's Pods.
#[derive(Debug, Clone, Default, Args)]
pub struct NetworkArgs {
    /// The addresses of Pods and Services: `ipv4`, or `dual` for IPv6 beside it; chosen at the first start [default: ipv4]
    #[arg(long, value_name = "FAMILY")]
    pub ip_family: Option<IpFamily>,
    /// How nodes reach each other's Pods: `direct` routes to neighbours, `vxlan` tunnels to all, `auto` routes to neighbours and tunnels
    /// to others; nodes read it when they start [default: as last time, at first auto]
    #[arg(long, value_name = "HOW")]
    pub overlay: Option<Mode>,
    /// Who computes the checksums of what goes through tunnels: `offload` the hardware, `software` the tunnel, `auto` whoever turns
    /// out to be able to [default: as last time, at first auto]
    #[arg(long, value_name = "WHO")]
    pub tunnel_checksums: Option<Checksums>,
}

impl NetworkArgs {
    /// The words that say the same to another process.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mode = self.overlay.map(|mode| ["--overlay".to_owned(), mode.to_string()]);
        let checksums = self.tunnel_checksums.map(|told| ["--tunnel-checksums".to_owned(), told.to_string()]);
        let family = self.ip_family.map(|family| ["--ip-family".to_owned(), family.to_string()]);
        mode.into_iter().chain(checksums).chain(family).flatten().collect()
    }
}

/// Words of `server`.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// Where the cluster's files are
    #[command(flatten)]
    pub data_dir: DataDir,
    /// The address at which nodes and Pods reach it [default: the one by which this machine is reached]
    #[arg(long, value_name = "IP")]
    pub advertise: Option<IpAddr>,
    /// Its addresses, and how nodes reach each other
    #[command(flatten)]
    pub network: NetworkArgs,
    /// What the API server notes and serves
    #[command(flatten)]
    pub api: ApiArgs,
    /// Which store
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Where a node's files are, and where it is.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// Where the files are
    #[command(flatten)]
    pub data_dir: DataDir,
    /// The machine within this one that the node is: the folder of its namespaces
    #[arg(long, hide = true, value_name = "DIR")]
    pub in_machine: Option<PathBuf>,
    /// The data dir whose paths the kubelet and the network have in that machine
    #[arg(long, hide = true, value_name = "DIR")]
    pub seen_as: Option<PathBuf>,
}

impl Place {
    /// The files.
    ///
    /// # Errors
    /// If the data dir's name is unusable.
    pub fn layout(&self) -> anyhow::Result<Layout> {
        match &self.seen_as {
            Some(other) => Layout::seen_as(&self.data_dir.data_dir, other),
            None => Layout::new(&self.data_dir.data_dir),
        }
    }
}

/// How a node joins a cluster.
#[derive(Debug, Clone, Args)]
pub struct JoinArgs {
    /// The server, as `https://HOST:PORT` [default: the one from last time]
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// The token with which the node joins, as `trine token create` prints it; only its first start needs one
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The file that holds the token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,
    /// The certificate of the cluster's authority, PEM, if the token does not pin it
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// Words of `agent`.
#[derive(Debug, Clone, Args)]
pub struct AgentArgs {
    /// How it joins
    #[command(flatten)]
    pub join: JoinArgs,
    /// The node's name [default: this machine's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// The address at which the server and the other nodes reach it, and one of the other family [default: those by which this machine
    /// is reached]
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// How it runs
    #[command(flatten)]
    pub node: NodeWords,
    /// Where it is
    #[command(flatten)]
    pub place: Place,
    /// End when standard input does
    #[arg(long, hide = true)]
    pub while_stdin: bool,
}

/// Words of `token`.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it
    Create {
        /// How long it holds: seconds, or with a unit (30m, 24h); 0 for until it is removed
        #[arg(long, default_value = "24h", value_parser = lifetime)]
        ttl: Duration,
        /// Which cluster
        #[command(flatten)]
        target: Target,
    },
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(['s', 'm', 'h', 'd']).len());
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(format!("{unit:?} is no unit of s, m, h, d")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    Ok(Duration::from_secs(number.saturating_mul(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_has_a_unit_or_is_in_seconds() {
        for (text, seconds) in
            [("0", 0), ("90", 90), ("90s", 90), ("30m", 1800), ("24h", 86_400), ("2d", 172_800)]
        {
            assert_eq!(lifetime(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "h", "1w", "1hm", "-1"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }
}

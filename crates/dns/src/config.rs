//! Settings.

use std::net::IpAddr;
use std::path::PathBuf;

/// The first port that is tried where none is named. Port 53 of a machine is often somebody's already; clients ask the
/// Service, whose port is 53.
pub const FIRST_PORT: u16 = 10053;

/// What the name server of one node must know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to answer on.
    pub address: IpAddr,
    /// The port to answer on, UDP and TCP; the first free one from [`FIRST_PORT`] if none is named.
    pub port: Option<u16>,
    /// The cluster's domain. Default `cluster.local`.
    pub domain: String,
    /// Where the name servers for other names stand, read again when it changes.
    pub resolv_conf: PathBuf,
    /// Whether, and as what, this server joins the endpoints of the Service `kube-dns`.
    pub announce: Option<Announcement>,
}

/// This node in the Service's endpoints.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// The node's name.
    pub node: String,
}

//! `bridge`, with the reference's keys: a veth per container, its host's end a port of a bridge.
//!
//! - `config` the keys, checked
//! - `port` ADD and CHECK of one container
//! - `vlans` which VLANs a port has (pure; the kernel must have bridge VLAN filtering)
//! - `spoof` hardware addresses that a port may send from (`macspoofchk`)

mod config;
mod port;
mod spoof;
mod vlans;

use trine_kernel::testing::failpoint;

use self::config::Config;
use self::port::Port;
use super::delegate::Ipam;
use super::{Plugin, inside, links, masquerade};
use crate::invoke::Prefer;
use crate::spec::{CniError, CniResult, Command, Request};

/// The plugin.
pub struct Bridge;

/// The host's links begin with it.
const PREFIX: &str = "veth";

impl Plugin for Bridge {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        Port::of(request)?.add()
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        // Without a look at the rest of the configuration: what was made under another one goes, too.
        let link = links::remove_host_link(request, PREFIX);
        failpoint("bridge: disconnected");
        let spoof = spoof::del(request);
        let masked = masquerade::del(request);
        failpoint("bridge: unmasked");
        let ipam = Ipam::of(request, Prefer::Program).map_or(Ok(()), |ipam| ipam.del());
        CniError::all([link, spoof, masked, ipam].into_iter().filter_map(Result::err).collect())
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        Port::of(request)?.check()
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        let all = [
            links::remove_unmarked(request, PREFIX),
            spoof::gc(request),
            masquerade::gc(request),
            inside::ask_ipam(request, Command::Gc),
        ];
        CniError::all(all.into_iter().filter_map(Result::err).collect())
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        Config::of(request)?;
        inside::ask_ipam(request, Command::Status)
    }
}

//! `macvlan`: a hardware address of the container's own on a link of the host's.
//!
//! Keys: `master` (the link of the default route if none), `mode` (`bridge`, `private`, `vepa`, `passthru`), `mtu`, `mac`,
//! `linkInContainer`, `bcqueuelen`, `ipam`; `runtimeConfig.mac`.

use std::os::fd::AsFd;

use serde::Deserialize;
use trine_kernel::netlink::{Link, MacvlanMode, NewKind, NewLink, Route};
use trine_kernel::netns::Netns;

use super::inside::{self, Below};
use super::{Plugin, links};
use crate::spec::{CniError, CniResult, Code, Command, Request};

/// The plugin.
pub struct Macvlan;

/// Links begin with it until they have their own name.
const PREFIX: &str = "trmv";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    #[serde(flatten)]
    below: Below,
    mode: String,
    bcqueuelen: u32,
}

impl Config {
    fn mode(&self) -> Result<MacvlanMode, CniError> {
        match self.mode.as_str() {
            "" | "bridge" => Ok(MacvlanMode::Bridge),
            "private" => Ok(MacvlanMode::Private),
            "vepa" => Ok(MacvlanMode::Vepa),
            "passthru" => Ok(MacvlanMode::Passthru),
            other => Err(CniError::new(Code::InvalidConfig, format!("unknown macvlan mode: {other:?}"))),
        }
    }

    fn make(&self, request: &Request, netns: &Netns, pod: &mut Route) -> Result<Link, CniError> {
        let mode = self.mode()?;
        let mac = inside::wanted_mac(request)?;
        let (mut route, parent, mtu) = self.below.find(request)?;
        let name = links::host_name(PREFIX, &request.network, &request.attachment())?;
        let link = NewLink {
            name: &name,
            kind: NewKind::Macvlan { mode, broadcast_queue: Some(self.bcqueuelen).filter(|n| *n > 0) },
            parent: Some(parent.index),
            netns: Some(netns.as_fd()),
            mac,
            mtu,
            up: false,
        };
        route.run(&[link.request()])?;
        links::give_name(pod, &name, &request.env.ifname)
    }
}

impl Plugin for Macvlan {
    fn name(&self) -> &'static str {
        "macvlan"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let config: Config = request.config()?;
        inside::attach(
            request,
            |netns, pod| config.make(request, netns, pod),
            |_, pod, link| Ok(pod.del_link(link)?),
        )
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        inside::detach(request, "macvlan")
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let config: Config = request.config()?;
        config.below.find(request)?;
        let link = inside::check(request, Some("macvlan"))?;
        if link.macvlan == Some(config.mode()?) {
            return Ok(());
        }
        let msg = format!("{} is a macvlan of another mode: {:?}", link.name, link.macvlan);
        Err(CniError::new(Code::Internal, msg))
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        inside::ask_ipam(request, Command::Gc)
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        let config: Config = request.config()?;
        config.mode()?;
        if !config.below.link_in_container {
            config.below.find(request).map_err(|e| e.with_code(Code::NotAvailable))?;
        }
        inside::ask_ipam(request, Command::Status)
    }
}

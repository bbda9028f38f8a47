//! `tap`: a device whose frames a program in the container reads and writes, a virtual machine's for example.
//!
//! Keys: `multiQueue`, `mtu`, `mac`, `owner`, `group`, `bridge` (one in the container that it becomes a port of), `ipam`;
//! `runtimeConfig.mac`. `selinuxContext` is refused: a process with many threads cannot take another label for one of them.

use serde::Deserialize;
use trine_kernel::netlink::{Link, LinkChange, Route};
use trine_kernel::netns::Netns;
use trine_kernel::tun;

use super::{Plugin, inside};
use crate::spec::{CniError, CniResult, Code, Command, Request};

/// The plugin.
pub struct Tap;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    multi_queue: bool,
    mtu: u32,
    owner: Option<u32>,
    group: Option<u32>,
    selinux_context: String,
    bridge: String,
}

impl Config {
    fn of(request: &Request) -> Result<Self, CniError> {
        let config: Self = request.config()?;
        if config.selinux_context.is_empty() {
            return Ok(config);
        }
        let msg = "selinuxContext is not supported";
        Err(CniError::new(Code::UnsupportedField, msg).details("selinuxContext"))
    }

    fn make(&self, request: &Request, netns: &Netns, pod: &mut Route) -> Result<Link, CniError> {
        let mac = inside::wanted_mac(request)?;
        let name = &request.env.ifname;
        let master = if self.bridge.is_empty() {
            None
        } else {
            let none = || CniError::new(Code::InvalidConfig, format!("there is no bridge {:?}", self.bridge));
            Some(pod.find_link(&self.bridge)?.ok_or_else(none)?.index)
        };
        if pod.find_link(name)?.is_some() {
            let msg = format!("the container has a link {name} already");
            return Err(CniError::new(Code::InvalidEnvironment, msg));
        }
        let tap = tun::Tap { name, multi_queue: self.multi_queue, owner: self.owner, group: self.group };
        netns
            .run(|| tap.make())?
            .map_err(|e| CniError::new(Code::Internal, "the tap device cannot be made").because(e))?;
        let mtu = Some(self.mtu).filter(|mtu| *mtu > 0);
        let change = LinkChange { mac, mtu, master, up: Some(true), ..LinkChange::default() };
        pod.set_link(name, &change).and_then(|()| pod.link(name)).map_err(|e| {
            let _ = pod.del_link(name);
            e.into()
        })
    }
}

impl Plugin for Tap {
    fn name(&self) -> &'static str {
        "tap"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let config = Config::of(request)?;
        inside::attach(
            request,
            |netns, pod| config.make(request, netns, pod),
            |_, pod, link| Ok(pod.del_link(link)?),
        )
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        inside::detach(request, "tun")
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        inside::check(request, Some("tun")).map(drop)
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        inside::ask_ipam(request, Command::Gc)
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        Config::of(request)?;
        inside::ask_ipam(request, Command::Status)
    }
}

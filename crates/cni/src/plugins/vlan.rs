//! `vlan`: one VLAN of a link of the host's. The kernel must have 802.1Q.
//!
//! Keys: `master` (the link of the default route if none), `vlanId`, `mtu`, `linkInContainer`, `ipam`.

use std::os::fd::AsFd;

use serde::Deserialize;
use trine_kernel::netlink::{Link, NewKind, NewLink, Route};
use trine_kernel::netns::Netns;

use super::inside::{self, Below};
use super::{Plugin, links};
use crate::spec::{CniError, CniResult, Code, Command, Request};

/// The plugin.
pub struct Vlan;

/// Links begin with it until they have their own name.
const PREFIX: &str = "trvl";
/// The highest id of a VLAN.
const LAST_ID: i64 = 4094;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    #[serde(flatten)]
    below: Below,
    vlan_id: i64,
}

impl Config {
    fn of(request: &Request) -> Result<Self, CniError> {
        let config: Self = request.config()?;
        config.id()?;
        Ok(config)
    }

    fn id(&self) -> Result<u16, CniError> {
        u16::try_from(self.vlan_id).ok().filter(|id| i64::from(*id) <= LAST_ID).ok_or_else(|| {
            let msg = format!("invalid VLAN ID {} (must be between 0 and {LAST_ID} inclusive)", self.vlan_id);
            CniError::new(Code::InvalidConfig, msg)
        })
    }

    fn make(&self, request: &Request, netns: &Netns, pod: &mut Route) -> Result<Link, CniError> {
        let (mut route, parent, mtu) = self.below.find(request)?;
        let name = links::host_name(PREFIX, &request.network, &request.attachment())?;
        let link = new_link(&name, self.id()?, &parent, mtu, netns);
        route.run(&[link.request()])?;
        links::give_name(pod, &name, &request.env.ifname)
    }
}

fn new_link<'a>(name: &'a str, id: u16, parent: &Link, mtu: Option<u32>, netns: &'a Netns) -> NewLink<'a> {
    NewLink {
        name,
        kind: NewKind::Vlan { id },
        parent: Some(parent.index),
        netns: Some(netns.as_fd()),
        mac: None,
        mtu,
        up: false,
    }
}

impl Plugin for Vlan {
    fn name(&self) -> &'static str {
        "vlan"
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
        inside::detach(request, "vlan")
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let config = Config::of(request)?;
        config.below.find(request)?;
        let link = inside::check(request, Some("vlan"))?;
        if link.vlan == Some(config.id()?) {
            return Ok(());
        }
        Err(CniError::new(Code::Internal, format!("{} is of another VLAN: {:?}", link.name, link.vlan)))
    }

    fn gc(&self, request: &Request) -> Result<(), CniError> {
        inside::ask_ipam(request, Command::Gc)
    }

    fn status(&self, request: &Request) -> Result<(), CniError> {
        let config = Config::of(request)?;
        if !config.below.link_in_container {
            config.below.find(request).map_err(|e| e.with_code(Code::NotAvailable))?;
        }
        inside::ask_ipam(request, Command::Status)
    }
}

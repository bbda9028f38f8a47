//! `loopback`: sets `lo` up.

use std::path::Path;

use trine_kernel::netlink::{LinkChange, Route};
use trine_kernel::netns::Netns;

use super::Plugin;
use crate::spec::{CniError, CniResult, Code, Interface, IpConfig, Request};

/// The plugin.
pub struct Loopback;

impl Plugin for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }

    fn add(&self, request: &Request) -> Result<CniResult, CniError> {
        let mut route = Route::open_in(&Netns::open(Path::new(&request.env.netns))?)?;
        route.set_link("lo", &LinkChange { up: Some(true), ..LinkChange::default() })?;
        if let Some(result) = &request.prev_result {
            return Ok(result.clone());
        }
        let lo = route.link("lo")?;
        let interface = Interface {
            name: "lo".to_owned(),
            mac: lo.mac.map(|mac| mac.to_string()),
            sandbox: Some(request.env.netns.clone()),
            ..Interface::default()
        };
        let ips = route.addresses(Some(lo.index))?.into_iter();
        let ips = ips.map(|a| IpConfig { interface: Some(0), address: a.addr, gateway: None }).collect();
        Ok(CniResult { interfaces: vec![interface], ips, ..CniResult::default() })
    }

    fn del(&self, request: &Request) -> Result<(), CniError> {
        let Ok(netns) = Netns::open(Path::new(&request.env.netns)) else { return Ok(()) };
        let mut route = Route::open_in(&netns)?;
        Ok(route.set_link("lo", &LinkChange { up: Some(false), ..LinkChange::default() })?)
    }

    fn check(&self, request: &Request) -> Result<(), CniError> {
        let mut route = Route::open_in(&Netns::open(Path::new(&request.env.netns))?)?;
        if route.link("lo")?.up { Ok(()) } else { Err(CniError::new(Code::Internal, "lo is down")) }
    }

    fn gc(&self, _: &Request) -> Result<(), CniError> {
        Ok(())
    }

    fn status(&self, _: &Request) -> Result<(), CniError> {
        Ok(())
    }
}

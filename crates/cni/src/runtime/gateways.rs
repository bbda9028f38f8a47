//! Which way a container's default routes go, when it is attached to several networks: said for each link, in place of what its
//! plugins made.

use std::net::IpAddr;
use std::path::Path;

use trine_kernel::netlink::{Cidr, MAIN_TABLE, Route, RouteEntry};
use trine_kernel::netns::Netns;

use crate::spec::{CniError, CniResult, Code, RouteConfig};

/// Has the default routes by the link `ifname` go by `gateways` alone, in the kernel and in what is said of it.
///
/// # Errors
/// What the kernel says; that there is no such link, if it is to have a gateway.
pub fn set(netns: &Path, ifname: &str, gateways: &[IpAddr], result: &mut CniResult) -> Result<(), CniError> {
    let mut pod = Route::open_in(&Netns::open(netns)?)?;
    let Some(link) = pod.find_link(ifname)? else {
        if gateways.is_empty() {
            return Ok(());
        }
        let msg = format!("there is no link {ifname} that could have a default route");
        return Err(CniError::new(Code::Internal, msg));
    };
    for v6 in [false, true] {
        let own = |route: &RouteEntry| {
            route.dst.len == 0 && route.device == Some(link.index) && route.table == MAIN_TABLE
        };
        for route in pod.routes(v6)?.into_iter().filter(own) {
            pod.del_route(&route)?;
        }
    }
    for gateway in gateways {
        let route = RouteEntry {
            gateway: Some(*gateway),
            device: Some(link.index),
            ..RouteEntry::to(Cidr::default_route(gateway.is_ipv6()))
        };
        pod.run(&[route.add()])?;
    }
    said(gateways, result);
    Ok(())
}

fn said(gateways: &[IpAddr], result: &mut CniResult) {
    result.routes.retain(|route| route.dst.len > 0);
    let default = |gateway: &IpAddr| RouteConfig::new(Cidr::default_route(gateway.is_ipv6()), Some(*gateway));
    result.routes.extend(gateways.iter().map(default));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_has_the_default_routes_that_were_said_and_all_others() {
        let route = |dst: &str, gw: &str| RouteConfig::new(dst.parse().unwrap(), Some(gw.parse().unwrap()));
        let routes =
            vec![route("0.0.0.0/0", "10.0.0.1"), route("10.9.0.0/16", "10.0.0.2"), route("::/0", "fd00::1")];
        let mut result = CniResult { routes, ..CniResult::default() };
        said(&["10.0.0.9".parse().unwrap()], &mut result);
        assert_eq!(result.routes, vec![route("10.9.0.0/16", "10.0.0.2"), route("0.0.0.0/0", "10.0.0.9")]);
        said(&[], &mut result);
        assert_eq!(result.routes, vec![route("10.9.0.0/16", "10.0.0.2")]);
    }
}

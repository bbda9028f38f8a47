//! Sets and removes the routes that [`crate::ranges`] asks for.

use trine_kernel::netlink::{NetlinkError, Route, RouteEntry};
use trine_kernel::netns::Netns;

use crate::error::ProxyError;
use crate::ranges;

fn error(call: &'static str) -> impl Fn(NetlinkError) -> ProxyError {
    move |source| ProxyError::Routes { call, source }
}

/// Makes the instance's guards those wanted; none, to clean up. Goes on after an error and gives the first.
pub(crate) fn ensure(instance: &str, netns: Option<&Netns>, wanted: &[RouteEntry]) -> Result<(), ProxyError> {
    let mut socket = match netns {
        Some(netns) => Route::open_in(netns),
        None => Route::open(),
    }
    .map_err(error("read"))?;
    let mut there = socket.routes(false).map_err(error("read"))?;
    there.extend(socket.routes(true).map_err(error("read"))?);
    let changes = ranges::changes(instance, &there, wanted);
    let mut first = Ok(());
    for route in &changes.remove {
        let removed = socket.del_route(route).map_err(error("remove"));
        first = first.and(removed);
    }
    for route in &changes.set {
        let set = socket.replace_route(route).map_err(error("set"));
        first = first.and(set);
    }
    first
}

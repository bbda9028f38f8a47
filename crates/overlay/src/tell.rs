//! What there is, in words.

use trine_kernel::netlink::Route;

use crate::act::{OverlayError, error};
use crate::entries::is_ours;
use crate::vtep;

/// By which ways other nodes' Pods are reached from the calling thread's network namespace, as the kernel says.
///
/// # Errors
/// [`OverlayError`].
pub fn tell(instance: &str) -> Result<String, OverlayError> {
    let mut socket = Route::open().map_err(error("read"))?;
    let links = socket.links().map_err(error("read"))?;
    let mut routes = socket.routes(false).map_err(error("read"))?;
    routes.extend(socket.routes(true).map_err(error("read"))?);
    routes.retain(|route| is_ours(route, instance));
    let names = vtep::names(instance);
    let tunnels: Vec<_> = links.iter().filter(|link| names.contains(&link.name)).collect();
    let through = |link: &u32| tunnels.iter().any(|tunnel| tunnel.index == *link);
    let tunnelled = routes.iter().filter_map(|route| route.device).filter(through).count();
    let mut words = Vec::new();
    if routes.len() > tunnelled {
        words.push(format!("{} by routes", routes.len() - tunnelled));
    }
    if let Some(mtu) = tunnels.iter().map(|tunnel| tunnel.mtu).min() {
        words.push(format!("{tunnelled} through tunnels of {mtu} bytes"));
    }
    Ok(if words.is_empty() { "none are needed".to_owned() } else { words.join(", ") })
}

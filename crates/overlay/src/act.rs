//! The executor: the plan, done to the kernel of the calling thread's network namespace. Its calls block.
//!
//! A way is made from its far end: first the tunnel, then where its frames go, then the route; and taken away from its near one. So a
//! route never leads into a tunnel that does not know the other end.

use trine_kernel::netlink::{Link, LinkChange, NetlinkError, NewKind, NewLink, Request, Route};
use trine_kernel::offload::OffloadError;
use trine_kernel::sysctl;

use crate::checksums;
use crate::entries::{self, Changes, Entries};
use crate::heed::Watched;
use crate::plan::{self, By, Me, Peer, Plan, Seen};
use crate::vtep::{self, Change, Tunnel};

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The ways to other nodes could not be read, set or removed.
    #[error("overlay: cannot {call} the ways to other nodes")]
    Ways {
        /// What was tried.
        call: &'static str,
        /// What the kernel said.
        source: NetlinkError,
    },
    /// Who computes a tunnel's checksums could not be set.
    #[error("overlay: the tunnels' checksums are not as told")]
    Checksums(#[from] OffloadError),
    /// The executor's thread died.
    #[error("overlay: the executor failed: {message}")]
    Executor {
        /// The panic's message.
        message: String,
    },
}

pub(crate) fn error(call: &'static str) -> impl Fn(NetlinkError) -> OverlayError {
    move |source| OverlayError::Ways { call, source }
}

/// What [`sync`] found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// How much was changed.
    pub changed: usize,
    /// What is there now.
    pub plan: Plan,
    /// What of the kernel's news matters from now on.
    pub watched: Watched,
}

/// Makes the ways to the other nodes true to `nodes`. Goes on after an error and gives the first.
///
/// # Errors
/// [`OverlayError`].
pub fn sync(me: &Me, nodes: &[Peer]) -> Result<Synced, OverlayError> {
    let mut socket = Route::open().map_err(error("read"))?;
    let mut seen = look(&mut socket)?;
    let plan = plan::plan(me, nodes, &seen);
    let mut first = Ok(());
    let tunnels = vtep::changes(&plan.tunnels, &seen.links, &seen.addresses);
    for change in &tunnels {
        first = first.and(apply(&mut socket, change).map_err(error("make")));
    }
    if !tunnels.is_empty() {
        // A link that goes takes its routes along.
        seen = look(&mut socket)?;
    }
    let mut told = 0;
    for tunnel in &plan.tunnels {
        match checksums::ensure(&tunnel.name, me.checksums) {
            Ok(changed) => told += usize::from(changed),
            Err(error) => first = first.and(Err(error.into())),
        }
    }
    let there = entries(&mut socket, me, &seen)?;
    let wanted = entries::wanted(&me.instance, &plan, &seen.links);
    let changes = entries::changes(&me.instance, &there, &wanted);
    first = first.and(write(&mut socket, &changes));
    let superfluous = vtep::superfluous(&me.instance, &plan.tunnels, &seen.links);
    for device in &superfluous {
        first = first.and(socket.del_link(*device).map_err(error("remove")));
    }
    let changed = tunnels.len() + told + changes.count() + superfluous.len();
    let watched = watched(me, &plan, &seen.links);
    first.map(|()| Synced { changed, plan, watched })
}

fn look(socket: &mut Route) -> Result<Seen, OverlayError> {
    let links = socket.links().map_err(error("read"))?;
    let addresses = socket.addresses(None).map_err(error("read"))?;
    let mut routes = socket.routes(false).map_err(error("read"))?;
    routes.extend(socket.routes(true).map_err(error("read"))?);
    Ok(Seen { links, addresses, routes })
}

/// What is in the tunnels, and all routes.
fn entries(socket: &mut Route, me: &Me, seen: &Seen) -> Result<Entries, OverlayError> {
    let mut there = Entries { routes: seen.routes.clone(), ..Entries::default() };
    let names = vtep::names(&me.instance);
    for link in seen.links.iter().filter(|link| names.contains(&link.name) && link.vxlan.is_some()) {
        there.neighbours.extend(socket.neighbours(link.index).map_err(error("read"))?);
        there.forwards.extend(socket.forwards(link.index).map_err(error("read"))?);
    }
    Ok(there)
}

fn watched(me: &Me, plan: &Plan, links: &[Link]) -> Watched {
    let direct = plan.ways.iter().filter_map(|way| match way.by {
        By::Neighbour { device, .. } => Some(device),
        By::Tunnel { .. } => None,
    });
    let is_tunnel = |link: &&Link| plan.tunnels.iter().any(|tunnel| tunnel.name == link.name);
    let tunnels: Vec<(u32, String)> =
        links.iter().filter(is_tunnel).map(|link| (link.index, link.name.clone())).collect();
    let mut devices: Vec<u32> = direct.chain(tunnels.iter().map(|(index, _)| *index)).collect();
    devices.sort_unstable();
    devices.dedup();
    let ranges = plan.ways.iter().map(|way| way.range).collect();
    Watched { instance: me.instance.clone(), devices, tunnels, ranges }
}

fn apply(socket: &mut Route, change: &Change) -> Result<(), NetlinkError> {
    match change {
        Change::Make(tunnel) => make(socket, tunnel),
        Change::Remake(device, tunnel) => {
            socket.del_link(*device)?;
            make(socket, tunnel)
        }
        Change::Adjust { device, mac, mtu, up, add, remove } => {
            let link = LinkChange { mac: *mac, mtu: *mtu, up: up.then_some(true), ..LinkChange::default() };
            let mut requests = vec![link.request(*device)];
            requests.extend(remove.iter().map(|addr| Request::del_address(*device, *addr).or_absent()));
            requests.extend(add.iter().map(|addr| Request::replace_address(*device, *addr)));
            socket.run(&requests)
        }
    }
}

fn make(socket: &mut Route, tunnel: &Tunnel) -> Result<(), NetlinkError> {
    let link = NewLink {
        name: &tunnel.name,
        kind: NewKind::Vxlan(tunnel.vxlan),
        parent: None,
        netns: None,
        mac: Some(tunnel.mac),
        mtu: Some(tunnel.mtu),
        up: false,
    };
    socket.run(&[link.request()])?;
    // Nobody is asked for an address or a route in a tunnel. A kernel without IPv6 has no such files.
    for (key, value) in [("addr_gen_mode", "1"), ("accept_ra", "0")] {
        let _ = sysctl::ensure(&format!("net/ipv6/conf/{}/{key}", tunnel.name), value);
    }
    let device = socket.link(tunnel.name.as_str())?.index;
    let mut requests: Vec<Request> =
        tunnel.addresses.iter().map(|addr| Request::replace_address(device, *addr)).collect();
    requests.push(LinkChange { up: Some(true), ..LinkChange::default() }.request(device));
    socket.run(&requests)
}

fn write(socket: &mut Route, changes: &Changes) -> Result<(), OverlayError> {
    let Changes { set, remove } = changes;
    let neighbours =
        set.neighbours.iter().filter_map(|n| Some(Request::add_neighbour(n.device, n.addr, n.mac?)));
    let forwards = set.forwards.iter().map(|f| Request::set_forward(f.device, f.mac, f.to));
    let ends: Vec<Request> = neighbours.chain(forwards).collect();
    let routes: Vec<Request> = set.routes.iter().map(trine_kernel::netlink::RouteEntry::replace).collect();
    let old_routes: Vec<Request> = remove.routes.iter().map(|route| route.del().or_absent()).collect();
    let old_neighbours =
        remove.neighbours.iter().map(|n| Request::del_neighbour(n.device, n.addr).or_absent());
    let old_forwards = remove.forwards.iter().map(|f| Request::del_forward(f.device, f.mac).or_absent());
    let old_ends: Vec<Request> = old_neighbours.chain(old_forwards).collect();
    let mut first = Ok(());
    for (call, requests) in [("set", ends), ("set", routes), ("remove", old_routes), ("remove", old_ends)] {
        first = first.and(socket.run(&requests).map_err(error(call)));
    }
    first
}

/// Removes the routes and tunnels of an instance from the calling thread's network namespace. Absent is success.
///
/// # Errors
/// [`OverlayError`].
pub fn cleanup(instance: &str) -> Result<(), OverlayError> {
    let mut socket = Route::open().map_err(error("read"))?;
    let seen = look(&mut socket)?;
    let there = Entries { routes: seen.routes, ..Entries::default() };
    let mut first = write(&mut socket, &entries::changes(instance, &there, &Entries::default()));
    for device in vtep::superfluous(instance, &[], &seen.links) {
        first = first.and(socket.del_link(device).map_err(error("remove")));
    }
    first
}

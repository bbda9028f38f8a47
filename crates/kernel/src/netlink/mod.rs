//! Links, addresses, routes and neighbours over a synchronous `NETLINK_ROUTE` socket.
//!
//! - [`Route`] the socket, in the calling thread's namespace or another one; its methods are the verbs
//! - [`Request`] one change, built purely; [`Route::run`] sends many of them in one datagram
//! - [`Link`], [`Veth`], [`LinkChange`] links as they are, are made and are changed
//! - [`NewLink`], [`PortVlans`] links of further kinds, and VLANs of bridges' ports
//! - [`Vxlan`], [`Forward`] frames in datagrams, and to which machine
//! - [`Monitor`] what changes, as the kernel tells it
//! - [`SourceRule`], [`TokenBucket`] which table a packet's route is in, and how fast frames leave
//! - [`Cidr`], [`Cidrs`], [`Address`], [`RouteEntry`], [`Neighbour`] what is on them
//! - [`NetlinkError`] keeps the errno, the kernel's own words and the object

mod addr;
mod cidr;
mod cidrs;
mod error;
mod link;
mod link_change;
mod link_make;
mod monitor;
mod neigh;
mod route;
mod rule;
mod socket;
#[cfg(test)]
mod tests;
mod traffic;
mod vxlan;

pub use addr::Address;
pub use cidr::{Cidr, CidrError};
pub use cidrs::{Cidrs, CidrsError};
pub use error::NetlinkError;
pub use link::{Link, LinkId, Mac, MacError};
pub use link_change::{LinkChange, Veth, VethPeer};
pub use link_make::{MacvlanMode, NewKind, NewLink, PortVlans};
pub use monitor::{Event, Monitor};
pub use neigh::Neighbour;
pub use route::{MAIN_TABLE, RouteEntry, RouteKind, Scope, TRINE_PROTOCOL};
pub use rule::{RuleInfo, SourceRule};
pub use socket::{Request, Route};
pub use traffic::{QueueInfo, TokenBucket};
pub use vxlan::{Forward, Vxlan};

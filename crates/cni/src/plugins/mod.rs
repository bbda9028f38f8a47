//! The side of the plugins, one file each. All of them answer ADD, DEL, CHECK, GC, STATUS and VERSION.
//!
//! - [`plugin_main`] the executed form, [`program`] that of any [`Plugin`], `serve` the called one
//! - `loopback`, `routed` (the built-in network), `bridge`, `ptp`, `macvlan`, `vlan`, `host_device`, `tap` make links
//! - `host_local`, `static_addresses` give addresses
//! - `portmap` (ports of the host), `bandwidth`, `firewall`, `tuning`, `sbr`, `vrf` are chained behind them
//! - `delegate` how the first ask for addresses; `inside` what they do in the container; `links`, `masquerade`, `owner` on the host
//! - [`default_network`] the configuration of the built-in network

mod bandwidth;
mod bridge;
mod default_network;
mod delegate;
mod firewall;
mod host_device;
mod host_local;
mod inside;
mod links;
mod loopback;
mod macvlan;
mod main;
mod masquerade;
mod owner;
mod portmap;
mod ptp;
mod routed;
mod sbr;
mod serve;
mod static_addresses;
mod tap;
mod tuning;
mod vlan;
mod vrf;

pub use default_network::{DefaultNetwork, default_network};
pub use main::{built_in, plugin_main, program};
pub(crate) use routed::OWN;
pub use serve::Plugin;
pub(crate) use serve::{Caller, find, serve};

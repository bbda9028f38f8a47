//! To which networks does it belong under somebody else's kubelet? A network plugin that attaches a Pod to the default network and
//! then to those that it names, as Multus does: Trine's own kubelet and runtime do that without it.
//!
//! - [`NAME`], [`called_otherwise`] the plugin as a program
//! - `config` what it is told, in Multus' words
//! - `pod` what the API says of a Pod
//! - `record` what a container is attached to, so that its end needs no API

#![forbid(unsafe_code)]

mod config;
mod plugin;
mod pod;
mod record;

pub use plugin::{NAME, called_otherwise};

//! From a Pod's spec to the runtime's configuration. Everything here but [`sources`] is pure.
//!
//! - [`quantity`] numbers with suffixes
//! - [`expand`] `$(NAME)` in values, commands and arguments
//! - [`env`] the environment: values, references, services
//! - [`fields`] fieldRef and resourceFieldRef
//! - [`sources`] the ConfigMaps and Secrets that it refers to
//! - [`dns`] resolvers by policy
//! - [`hosts`] the managed hosts file
//! - [`resources`] requests and limits as cgroup numbers, QoS
//! - [`hugepages`] pages of the machine's larger sizes
//! - [`security`] security contexts of Pod and container
//! - [`sandbox`] and [`config`] the CRI messages

pub mod config;
pub mod dns;
pub mod env;
pub mod expand;
pub mod fields;
pub mod hosts;
pub mod hugepages;
pub mod quantity;
pub mod resources;
pub mod sandbox;
pub mod security;
pub mod service_env;
pub mod sources;

//! What the node uses, for those who scrape it, under the names that upstream's kubelet and cAdvisor use.
//!
//! - [`text`] the form (Prometheus' text, 0.0.4)
//! - [`readings`] what the runtime and the kernel say, as numbers
//! - [`families`] which numbers go under which names, purely
//! - [`routes`] the four paths

pub mod families;
pub mod readings;
pub mod routes;
pub mod text;

//! Devices by their names in the Container Device Interface: what has to be done to a container so that it has them.
//! Source: CDI specification 1.1.
//!
//! - `registry` the files in the folders of the host
//! - `edit` what a name means for a container's configuration

mod edit;
mod registry;

pub(crate) use edit::inject;

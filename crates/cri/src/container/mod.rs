//! Containers: from the contract's words to a running process and back.
//!
//! - [`spec`] what the OCI specification of a container is (pure)
//! - [`user`] who it runs as, by the image's own lists (pure)
//! - [`capabilities`] what it may do (pure)
//! - `image_volume` images that are mounted into it
//! - `seccomp` which system calls it may make
//! - [`record`] what is written down of it

pub mod capabilities;
mod create;
mod exec;
pub(crate) mod image_volume;
mod lifecycle;
mod paths;
pub mod record;
mod seccomp;
pub mod spec;
#[cfg(test)]
mod spec_tests;
pub mod user;

pub(crate) use exec::ExecOptions;
pub(crate) use record::write_json;
pub use record::{Container, ContainerRecord, State};

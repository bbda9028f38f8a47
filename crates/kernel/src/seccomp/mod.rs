//! Which system calls a container may make: a profile in OCI's words becomes a program that the kernel asks before each call.
//!
//! - [`profile`] the profile in its JSON form
//! - [`default_profile`] what containers get that ask for the runtime's own
//! - [`compile`] the program for a profile
//! - [`Program::install`] puts it on the calling thread, for good

mod arguments;
mod assemble;
mod compile;
mod default;
mod install;
#[cfg(test)]
mod interpreter;
pub mod profile;
mod table;

pub use compile::{Machine, SeccompError, compile};
pub use default::default_profile;
pub use install::Program;

//! The Node: registered the moment the runtime answers, its status and lease kept up.
//!
//! - [`object`] what the Node says, purely
//! - [`machine`] what the machine is
//! - [`register`] creating or taking over the Node object
//! - [`status`] the status loop, and volumes in use before anything is mounted
//! - [`lease`] the heartbeat

pub mod lease;
pub mod machine;
pub mod object;
pub mod register;
pub mod status;

pub use machine::Machine;
pub use status::NodeStatusManager;

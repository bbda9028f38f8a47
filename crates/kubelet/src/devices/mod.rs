//! Devices of a Pod's claims (KEP-4381): drivers register themselves, make devices ready before the Pod's containers are made, and
//! take them back when it has ended.
//!
//! - [`drivers`] who is registered, and the calls
//! - [`record`] what was made ready, written down before it is
//! - `plan` which claims a Pod has, and what its containers get of them
//! - [`manager`] making ready and taking back
//! - [`health`] how they are, as their drivers say
//! - [`slices`] what drivers offer goes when they are gone

pub mod drivers;
pub mod health;
pub mod manager;
mod plan;
pub mod record;
pub mod slices;

pub use drivers::DeviceDrivers;
pub use manager::Devices;

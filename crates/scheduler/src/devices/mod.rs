//! Devices: what drivers offer, what is taken of it, and what a Pod's claims get on a node. Pure. Source: KEP-4381 and its
//! successors, upstream's `dynamic-resource-allocation/structured`.
//!
//! - [`inventory`] what is known: slices, classes, claims, taints, kept by what the watches tell; [`in_use`] what is taken
//! - [`claims`] which claims a Pod has
//! - [`extended`] what it asks for by resources for which classes stand
//! - [`allocator`] what claims ask for, and what they get on a node: [`allocate`](allocator::Allocator::allocate)
//! - `pools` what a node can reach, `search` which devices, with `constraints`, `counters` and `capacity`
//! - `result` what is written down of it

pub mod allocator;
mod capacity;
pub mod claims;
mod constraints;
mod counters;
pub mod extended;
pub mod in_use;
pub mod inventory;
mod pools;
mod requests;
mod result;
mod search;

pub use trine_typed::k8s_openapi::api::resource::v1::{
    AllocationResult, Device, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice,
};

/// How many devices a claim can have. Upstream: `AllocationResultsMaxSize`.
pub const MOST_DEVICES: usize = 256;

#[cfg(test)]
#[path = "allocator_tests.rs"]
mod tests;

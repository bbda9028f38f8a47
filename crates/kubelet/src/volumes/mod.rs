//! A Pod's volumes: what is desired, what is mounted, a pure plan, and the operations that close the gap.
//!
//! - [`model`] desired and actual state
//! - [`plan`] which operations are due, purely
//! - [`words`] how a failure is told
//! - [`manager`] the loop: one operation at a time per volume and Pod, with back-off
//! - [`paths`] upstream's layout below the root folder
//! - [`source`] which kind of volume, from the Pod's spec
//! - [`claim`] from a claim to its PV, and the wait for its attachment
//! - [`csi`] calls to drivers; [`stage`] and [`publish`] the steps around them
//! - [`grow`] volumes that have become larger
//! - [`metadata`] the files that say what a mount is, for after a restart
//! - [`reconstruct`] what a former kubelet left, from disk and the mount table
//! - [`local`] emptyDir, hostPath and the projected kinds; [`payload`] their files; [`atomic`] how these are written
//! - [`tokens`], [`trust`], [`pod_certificate`] tokens, authorities and certificates for the projected kinds
//! - [`fsgroup`] ownership
//! - [`subpath`] parts of volumes
//! - [`cleanup`] removing folders, never across a mount

pub mod atomic;
pub mod claim;
pub mod cleanup;
pub mod csi;
pub mod fsgroup;
pub mod grow;
pub mod local;
pub mod manager;
pub mod metadata;
pub mod model;
pub mod operations;
pub mod paths;
pub mod payload;
pub mod plan;
pub mod pod_certificate;
pub mod publish;
pub mod reconstruct;
pub mod source;
pub mod stage;
pub mod subpath;
pub mod tokens;
pub mod trust;
pub mod words;

pub use manager::VolumeManager;

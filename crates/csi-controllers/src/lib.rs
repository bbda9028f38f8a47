//! Does the volume exist, and is it attached? The controllers that stand between the API and any CSI driver: what
//! upstream runs as sidecars beside each driver.
//!
//! ```text
//! PersistentVolumeClaim ── provision ── CreateVolume ── PersistentVolume ── reclaim ── DeleteVolume
//! VolumeAttachment      ── attach    ── ControllerPublishVolume / ControllerUnpublishVolume
//! PersistentVolumeClaim ── resize    ── ControllerExpandVolume, ControllerModifyVolume
//! VolumeSnapshot        ── snapshot  ── CreateSnapshot / DeleteSnapshot
//! VolumeGroupSnapshot   ── group     ── CreateVolumeGroupSnapshot / DeleteVolumeGroupSnapshot
//! ```
//!
//! - [`run`] all of them, for the driver at one socket; [`Config`] which socket, and for which node
//! - [`objects`] the CSIDriver and StorageClass of a driver of ours
//! - [`provision`], [`attach`], [`resize`], [`snapshot`], [`group`]: `plan` decides purely, the rest acts
//! - [`snapshot::definitions`], [`group::definitions`] the kinds of snapshots, for a cluster that has none
//! - `secrets` what classes name for drivers
//! - `driver` the driver's calls, each under a deadline; `grpc` how their errors are read and shown
//! - `watch` the loop of each: live copies in, acts out; `work` one act per object at a time, with back-off

pub mod attach;
mod driver;
mod finalizers;
pub mod group;
mod grpc;
mod objects;
pub mod provision;
pub mod resize;
mod run;
mod secrets;
pub mod snapshot;
mod watch;
mod work;

pub use driver::Offers;
pub use grpc::CallError;
pub use objects::{CLASS_NAME, Objects, objects};
pub use run::{Config, RunError, run};

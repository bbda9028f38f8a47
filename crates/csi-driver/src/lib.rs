//! Where do its bytes lie? The built-in CSI driver `disk.csi.trine.dev`: a volume is a sparse file in a pool folder,
//! a loop device with 4 KiB sectors, and on it a file system made once (or none, for raw block).
//!
//! ```text
//! CreateVolume ── record + file ── ControllerPublish (fence) ── NodeStage: loop, mkfs once, mount
//!                                                              └─ NodePublish: bind ── the Pod
//! ```
//!
//! It knows no Kubernetes: a kubelet finds it by its registration socket, as it finds any other driver.
//!
//! - [`serve`] the driver on its sockets; [`Config`] where these and the pool are
//! - [`teardown`] lets go of every mount and device of a pool, without a running driver
//! - [`plan`] every decision, pure
//! - `request`, `size` what a call asks for; `error` why it cannot have it, with the gRPC code
//! - `pool`, `record` the volumes on disk; `disk` a disk of the pool's own; `locks` one call per volume at a time
//! - `controller`, `snapshot`, `group`, `stage`, `publish`, `measure`, `reconcile` the acts
//! - `service` the gRPC side

mod config;
mod controller;
mod disk;
mod driver;
mod error;
mod group;
mod locks;
mod measure;
mod observe;
pub mod plan;
mod pool;
mod publish;
mod reconcile;
mod record;
mod request;
mod serve;
mod service;
mod size;
mod snapshot;
mod stage;
mod teardown;

pub use config::{Config, DEFAULT_MAX_VOLUMES, DRIVER_NAME, PoolKind, TOPOLOGY_KEY};
pub use error::{Cause, DriverError};
pub use record::{Content, Group, Published, Snapshot, Source, State, Volume};
pub use request::{Access, Asked};
pub use serve::{ServeError, serve};
pub use size::Bytes;
pub use teardown::{TeardownError, teardown};

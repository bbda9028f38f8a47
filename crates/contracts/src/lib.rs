//! What crosses each seam: the published contracts as Rust types, and the one way that Trine dials or serves
//! them, a unix socket.
//!
//! - [`cri`] kubelet -> runtime: `runtime.v1`
//! - [`csi`] controllers and kubelet -> storage driver: `csi.v1`
//! - [`registration`] kubelet -> plugin: `pluginregistration.v1`
//! - [`socket`] unix-socket servers and clients for all three

pub mod socket;

/// The Container Runtime Interface, `runtime.v1`.
#[allow(missing_docs, clippy::all)]
pub mod cri {
    tonic::include_proto!("runtime.v1");
}

/// The Container Storage Interface, `csi.v1`.
#[allow(missing_docs, clippy::all)]
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// The kubelet's plugin registration, `pluginregistration.v1`.
#[allow(missing_docs, clippy::all)]
pub mod registration {
    tonic::include_proto!("pluginregistration.v1");
}

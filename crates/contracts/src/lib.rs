//! What crosses each seam: the published contracts as Rust types, and the one way that Trine dials or serves
//! them, a unix socket.
//!
//! - [`cri`] kubelet -> runtime: `runtime.v1`
//! - [`csi`] controllers and kubelet -> storage driver: `csi.v1`
//! - [`registration`] kubelet -> plugin: `pluginregistration`
//! - [`deadline`] what a call that takes too long is answered
//! - [`socket`] unix-socket servers and clients for all three

pub mod deadline;
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

/// The kubelet's plugin registration, `pluginregistration`.
#[allow(missing_docs, clippy::all)]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

#[cfg(test)]
mod tests {
    use tonic::server::NamedService;

    use crate::{cri, csi, registration};

    /// A service that anybody could stand behind.
    struct Nobody;

    /// What others call: with another name nobody's plugin is found, and ours by nobody, though our own sides agree.
    #[test]
    fn services_have_the_names_that_others_call_them_by() {
        fn name<S: NamedService>(_: impl Fn(Nobody) -> S) -> &'static str {
            S::NAME
        }
        for (ours, upstreams) in [
            (name(cri::runtime_service_server::RuntimeServiceServer::new), "runtime.v1.RuntimeService"),
            (name(cri::image_service_server::ImageServiceServer::new), "runtime.v1.ImageService"),
            (name(csi::identity_server::IdentityServer::new), "csi.v1.Identity"),
            (name(csi::controller_server::ControllerServer::new), "csi.v1.Controller"),
            (name(csi::node_server::NodeServer::new), "csi.v1.Node"),
            (
                name(registration::registration_server::RegistrationServer::new),
                "pluginregistration.Registration",
            ),
        ] {
            assert_eq!(ours, upstreams);
        }
    }
}

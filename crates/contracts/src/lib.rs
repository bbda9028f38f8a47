//! What crosses each seam: the published contracts as Rust types, and the one way that Trine dials or serves
//! them, a unix socket.
//!
//! - [`cri`] kubelet -> runtime: `runtime.v1`
//! - [`csi`] controllers and kubelet -> storage driver: `csi.v1`
//! - [`registration`] kubelet -> plugin: `pluginregistration`
//! - [`deadline`] what a call that takes too long is answered
//! - [`dra`] kubelet -> driver of devices, `dra.v1`; [`dra_v1beta1`] the same under its older name; [`dra_health`] how the devices
//!   are, and [`dra_health_v1alpha1`]
//! - [`networks`] what a Pod is attached to beside its default network: kubelet -> runtime
//! - [`socket`] unix-socket servers and clients for all three

pub mod deadline;
pub mod networks;
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

/// The kubelet's calls to drivers of devices, `dra.v1`.
#[allow(missing_docs, clippy::all)]
pub mod dra {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
}

/// The same calls under their older name, `dra.v1beta1`.
#[allow(missing_docs, clippy::all)]
pub mod dra_v1beta1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1beta1");
}

/// How the devices of a driver are, `DRAResourceHealth` of `v1`.
#[allow(missing_docs, clippy::all)]
pub mod dra_health {
    tonic::include_proto!("v1");
}

/// The same call under its older name, `v1alpha1`.
#[allow(missing_docs, clippy::all)]
pub mod dra_health_v1alpha1 {
    tonic::include_proto!("v1alpha1");
}

#[cfg(test)]
mod tests {
    use tonic::server::NamedService;

    use crate::{cri, csi, dra, dra_health, dra_health_v1alpha1, dra_v1beta1, registration};

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
            (name(dra::dra_plugin_server::DraPluginServer::new), "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"),
            (
                name(dra_v1beta1::dra_plugin_server::DraPluginServer::new),
                "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
            ),
            (
                name(dra_health::dra_resource_health_server::DraResourceHealthServer::new),
                "v1.DRAResourceHealth",
            ),
            (
                name(dra_health_v1alpha1::dra_resource_health_server::DraResourceHealthServer::new),
                "v1alpha1.DRAResourceHealth",
            ),
        ] {
            assert_eq!(ours, upstreams);
        }
    }
}

//! Compiles the contracts from `proto/` without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["cri.proto", "csi.proto", "registration.proto", "dra.proto", "dra_health.proto"];
    let files = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().compile_well_known_types(false).compile_fds(files)?;
    // Their messages are those of the newer ones.
    older(
        "dra_v1beta1.proto",
        "k8s.io.kubelet.pkg.apis.dra.v1beta1",
        (".k8s.io.kubelet.pkg.apis.dra.v1", "crate::dra"),
    )?;
    older("dra_health_v1alpha1.proto", "v1alpha1", (".v1", "crate::dra_health"))
}

/// A service under an older name, with the messages of another package.
fn older(file: &str, package: &str, messages: (&str, &str)) -> Result<(), Box<dyn std::error::Error>> {
    let mut found = protox::compile([file], ["proto"])?;
    found.file.retain(|file| file.package() == package);
    let build = tonic_prost_build::configure().compile_well_known_types(false);
    Ok(build.extern_path(messages.0, messages.1).compile_fds(found)?)
}

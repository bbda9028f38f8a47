//! Compiles the contracts from `proto/` without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["cri.proto", "csi.proto", "registration.proto", "dra.proto"];
    let files = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().compile_well_known_types(false).compile_fds(files)?;
    // Its messages are those of `dra.proto`.
    let mut older = protox::compile(["dra_v1beta1.proto"], ["proto"])?;
    older.file.retain(|file| file.package() == "k8s.io.kubelet.pkg.apis.dra.v1beta1");
    tonic_prost_build::configure()
        .compile_well_known_types(false)
        .extern_path(".k8s.io.kubelet.pkg.apis.dra.v1", "crate::dra")
        .compile_fds(older)?;
    Ok(())
}

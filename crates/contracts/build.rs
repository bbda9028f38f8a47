//! Compiles the three contracts from `proto/` without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["cri.proto", "csi.proto", "registration.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_well_known_types(false).compile_fds(files)?;
    Ok(())
}

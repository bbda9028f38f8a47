//! The reference's network plugins, and the program that calls plugins by hand, from their published modules.

use std::path::{Path, PathBuf};

use super::go::{self, Tool};

/// Where the modules are named.
const MODULE: &str = "tests/upstream/cni";
/// The module of the plugins.
const PLUGINS: &str = "github.com/containernetworking/plugins";

const fn plugin(package: &'static str, file: &'static str) -> Tool {
    Tool { module: MODULE, package, test: false, file, ldflags: "", versioned: PLUGINS }
}

macro_rules! plugins {
    ($($place:literal / $name:literal),* $(,)?) => {
        [$(plugin(
            concat!("github.com/containernetworking/plugins/plugins/", $place, "/", $name),
            concat!("cni/", $name),
        )),*]
    };
}

const ALL: [Tool; 15] = plugins![
    "main" / "bridge",
    "main" / "host-device",
    "main" / "loopback",
    "main" / "macvlan",
    "main" / "ptp",
    "main" / "tap",
    "main" / "vlan",
    "ipam" / "host-local",
    "ipam" / "static",
    "meta" / "bandwidth",
    "meta" / "firewall",
    "meta" / "portmap",
    "meta" / "sbr",
    "meta" / "tuning",
    "meta" / "vrf",
];

/// Calls a network's plugins as a runtime does.
const CNITOOL: Tool = Tool {
    module: MODULE,
    package: "github.com/containernetworking/cni/cnitool",
    test: false,
    file: "cnitool",
    ldflags: "",
    versioned: "github.com/containernetworking/cni",
};

/// Builds the reference's plugins; their folder.
///
/// # Errors
/// If there is no Go, or a module cannot be had or built.
pub fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let dir = root.join("target/upstream/cni");
    std::fs::create_dir_all(&dir)?;
    for tool in &ALL {
        go::build(root, tool)?;
    }
    Ok(dir)
}

/// Their version.
///
/// # Errors
/// If `go.mod` names none.
pub fn version(root: &Path) -> anyhow::Result<String> {
    go::version_of(root, MODULE, PLUGINS)
}

/// Builds `cnitool`.
///
/// # Errors
/// As [`build`].
pub fn cnitool(root: &Path) -> anyhow::Result<PathBuf> {
    go::build(root, &CNITOOL)
}

//! Where the groups of Pods are. It is written down, because a later daemon, or `down` in another session, is in other groups
//! than the daemon that made them.

use std::path::Path;

use trine_kernel::cgroup::Hierarchies;

use crate::config::Config;
use crate::container::write_json;
use crate::error::CriError;

/// The file's name in the state folder.
const FILE: &str = "cgroups.json";

fn error(source: trine_kernel::cgroup::CgroupError) -> CriError {
    CriError::Cgroup { call: "start", object: "cri".into(), source }
}

/// The groups of this machine, and the place of Pods among them as it was before, if there still is something.
pub(crate) fn find(config: &Config) -> Result<Hierarchies, CriError> {
    let mut hierarchies = Hierarchies::discover().map_err(error)?;
    // What cannot be read is as if it had not been written: groups are found again by what this process is in.
    let written = std::fs::read(config.state_dir.join(FILE)).ok();
    if let Some(bases) = written.and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
        hierarchies.take_up(&bases, &config.pods_cgroup());
    }
    Ok(hierarchies)
}

/// The same for a daemon that will make groups there.
pub(crate) fn prepare(config: &Config) -> Result<Hierarchies, CriError> {
    let mut hierarchies = find(config)?;
    let path = config.state_dir.join(FILE);
    let written =
        std::fs::create_dir_all(&config.state_dir).and_then(|()| write_json(&path, &hierarchies.bases()));
    written.map_err(CriError::io("write", Path::new(&path)))?;
    hierarchies.prepare().map_err(error)?;
    Ok(hierarchies)
}

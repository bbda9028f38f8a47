//! How a failed operation is told.

use super::plan::Operation;
use crate::error::KubeletError;

/// The failure as upstream words it.
#[must_use]
pub fn describe(operation: &Operation, error: &KubeletError) -> String {
    let cause = match error {
        KubeletError::Csi { source, .. } => source.to_string(),
        other => other.chain(),
    };
    let (step, volume) = match operation {
        Operation::Resolve { .. } => return cause,
        Operation::WaitForAttach { resolved, .. } => ("MountVolume.WaitForAttach", resolved.pv.as_str()),
        Operation::Stage { resolved, .. } if resolved.block => {
            ("MapVolume.SetUpDevice", resolved.pv.as_str())
        }
        Operation::Stage { resolved, .. } => ("MountVolume.MountDevice", resolved.pv.as_str()),
        Operation::Publish { resolved, .. } if resolved.block => {
            ("MapVolume.MapPodDevice", resolved.pv.as_str())
        }
        Operation::Publish { resolved, .. } | Operation::Refuse { resolved, .. } => {
            ("MountVolume.SetUp", resolved.pv.as_str())
        }
        Operation::SetUp { volume, .. } => ("MountVolume.SetUp", volume.as_str()),
        Operation::TearDown { key } => ("UnmountVolume.TearDown", key.spec.as_str()),
        Operation::Unstage { key } => ("UnmountDevice", key.handle.as_str()),
    };
    format!("{step} failed for volume {volume:?} : {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::model::MountKey;

    #[test]
    fn a_failure_names_its_step_and_its_volume() {
        let key = MountKey { uid: "u".into(), plugin: "p".into(), spec: "v".into(), block: false };
        let error = KubeletError::Invalid("secret \"s\" not found".into());
        let set_up = Operation::SetUp { key: key.clone(), volume: "v".into() };
        assert_eq!(
            describe(&set_up, &error),
            "MountVolume.SetUp failed for volume \"v\" : secret \"s\" not found"
        );
        let down = Operation::TearDown { key };
        assert!(describe(&down, &error).starts_with("UnmountVolume.TearDown failed for volume \"v\""));
    }
}

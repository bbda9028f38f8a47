//! Devices of the pool that nobody needs: found at start, before anything new is made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use trine_kernel::loopdev::Attached;
use trine_kernel::mountpoint::Mounted;

use super::target::shows;
use crate::record::Volume;

/// The devices among `attached` to detach: not mounted or bound anywhere, and of no volume that is attached to
/// this node, or a second one of the same file. `pool` is the folder of the images.
#[must_use]
pub fn devices(
    volumes: &BTreeMap<String, Volume>,
    attached: &[Attached],
    mounted: &[Mounted],
    pool: &Path,
) -> Vec<Attached> {
    let used =
        |device: &Attached| mounted.iter().any(|m| m.source == device.device || shows(m, &device.device));
    let mut kept: BTreeSet<&Path> =
        attached.iter().filter(|a| used(a)).map(|a| a.backing_file.as_path()).collect();
    let mut loose = Vec::new();
    for device in attached.iter().filter(|a| a.backing_file.starts_with(pool) && !used(a)) {
        let wanted = !device.deleted
            && device
                .backing_file
                .file_stem()
                .and_then(|stem| volumes.get(stem.to_str()?))
                .is_some_and(|volume| volume.published.is_some());
        if !wanted || !kept.insert(&device.backing_file) {
            loose.push(device.clone());
        }
    }
    loose
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::target::tests::mount;
    use crate::plan::volume::tests::volume;
    use crate::record::Published;

    #[test]
    fn unused_unwanted_and_second_devices_go() {
        let device = |number: u32, file: &str, deleted| Attached {
            number,
            device: format!("/dev/loop{number}").into(),
            backing_file: file.into(),
            deleted,
        };
        let staged =
            Volume { published: Some(Published { node: "n".to_owned(), block: true }), ..volume("staged") };
        let volumes = BTreeMap::from([("staged".to_owned(), staged), ("free".to_owned(), volume("free"))]);
        let attached = [
            device(0, "/pool/staged.img", false),
            device(1, "/pool/staged.img", false),
            device(2, "/pool/free.img", false),
            device(3, "/pool/gone.img", true),
            device(4, "/elsewhere/free.img", false),
            device(5, "/pool/mounted.img", true),
            device(6, "/pool/bound.img", false),
        ];
        let mounted = [
            mount("/dev/loop5", "/", "/t", "xfs", "rw"),
            mount("devtmpfs", "/loop6", "/t", "devtmpfs", "rw"),
        ];
        let loose = devices(&volumes, &attached, &mounted, Path::new("/pool"));
        assert_eq!(loose.iter().map(|d| d.number).collect::<Vec<_>>(), [1, 2, 3]);
    }
}

//! The upstream csi-driver-host-path with its sidecars on Trine: not to be had where this was written.

use super::part::Played;
use super::stage::Stage;

/// Says why there is nothing to play.
///
/// # Errors
/// Always.
pub fn play(_: &mut Stage) -> anyhow::Result<Played> {
    anyhow::bail!(
        "not to be had: the module proxy answered 403 for github.com/kubernetes-csi/csi-driver-host-path and \
         github.com/kubernetes-csi/node-driver-registrar when tests/upstream was written, so no go.mod names them"
    )
}

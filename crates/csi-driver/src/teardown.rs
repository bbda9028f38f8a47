//! Letting go of a pool: every mount and device of it, with or without records; the volumes stay.

use std::path::Path;

use trine_kernel::{loopdev, mountpoint};

use crate::error::{Cause, chain};
use crate::observe::Observed;
use crate::{disk, pool};

/// What could not be let go of.
#[derive(Debug, thiserror::Error)]
#[error("csi teardown {pool}: {}", problems.join("; "))]
pub struct TeardownError {
    /// The pool folder.
    pub pool: String,
    /// One line for each mount or device that is still there.
    pub problems: Vec<String>,
}

/// Unmounts and detaches everything of the pool at `pool_dir`, found by the devices' backing files, and a disk of its own after that. Twice is
/// fine, and so is a pool that never was. The driver must have stopped. Blocks.
///
/// # Errors
/// [`TeardownError`], after everything has been tried.
pub fn teardown(pool_dir: &Path) -> Result<(), TeardownError> {
    let failed = |problems| TeardownError { pool: pool_dir.display().to_string(), problems };
    if !pool_dir.exists() {
        return Ok(());
    }
    let problems = let_go(pool_dir).unwrap_or_else(|cause| vec![chain(&cause)]);
    if problems.is_empty() { Ok(()) } else { Err(failed(problems)) }
}

fn let_go(pool_dir: &Path) -> Result<Vec<String>, Cause> {
    let pool_dir = pool_dir.canonicalize().map_err(Cause::file("resolve", pool_dir))?;
    let _lock = pool::own(&pool_dir)?;
    let mut problems = Vec::new();
    let observed = Observed::now(&disk::folder_of(&pool_dir)?)?;
    for device in &observed.attached {
        // Newest first: binds before what they are bound from.
        for place in observed.places(&device.device).into_iter().rev() {
            let plain = mountpoint::unmount_all(place, false);
            if let Err(error) = plain.or_else(|_| mountpoint::unmount_all(place, true)) {
                problems.push(chain(&error));
            }
        }
        if let Err(error) = loopdev::detach(device) {
            problems.push(chain(&error));
        }
    }
    if let Err(cause) = disk::let_go(&pool_dir) {
        problems.push(chain(&cause));
    }
    Ok(problems)
}

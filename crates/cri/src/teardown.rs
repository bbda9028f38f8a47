//! The end of all that this instance's runtime made, with or without a daemon.

use crate::config::Config;
use crate::error::{CriError, chain};
use crate::groups;
use crate::runtime::Runtime;

/// Stops and removes every sandbox that is recorded in `config.state_dir`, and sweeps what leaked. Images stay. To be
/// called when no daemon serves this state; nothing there is success, also twice.
///
/// # Errors
/// [`CriError::Undone`] naming what stays; all else is gone.
pub async fn teardown(config: &Config) -> Result<(), CriError> {
    if !config.state_dir.is_dir() {
        return Ok(());
    }
    let runtime = Runtime::open(config.clone(), groups::find(config)?)?;
    runtime.recover().await;
    let ids: Vec<String> = runtime.sandboxes().keys().cloned().collect();
    let mut failed = Vec::new();
    for id in ids {
        if let Err(error) = runtime.remove_sandbox(&id).await {
            failed.push(chain(&error));
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(CriError::Undone { call: "teardown", object: config.state_dir.display().to_string(), failed })
    }
}

/// Gives the group that a daemon of this state was started in back as it was found, unless others use it. To be called after
/// [`teardown`], once no runtime of this process serves.
///
/// # Errors
/// [`CriError`] if this machine's groups cannot be read.
pub fn leave_groups(config: &Config) -> Result<(), CriError> {
    groups::find(config).map(|hierarchies| hierarchies.leave())
}

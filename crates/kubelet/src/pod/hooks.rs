//! postStart and preStop.

use std::time::Duration;

use trine_typed::k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use super::Context;
use crate::error::KubeletError;
use crate::probes::attempt::{self, Target};

/// Runs a hook to its end, or to its deadline.
///
/// # Errors
/// [`KubeletError::Invalid`] if it failed; [`KubeletError::Deadline`]; [`KubeletError::Cri`].
pub async fn run(
    ctx: &Context,
    handler: &LifecycleHandler,
    container: &Container,
    id: &str,
    ip: &str,
    deadline: Duration,
) -> Result<(), KubeletError> {
    let work = async {
        if let Some(exec) = &handler.exec {
            let command = exec.command.clone().unwrap_or_default();
            let result = ctx.runtime.exec_sync(id, command.clone(), deadline).await?;
            if result.exit_code != 0 {
                let output = String::from_utf8_lossy(&result.stderr).into_owned()
                    + &String::from_utf8_lossy(&result.stdout);
                return Err(KubeletError::Invalid(format!(
                    "command {command:?} exited with {}: {}",
                    result.exit_code,
                    output.trim()
                )));
            }
            return Ok(());
        }
        if let Some(get) = &handler.http_get {
            let target = Target { container, ip };
            return attempt::http_get(get, &target, deadline).await.map_err(KubeletError::Invalid);
        }
        if let Some(sleep) = &handler.sleep {
            tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or_default())).await;
        }
        Ok(())
    };
    tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| {
        Err(KubeletError::Deadline { what: "the hook".to_owned(), seconds: deadline.as_secs() })
    })
}

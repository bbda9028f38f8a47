//! The words of the API server, in `up` and `server`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use trine_apiserver::{AuditConfig, RuntimeConfig};

/// What the API server notes, and what it serves.
#[derive(Debug, Clone, Default, Args)]
pub struct ApiArgs {
    /// Note each request to the API in this file, one line of JSON each
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// What is noted: a Policy of audit.k8s.io/v1; without it who, what and when of everything
    #[arg(long, value_name = "FILE", requires = "audit_log")]
    pub audit_policy: Option<PathBuf>,
    /// Serve versions that are off by default, too: `GROUP/VERSION=true`, several with commas between them; `api/beta` for all
    #[arg(long, value_name = "VERSIONS")]
    pub runtime_config: Option<RuntimeConfig>,
}

impl ApiArgs {
    /// What it notes.
    #[must_use]
    pub fn audit(&self) -> AuditConfig {
        AuditConfig { log: self.audit_log.clone(), policy: self.audit_policy.clone() }
    }

    /// The words that say the same to another process, which may have another folder.
    ///
    /// # Errors
    /// If this process has no folder.
    pub fn words(&self) -> std::io::Result<Vec<OsString>> {
        let mut words = Vec::new();
        for (word, file) in [("--audit-log", &self.audit_log), ("--audit-policy", &self.audit_policy)] {
            if let Some(file) = file {
                words.extend([word.into(), std::path::absolute(file)?.into()]);
            }
        }
        if let Some(versions) = &self.runtime_config {
            words.extend(["--runtime-config".into(), versions.to_string().into()]);
        }
        Ok(words)
    }
}

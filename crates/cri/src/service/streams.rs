//! Exec, Attach and PortForward: checked now, carried out when the client comes with the token.

use std::sync::PoisonError;

use trine_contracts::cri::{
    AttachRequest, AttachResponse, ExecRequest, ExecResponse, PortForwardRequest, PortForwardResponse,
};

use super::Service;
use crate::error::CriError;
use crate::sandbox::SandboxState;
use crate::streaming::Session;

impl Service {
    pub(super) fn open_exec(&self, request: ExecRequest) -> Result<ExecResponse, CriError> {
        const CALL: &str = "Exec";
        if request.cmd.is_empty() {
            return Err(CriError::invalid(CALL, "there is no command"));
        }
        check(CALL, request.tty, request.stdin, request.stdout, request.stderr)?;
        self.0.must_run(CALL, &request.container_id)?;
        let session = Session::Exec {
            container: request.container_id,
            command: request.cmd,
            terminal: request.tty,
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
        };
        Ok(ExecResponse { url: self.url(CALL, "exec", session)? })
    }

    pub(super) fn open_attach(&self, request: AttachRequest) -> Result<AttachResponse, CriError> {
        const CALL: &str = "Attach";
        check(CALL, request.tty, request.stdin, request.stdout, request.stderr)?;
        self.0.must_run(CALL, &request.container_id)?;
        let session = Session::Attach {
            container: request.container_id,
            terminal: request.tty,
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
        };
        Ok(AttachResponse { url: self.url(CALL, "attach", session)? })
    }

    pub(super) fn open_forward(&self, request: PortForwardRequest) -> Result<PortForwardResponse, CriError> {
        const CALL: &str = "PortForward";
        let sandbox = self.0.sandbox(&request.pod_sandbox_id)?;
        if sandbox.record().state != SandboxState::Ready {
            let (object, why) = (sandbox.id.clone(), "it is not ready".to_owned());
            return Err(CriError::State { call: CALL, object, why });
        }
        let ports = request.port.iter().filter_map(|p| u16::try_from(*p).ok()).collect();
        let session = Session::Forward { sandbox: sandbox.id.clone(), ports };
        Ok(PortForwardResponse { url: self.url(CALL, "portforward", session)? })
    }

    fn url(&self, call: &'static str, path: &str, session: Session) -> Result<String, CriError> {
        let base = self.0.inner.streaming_base.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let token = self.0.inner.tokens.issue(call, session)?;
        Ok(format!("{base}/{path}/{token}"))
    }
}

fn check(call: &'static str, tty: bool, stdin: bool, stdout: bool, stderr: bool) -> Result<(), CriError> {
    if tty && stderr {
        return Err(CriError::invalid(call, "with a terminal there is no error stream"));
    }
    if !(stdin || stdout || stderr) {
        return Err(CriError::invalid(call, "one of stdin, stdout and stderr must be asked for"));
    }
    Ok(())
}

//! How a driver's errors are read and shown.

use std::time::Duration;

use tonic::{Code, Status};

/// A driver's call that failed. Shown as upstream shows it, so that whoever reads events finds the usual words.
#[derive(Debug, Clone, thiserror::Error)]
#[error("rpc error: code = {} desc = {message}", name(*code))]
pub struct CallError {
    /// The RPC.
    pub call: &'static str,
    /// The driver's code.
    pub code: Code,
    /// The driver's words.
    pub message: String,
}

impl CallError {
    /// From a driver's status.
    #[must_use]
    pub fn of(call: &'static str, status: &Status) -> Self {
        Self { call, code: status.code(), message: status.message().to_owned() }
    }

    /// A call that did not end in time: it may still be going on in the driver.
    #[must_use]
    pub fn late(call: &'static str, deadline: Duration) -> Self {
        let message = format!("csi {call}: no answer within {} s", deadline.as_secs());
        Self { call, code: Code::DeadlineExceeded, message }
    }

    /// True if the driver has certainly not done it and will not: else it may be done, now or later.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(
            self.code,
            Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted | Code::Unknown
        )
    }
}

/// The code as Go's gRPC prints it.
fn name(code: Code) -> String {
    match code {
        Code::Cancelled => "Canceled".to_owned(),
        Code::Ok => "OK".to_owned(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_upstreams_does() {
        let error = CallError::of("CreateVolume", &Status::out_of_range("too much"));
        assert_eq!(error.to_string(), "rpc error: code = OutOfRange desc = too much");
        assert!(error.is_final());
        assert!(!CallError::late("CreateVolume", Duration::from_secs(1)).is_final());
        assert!(!CallError::of("x", &Status::cancelled("")).is_final());
        assert_eq!(
            CallError::of("x", &Status::cancelled("")).to_string(),
            "rpc error: code = Canceled desc = "
        );
    }
}

//! What can go wrong, always with plane, call, object and cause.

use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A gRPC status as Kubernetes prints it: `rpc error: code = NotFound desc = ...`.
#[derive(Debug, Clone)]
pub struct Rpc(pub tonic::Status);

impl fmt::Display for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpc error: code = {:?} desc = {}", self.0.code(), self.0.message())
    }
}

impl std::error::Error for Rpc {}

/// What a neighbour answers within `deadline`; a silent one is told from one that refuses by its code alone. The call is put
/// aside on the heap: it is large, and the futures around it would each keep room for it on their threads' stacks.
///
/// # Errors
/// [`Rpc`]: the neighbour's status, or `DeadlineExceeded`.
pub fn answered<T>(
    deadline: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> impl Future<Output = Result<T, Box<Rpc>>> {
    let call = Box::pin(tokio::time::timeout(deadline, call));
    async move {
        let status = match call.await {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) => status,
            Err(_) => tonic::Status::deadline_exceeded(format!("no answer within {} s", deadline.as_secs())),
        };
        Err(Box::new(Rpc(status)))
    }
}

/// An error of the kubelet or of one of its neighbours.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The runtime refused a call.
    #[error("CRI {call} of {object}")]
    Cri {
        /// The RPC.
        call: &'static str,
        /// Sandbox, container or image.
        object: String,
        /// The runtime's status.
        source: Box<Rpc>,
    },
    /// A storage driver refused a call.
    #[error("CSI {call} of driver {driver} for {object}")]
    Csi {
        /// The RPC.
        call: &'static str,
        /// The driver's name.
        driver: String,
        /// The volume's handle or path.
        object: String,
        /// The driver's status.
        source: Box<Rpc>,
    },
    /// A driver of devices refused a call.
    #[error("DRA {call} of driver {driver}")]
    Devices {
        /// The RPC.
        call: &'static str,
        /// The driver's name.
        driver: String,
        /// The driver's status.
        source: Box<Rpc>,
    },
    /// The API server refused a call or did not answer.
    #[error("API {call} of {object}")]
    Api {
        /// Verb and kind.
        call: &'static str,
        /// namespace/name.
        object: String,
        /// What the client said.
        source: Box<kube_error::ApiCause>,
    },
    /// The file system or the kernel refused.
    #[error("cannot {call} {path}")]
    Io {
        /// What was tried.
        call: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The Pod's own words cannot be followed (missing key, bad reference, ...).
    #[error("{0}")]
    Invalid(String),
    /// Something that is waited for is not there yet.
    #[error("{0}")]
    NotYet(String),
    /// TLS material cannot be used.
    #[error("TLS: {what}")]
    Tls {
        /// Which part.
        what: &'static str,
        /// What the TLS library said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No port could be bound.
    #[error("no free port from {first} upward")]
    NoPort {
        /// First port tried.
        first: u16,
        /// What the last attempt said.
        source: std::io::Error,
    },
    /// The call did not end in time.
    #[error("{what} did not end within {seconds} s")]
    Deadline {
        /// What was waited for.
        what: String,
        /// For how long.
        seconds: u64,
    },
}

/// API errors, with texts that name the Status reason once.
pub mod kube_error {
    use trine_typed::kube;

    /// Why an API call failed.
    #[derive(Debug, thiserror::Error)]
    pub enum ApiCause {
        /// The server answered with a Status.
        #[error("{message} ({reason}, {code})")]
        Status {
            /// Status.message.
            message: String,
            /// Status.reason.
            reason: String,
            /// Status.code.
            code: u16,
        },
        /// No answer: connection, decoding, ...
        #[error("{0}")]
        Other(String),
        /// No answer in time.
        #[error("no answer in time")]
        Deadline,
    }

    impl From<kube::Error> for ApiCause {
        fn from(error: kube::Error) -> Self {
            match error {
                kube::Error::Api(status) => Self::Status {
                    message: status.message.clone(),
                    reason: status.reason.clone(),
                    code: status.code,
                },
                other => Self::Other(other.to_string()),
            }
        }
    }
}

impl KubeletError {
    /// The gRPC code, if a plugin or the runtime gave one.
    #[must_use]
    pub fn grpc_code(&self) -> Option<tonic::Code> {
        match self {
            Self::Cri { source, .. } | Self::Csi { source, .. } => Some(source.0.code()),
            _ => None,
        }
    }

    /// The HTTP code of the API server's Status.
    #[must_use]
    pub fn api_code(&self) -> Option<u16> {
        match self {
            Self::Api { source, .. } => match **source {
                kube_error::ApiCause::Status { code, .. } => Some(code),
                _ => None,
            },
            _ => None,
        }
    }

    /// The whole chain in one line, as events and status messages show it.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(cause) = next {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            next = cause.source();
        }
        text
    }

    /// An [`KubeletError::Io`] maker for `map_err`.
    pub fn io(call: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { call, path, source }
    }
}

/// Calls the API with [`crate::config::API_TIMEOUT`].
///
/// # Errors
/// [`KubeletError::Api`].
pub async fn api<T>(
    call: &'static str,
    object: &str,
    future: impl Future<Output = Result<T, trine_typed::kube::Error>>,
) -> Result<T, KubeletError> {
    let cause = match tokio::time::timeout(crate::config::API_TIMEOUT, future).await {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.into(),
        Err(_) => kube_error::ApiCause::Deadline,
    };
    Err(KubeletError::Api { call, object: object.to_owned(), source: Box::new(cause) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_names_call_object_code_and_cause_once() {
        let error = KubeletError::Csi {
            call: "NodeStageVolume",
            driver: "d".into(),
            object: "v".into(),
            source: Box::new(Rpc(tonic::Status::not_found("no such volume"))),
        };
        assert_eq!(
            error.chain(),
            "CSI NodeStageVolume of driver d for v: rpc error: code = NotFound desc = no such volume"
        );
        assert_eq!(error.grpc_code(), Some(tonic::Code::NotFound));
    }
}

//! Why the kernel said no.

use std::io;

use rustix::io::Errno;

use crate::netns::NetnsError;

/// A netlink call that failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused a request.
    #[error("netlink: cannot {call} {object}{}", said(hint))]
    Refused {
        /// What was tried (`add address`).
        call: &'static str,
        /// On what (`10.1.0.2/32 on link 7`).
        object: String,
        /// The kernel's own words, if it had any.
        hint: String,
        /// The errno.
        source: io::Error,
    },
    /// The socket failed.
    #[error("netlink: cannot {call}")]
    Socket {
        /// What was tried.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel's answer could not be read.
    #[error("netlink: answer to {call} {object} cannot be read: {problem}")]
    Answer {
        /// What was asked.
        call: &'static str,
        /// About what.
        object: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The namespace of the socket cannot be entered.
    #[error("netlink: no socket")]
    Netns(#[from] NetnsError),
}

fn said(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!(" ({hint})") }
}

impl NetlinkError {
    /// The errno of a refusal.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } | Self::Socket { source, .. } => source.raw_os_error(),
            Self::Answer { .. } | Self::Netns(_) => None,
        }
    }

    fn is(&self, errnos: &[Errno]) -> bool {
        self.errno().is_some_and(|errno| errnos.iter().any(|e| e.raw_os_error() == errno))
    }

    /// True if the object is not there: on the way down that is success.
    #[must_use]
    pub fn not_found(&self) -> bool {
        self.is(&[Errno::NODEV, Errno::NOENT, Errno::SRCH, Errno::ADDRNOTAVAIL, Errno::NXIO])
    }

    /// True if the object is there already.
    #[must_use]
    pub fn already_exists(&self) -> bool {
        self.is(&[Errno::EXIST])
    }
}

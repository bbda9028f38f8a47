//! The files of `/proc/sys`. Keys below `net` are those of the calling thread's network namespace; for another one
//! use [`crate::netns::Netns::run`].

use std::io;
use std::path::PathBuf;

/// A sysctl that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("sysctl {key}: cannot {call}")]
pub struct SysctlError {
    /// The key in path form (`net/ipv4/ip_forward`).
    pub key: String,
    /// `read` or `write`.
    pub call: &'static str,
    /// What the system said.
    pub source: io::Error,
}

fn path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(key)
}

/// The value of `key`, in path form (`net/ipv4/conf/eth0.1/forwarding`: names of links may hold dots).
///
/// # Errors
/// [`SysctlError`].
pub fn read(key: &str) -> Result<String, SysctlError> {
    std::fs::read_to_string(path(key))
        .map(|value| value.trim_end().to_owned())
        .map_err(|source| SysctlError { key: key.to_owned(), call: "read", source })
}

/// Sets `key` to `value`.
///
/// # Errors
/// [`SysctlError`].
pub fn write(key: &str, value: &str) -> Result<(), SysctlError> {
    std::fs::write(path(key), value).map_err(|source| SysctlError {
        key: key.to_owned(),
        call: "write",
        source,
    })
}

/// Sets `key` to `value` unless it has it. Works where `/proc/sys` is read-only but already right.
///
/// # Errors
/// [`SysctlError`].
pub fn ensure(key: &str, value: &str) -> Result<(), SysctlError> {
    if read(key).is_ok_and(|now| now == value) { Ok(()) } else { write(key, value) }
}

/// Lets packets of a family pass from link to link, in the calling thread's network namespace. A router does not listen to other
/// routers (RFC 4861) unless its links are told to: those that took their IPv6 routes from one go on doing so.
///
/// # Errors
/// [`SysctlError`].
pub fn forward(v6: bool) -> Result<(), SysctlError> {
    if !v6 {
        return ensure("net/ipv4/ip_forward", "1");
    }
    const ALL: &str = "net/ipv6/conf/all/forwarding";
    if read(ALL)? == "1" {
        return Ok(());
    }
    for link in std::fs::read_dir(path("net/ipv6/conf")).into_iter().flatten().flatten() {
        let name = link.file_name();
        let key = format!("net/ipv6/conf/{}/accept_ra", name.to_string_lossy());
        // 1: unless it is a router; 2: even then. A link may go meanwhile.
        if name != "all" && read(&key).is_ok_and(|now| now == "1") {
            let _ = write(&key, "2");
        }
    }
    write(ALL, "1")
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads_and_names_the_key_that_is_missing() {
        assert!(super::read("kernel/ostype").unwrap().contains("Linux"));
        let error = super::read("net/none").unwrap_err();
        assert_eq!(error.to_string(), "sysctl net/none: cannot read");
    }
}

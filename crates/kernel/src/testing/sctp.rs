//! Sockets of SCTP for tests, one for each association, as those of TCP are.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

fn socket(of: SocketAddr) -> io::Result<OwnedFd> {
    let family = if of.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::SCTP))?)
}

/// True if the kernel has it; else says that `test` is skipped.
#[must_use]
pub fn there(test: &str) -> bool {
    let there = socket(SocketAddr::from(([0, 0, 0, 0], 0))).is_ok();
    if !there {
        super::skip(test, "the kernel has no SCTP");
    }
    there
}

/// Listens at an address.
///
/// # Errors
/// What the kernel says.
pub fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(at)?;
    rustix::net::bind(&socket, &at)?;
    rustix::net::listen(&socket, 16)?;
    Ok(socket.into())
}

/// Connects, and waits no longer than `patience` for that and for what is heard.
///
/// # Errors
/// What the kernel says.
pub fn connect(to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let socket = socket(to)?;
    for way in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
        sockopt::set_socket_timeout(&socket, way, Some(patience))?;
    }
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

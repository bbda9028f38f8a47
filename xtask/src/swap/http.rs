//! A request over HTTP/1.1, each on a connection of its own, so that each meets the Service anew.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context;

/// How long one request may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Asks `METHOD PATH` of an address; the answer's body.
///
/// # Errors
/// If there is no answer, or another than 200.
pub fn ask(address: &str, method: &str, path: &str, body: &str) -> anyhow::Result<String> {
    let address: SocketAddr = address.parse().context("the Service's address")?;
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: web\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    anyhow::ensure!(
        head.starts_with("HTTP/1.1 200"),
        "{method} {path}: {}",
        head.lines().next().unwrap_or("")
    );
    Ok(body.trim().to_owned())
}

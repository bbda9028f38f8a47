//! Asks the node's name servers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hickory_proto::op::{Message, ResponseCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::upstream;

/// How long one server may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often all servers are tried.
const ROUNDS: usize = 2;
/// Questions that may be open at a time; CoreDNS's usual configuration has the same.
const OPEN: usize = 1000;

/// The way to the node's name servers.
pub struct Forwarder {
    servers: Servers,
    open: Semaphore,
}

/// Which name servers there are.
enum Servers {
    /// Those of a file, in which there may be others later.
    File {
        /// The file.
        resolv_conf: PathBuf,
        /// This server.
        own: SocketAddr,
        /// What it said when it was last changed.
        known: Mutex<(Option<SystemTime>, Vec<SocketAddr>)>,
    },
    /// These.
    #[cfg(test)]
    These(Vec<SocketAddr>),
}

impl Forwarder {
    /// Reads `resolv_conf`; `own` is left out of it.
    pub fn new(resolv_conf: PathBuf, own: SocketAddr) -> Self {
        let servers = Servers::File { resolv_conf, own, known: Mutex::default() };
        Self { servers, open: Semaphore::new(OPEN) }
    }

    /// Asks these.
    #[cfg(test)]
    pub fn to(servers: Vec<SocketAddr>) -> Self {
        Self { servers: Servers::These(servers), open: Semaphore::new(OPEN) }
    }

    /// The servers now: the file is read again when it was changed.
    pub fn servers(&self) -> Vec<SocketAddr> {
        let (resolv_conf, own, known) = match &self.servers {
            Servers::File { resolv_conf, own, known } => (resolv_conf, own, known),
            #[cfg(test)]
            Servers::These(servers) => return servers.clone(),
        };
        let changed = std::fs::metadata(resolv_conf).and_then(|meta| meta.modified()).ok();
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.is_none() || known.0 != changed {
            let text = std::fs::read_to_string(resolv_conf).unwrap_or_default();
            *known = (changed, upstream::servers(&text, *own));
        }
        known.1.clone()
    }

    /// What the first server that can say something says; nothing if none answers, or too much is asked at a time.
    pub async fn ask(&self, query: &Message) -> Option<Message> {
        let _permit = self.open.try_acquire().ok()?;
        let servers = self.servers();
        let mut failed = None;
        for server in (0..ROUNDS).flat_map(|_| &servers) {
            match tokio::time::timeout(TIMEOUT, exchange(query, *server)).await {
                Ok(Ok(answer)) => match answer.metadata.response_code {
                    ResponseCode::ServFail | ResponseCode::Refused | ResponseCode::NotImp => {
                        failed = Some(answer)
                    }
                    _ => return Some(answer),
                },
                Ok(Err(error)) => tracing::debug!(%server, %error, "a name server does not answer"),
                Err(_) => tracing::debug!(%server, "a name server does not answer within {TIMEOUT:?}"),
            }
        }
        failed
    }
}

async fn exchange(query: &Message, server: SocketAddr) -> std::io::Result<Message> {
    let invalid =
        |e: &dyn std::fmt::Display| std::io::Error::new(std::io::ErrorKind::InvalidData, e.to_string());
    let mut sent = query.clone();
    let mut id = [0u8; 2];
    getrandom::fill(&mut id).map_err(|e| invalid(&e))?;
    sent.metadata.id = u16::from_be_bytes(id);
    let bytes = sent.to_vec().map_err(|e| invalid(&e))?;
    let answer = over_udp(&sent, &bytes, server).await?;
    if answer.metadata.truncation { over_tcp(&sent, &bytes, server).await } else { Ok(answer) }
}

/// The answer to `sent`, if the bytes are one.
fn answer_to(sent: &Message, bytes: &[u8]) -> Option<Message> {
    let answer = Message::from_vec(bytes).ok()?;
    (answer.metadata.id == sent.metadata.id && answer.queries == sent.queries).then_some(answer)
}

async fn over_udp(sent: &Message, bytes: &[u8], server: SocketAddr) -> std::io::Result<Message> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = vec![0u8; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Whatever else arrives is somebody's guess.
        if let Some(answer) = answer_to(sent, &buffer[..length]) {
            return Ok(answer);
        }
    }
}

async fn over_tcp(sent: &Message, bytes: &[u8], server: SocketAddr) -> std::io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let mut framed = u16::try_from(bytes.len()).unwrap_or(0).to_be_bytes().to_vec();
    framed.extend_from_slice(bytes);
    stream.write_all(&framed).await?;
    let length = usize::from(stream.read_u16().await?);
    let mut buffer = vec![0u8; length];
    stream.read_exact(&mut buffer).await?;
    answer_to(sent, &buffer).ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

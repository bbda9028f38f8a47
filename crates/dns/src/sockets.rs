//! Listens, over UDP and TCP on one port.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::config::FIRST_PORT;
use crate::error::DnsError;
use crate::resolver::{Found, Resolver, Transport};

/// How many ports are tried where none is named.
const PORTS: u16 = 200;
/// Connections at a time.
const CONNECTIONS: usize = 256;
/// How long a connection may be idle. RFC 7766, 6.2.3: a few seconds.
const IDLE: Duration = Duration::from_secs(10);
/// The longest datagram that is read, bytes; questions are short.
const LONGEST: usize = 4096;

/// Both ways in.
pub struct Sockets {
    udp: Arc<UdpSocket>,
    tcp: TcpListener,
    /// Where they are.
    pub address: SocketAddr,
}

impl Sockets {
    /// Takes the port, or the first one of which both halves are free.
    ///
    /// # Errors
    /// [`DnsError::Listen`] with the last port that was tried.
    pub async fn bind(address: IpAddr, port: Option<u16>) -> Result<Self, DnsError> {
        let (first, last) = port.map_or((FIRST_PORT, FIRST_PORT + PORTS), |port| (port, port));
        let mut failed = None;
        for port in first..=last {
            let address = SocketAddr::new(address, port);
            match Self::bind_both(address).await {
                Ok(sockets) => return Ok(sockets),
                Err(source) => failed = Some(DnsError::Listen { address, source }),
            }
        }
        let address = SocketAddr::new(address, first);
        Err(failed.unwrap_or(DnsError::Listen { address, source: io::ErrorKind::AddrInUse.into() }))
    }

    async fn bind_both(address: SocketAddr) -> io::Result<Self> {
        let udp = UdpSocket::bind(address).await?;
        // With port 0 the kernel chooses one.
        let address = udp.local_addr()?;
        Ok(Self { udp: Arc::new(udp), tcp: TcpListener::bind(address).await?, address })
    }

    /// Answers until told to stop.
    pub async fn serve(self, resolver: Arc<Resolver>, stop: &CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = datagrams(self.udp, Arc::clone(&resolver)) => {}
            () = connections(self.tcp, resolver) => {}
        }
    }
}

async fn datagrams(socket: Arc<UdpSocket>, resolver: Arc<Resolver>) {
    let mut buffer = vec![0u8; LONGEST];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer).await {
            Ok(read) => read,
            Err(error) => {
                // A client that went away is reported on the next read.
                tracing::debug!(%error, "no datagram");
                continue;
            }
        };
        match resolver.find(&buffer[..length], Transport::Datagram) {
            Found::Reply(None) => {}
            Found::Reply(Some(bytes)) => send(&socket, &bytes, from).await,
            Found::Ask(query) => {
                let (socket, resolver) = (Arc::clone(&socket), Arc::clone(&resolver));
                tokio::spawn(async move {
                    let bytes = resolver.ask(&query, Transport::Datagram).await;
                    send(&socket, &bytes, from).await;
                });
            }
        }
    }
}

async fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) {
    if let Err(error) = socket.send_to(bytes, to).await {
        tracing::debug!(%to, %error, "an answer could not be sent");
    }
}

async fn connections(listener: TcpListener, resolver: Arc<Resolver>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let resolver = Arc::clone(&resolver);
                tokio::spawn(async move {
                    if let Err(error) = conversation(stream, &resolver).await {
                        tracing::debug!(%error, "a conversation ended");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "no connection");
                // Out of descriptors: others have to be closed first.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn conversation(mut stream: TcpStream, resolver: &Resolver) -> io::Result<()> {
    loop {
        let Ok(question) = tokio::time::timeout(IDLE, read(&mut stream)).await else { return Ok(()) };
        let Some(question) = question? else { return Ok(()) };
        let bytes = match resolver.find(&question, Transport::Stream) {
            Found::Reply(None) => return Ok(()),
            Found::Reply(Some(bytes)) => bytes,
            Found::Ask(query) => resolver.ask(&query, Transport::Stream).await,
        };
        let mut framed = u16::try_from(bytes.len()).unwrap_or(0).to_be_bytes().to_vec();
        framed.extend_from_slice(&bytes);
        tokio::time::timeout(IDLE, stream.write_all(&framed)).await??;
    }
}

/// One message; none when the client has closed.
async fn read(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let length = match stream.read_u16().await {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0u8; usize::from(length)];
    stream.read_exact(&mut bytes).await?;
    Ok(Some(bytes))
}

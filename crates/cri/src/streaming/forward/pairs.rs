//! Pairs of SPDY streams: one with the bytes of a connection, one for what went wrong with it.

use std::collections::BTreeMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::server::IDLE;
use super::super::spdy::connection::write;
use super::super::spdy::frame::{self, Frame, FrameMaker, FrameReader};
use super::{Pod, connect};

/// Connections at a time within a session.
const MOST: usize = 1000;
/// Pieces of data that wait for one connection: then the whole session waits, since SPDY here has no flow control.
const WAITING: usize = 16;
/// Frames that wait for the client.
const OUTGOING: usize = 64;

/// What the client wants of a pair of streams.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    request: String,
    port: u16,
    is_data: bool,
}

impl Wish {
    fn of(stream: u32, headers: &[(String, String)]) -> Option<Self> {
        let named = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let is_data = match named("streamtype")? {
            "data" => true,
            "error" => false,
            _ => return None,
        };
        let port = named("port")?.parse().ok().filter(|port| *port != 0)?;
        // Old clients name no request: the data stream is the next one after the error stream.
        let paired = if is_data { stream.checked_sub(2)? } else { stream };
        Some(Self {
            request: named("requestid").map_or_else(|| format!("#{paired}"), str::to_owned),
            port,
            is_data,
        })
    }
}

/// Serves one client until it goes.
pub async fn session(connection: impl AsyncRead + AsyncWrite + Send + 'static, pod: Pod) -> io::Result<()> {
    let (from, to) = tokio::io::split(connection);
    let mut reader = FrameReader::new(Box::pin(from));
    let mut maker = FrameMaker::new()?;
    let (out, outgoing) = mpsc::channel(OUTGOING);
    let writer = tokio::spawn(write(Box::pin(to), outgoing));
    let mut errors: BTreeMap<String, u32> = BTreeMap::new();
    let mut open: BTreeMap<u32, (mpsc::Sender<Vec<u8>>, CancellationToken)> = BTreeMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    let result = loop {
        let next = match tokio::time::timeout(IDLE, reader.next()).await {
            Err(_) => break Ok(()),
            Ok(Err(error)) => break Err(error),
            Ok(Ok(None)) => break Ok(()),
            Ok(Ok(Some(frame))) => frame,
        };
        while tasks.try_join_next().is_some() {}
        match next {
            Frame::Open { stream, headers } => {
                let wish = Wish::of(stream, &headers).filter(|_| tasks.len() < MOST && errors.len() < MOST);
                let Some(wish) = wish else {
                    out.send(frame::reset(stream, frame::REFUSED)).await.map_err(gone)?;
                    continue;
                };
                out.send(maker.reply(stream)?).await.map_err(gone)?;
                if !wish.is_data {
                    errors.insert(wish.request, stream);
                } else if let Some(error_stream) = errors.remove(&wish.request) {
                    let (sender, bytes) = mpsc::channel(WAITING);
                    let given_up = CancellationToken::new();
                    open.insert(stream, (sender, given_up.clone()));
                    let ends = Ends { port: wish.port, error_stream, stream, out: out.clone(), given_up };
                    tasks.spawn(forward(pod.clone(), ends, bytes));
                } else {
                    out.send(frame::reset(stream, frame::REFUSED)).await.map_err(gone)?;
                }
            }
            Frame::Data { stream, bytes, last } => {
                if let Some((sender, _)) = open.get(&stream) {
                    // Whose connection has ended takes no more.
                    let ended = !bytes.is_empty() && sender.send(bytes).await.is_err();
                    if ended || last {
                        open.remove(&stream);
                    }
                }
            }
            Frame::Reset { stream } => {
                if let Some((_, given_up)) = open.remove(&stream) {
                    given_up.cancel();
                }
            }
            Frame::Ping { id } => out.send(frame::ping(id)).await.map_err(gone)?,
            Frame::GoAway => break Ok(()),
            Frame::Nothing => {}
        }
    };
    drop(tasks);
    drop(out);
    let _ = writer.await;
    result
}

/// The client's ends of one connection.
struct Ends {
    port: u16,
    error_stream: u32,
    stream: u32,
    out: mpsc::Sender<Vec<u8>>,
    /// The client wants no more of it.
    given_up: CancellationToken,
}

/// Carries one connection, and says at its end what was wrong, if anything.
async fn forward(pod: Pod, ends: Ends, bytes: mpsc::Receiver<Vec<u8>>) {
    let sandbox = pod.sandbox.clone();
    let wrong = match connect(pod, ends.port).await {
        Ok(socket) => carry(socket, &ends, bytes).await.err().map(|e| e.to_string()),
        Err(why) => Some(why),
    };
    let message = wrong.map(|why| format!("error forwarding port {} to pod {sandbox}: {why}", ends.port));
    let last = [
        frame::data(ends.error_stream, message.unwrap_or_default().as_bytes(), true),
        frame::data(ends.stream, b"", true),
    ];
    for frame in last {
        let _ = ends.out.send(frame).await;
    }
}

/// Both ways until the Pod has said all, or the client wants no more.
async fn carry(socket: TcpStream, ends: &Ends, mut bytes: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    let (mut from_pod, mut to_pod) = socket.into_split();
    let inward = async {
        while let Some(piece) = bytes.recv().await {
            to_pod.write_all(&piece).await?;
        }
        to_pod.shutdown().await
    };
    let outward = async {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let read = from_pod.read(&mut buffer).await?;
            let sent = ends.out.send(frame::data(ends.stream, &buffer[..read], false));
            if read == 0 || sent.await.is_err() {
                return Ok(());
            }
        }
    };
    // The client's end is not the Pod's: it may still answer.
    let inward = async {
        match inward.await {
            Ok(()) => std::future::pending::<io::Result<()>>().await,
            Err(error) if error.kind() == io::ErrorKind::NotConnected => std::future::pending().await,
            Err(error) => Err(error),
        }
    };
    tokio::select! {
        done = outward => done,
        failed = inward => failed,
        () = ends.given_up.cancelled() => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(text: &str) -> Vec<(String, String)> {
        text.split(' ').filter_map(|p| p.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
    }

    #[test]
    fn streams_are_paired_by_request_or_by_number() {
        let wish =
            |stream, text: &str| Wish::of(stream, &headers(text)).map(|w| (w.request, w.port, w.is_data));
        assert_eq!(wish(1, "streamtype=error port=80 requestid=4"), Some(("4".into(), 80, false)));
        assert_eq!(wish(3, "streamtype=data port=80 requestid=4"), Some(("4".into(), 80, true)));
        assert_eq!(wish(5, "streamtype=error port=80"), Some(("#5".into(), 80, false)));
        assert_eq!(wish(7, "streamtype=data port=80"), Some(("#5".into(), 80, true)));
        for bad in [
            "port=80",
            "streamtype=error",
            "streamtype=other port=80",
            "streamtype=data port=0",
            "streamtype=data port=x",
        ] {
            assert_eq!(wish(9, bad), None, "{bad}");
        }
    }
    /// What the client hears of its streams, until both have ended.
    async fn heard(reader: &mut FrameReader<impl AsyncRead + Unpin>, streams: [u32; 2]) -> [String; 2] {
        let mut said = [Vec::new(), Vec::new()];
        let mut ended = [false, false];
        while ended != [true, true] {
            let frame = tokio::time::timeout(std::time::Duration::from_secs(10), reader.next()).await;
            if let Frame::Data { stream, bytes, last } = frame.unwrap().unwrap().unwrap() {
                let which = streams.iter().position(|s| *s == stream).unwrap();
                said[which].extend(bytes);
                ended[which] = last;
            }
        }
        said.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[tokio::test]
    async fn bytes_go_to_a_port_and_back_and_a_closed_port_is_told() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            // It is gone before its answer: the next connection finds nobody.
            drop(listener);
            let mut all = Vec::new();
            socket.read_to_end(&mut all).await.unwrap();
            socket.write_all(&[b"heard ", &all[..]].concat()).await.unwrap();
        });
        let (client, server) = tokio::io::duplex(1024);
        tokio::spawn(session(server, Pod { sandbox: "s".to_owned(), netns: None }));
        let (from, mut to) = tokio::io::split(client);
        let (mut reader, mut maker) = (FrameReader::new(from), FrameMaker::new().unwrap());
        for (request, error, data) in [("0", 1, 3), ("1", 5, 7)] {
            let wish = |kind| [("streamtype", kind), ("port", port.as_str()), ("requestid", request)];
            let asked = [
                maker.open(error, &wish("error")),
                frame::data(error, b"", true),
                maker.open(data, &wish("data")),
                frame::data(data, b"question", true),
            ];
            to.write_all(&asked.concat()).await.unwrap();
            let [wrong, answer] = heard(&mut reader, [error, data]).await;
            if request == "0" {
                assert_eq!((wrong.as_str(), answer.as_str()), ("", "heard question"));
            } else {
                assert!(wrong.starts_with(&format!("error forwarding port {port} to pod s:")), "{wrong}");
                assert!(wrong.contains("refused") && answer.is_empty(), "{wrong} {answer}");
            }
        }
        to.write_all(&[maker.open(9, &[("streamtype", "data")]), frame::ping(5)].concat()).await.unwrap();
        let mut last = Vec::new();
        while last.len() < 2 {
            match reader.next().await.unwrap().unwrap() {
                Frame::Nothing => {}
                other => last.push(other),
            }
        }
        assert_eq!(last, [Frame::Reset { stream: 9 }, Frame::Ping { id: 5 }]);
    }
}
